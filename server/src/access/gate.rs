//! The gate: finds out who asks, and holds the request against the table before anything else is done.
//!
//! Three states. Without an administrator a server is either its owner's alone (loopback, or told so) and everything is
//! allowed, or it shows the set-up page and nothing else. With an administrator the table counts.

use super::{
    Principal, Proxies, SignedIn, Via,
    cookies::session_secret,
    path::part,
    rules::{Row, Rule, find},
};
use crate::{
    accounts::{Accounts, DEFAULT_PROJECT, Role, Scope, Throttle},
    errors::{Problem, ProblemKind, Result},
    http::AppState,
    live::Why,
};
use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use futures_util::StreamExt;
use std::{fmt::Write, net::IpAddr, sync::Arc, time::Duration};
use tokio::time::sleep;

/// Sign-ins from one address: so many at once, then one in each interval. Good ones do not count.
const BY_ADDRESS: (u32, Duration) = (20, Duration::from_secs(6));
/// Failed sign-ins to one account, from wherever: against guessing from many addresses at once.
const BY_ACCOUNT: (u32, Duration) = (30, Duration::from_secs(20));
/// Secrets that do not exist (of shares, set-up links, tokens) from one address.
const GUESSES: (u32, Duration) = (30, Duration::from_secs(2));

/// How long a stream goes on before its listener is looked at again.
const STREAM_FOR: Duration = Duration::from_mins(5);

/// What happens while there is no administrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutUsers {
    /// Everything is allowed.
    Open,
    /// Nothing but the set-up page.
    SetUp,
}

/// What the gate knows.
#[derive(Debug)]
pub struct Gate {
    /// Who is who.
    pub accounts: Accounts,
    /// What happens while there is no administrator.
    pub without_users: WithoutUsers,
    /// Who may speak for others.
    pub proxies: Proxies,
    /// Sign-ins by address.
    pub by_address: Throttle<IpAddr>,
    /// Failed sign-ins by account.
    pub by_account: Throttle<String>,
    guesses: Throttle<IpAddr>,
}

/// From where a request comes, as an extension of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client(pub IpAddr);

/// What the gate has allowed, as an extension of the request: the role in the project in question, if one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// The role; `None` where no one project is in question.
    pub role: Option<Role>,
}

impl Gate {
    /// A gate.
    pub fn new(accounts: Accounts, without_users: WithoutUsers, proxies: Proxies) -> Self {
        Self {
            accounts,
            without_users,
            proxies,
            by_address: Throttle::new(BY_ADDRESS.0, BY_ADDRESS.1),
            by_account: Throttle::new(BY_ACCOUNT.0, BY_ACCOUNT.1),
            guesses: Throttle::new(GUESSES.0, GUESSES.1),
        }
    }

    /// The problem for a secret that does not exist; after many from one address, another one. Good secrets are never
    /// held up.
    pub fn wrong_guess(&self, client: IpAddr, problem: Problem) -> Problem {
        match self.guesses.take(&bucket_of(client)) {
            Ok(()) => problem,
            Err(wait) => too_many_tries(wait),
        }
    }
}

/// One household has one IPv4 address, but as many IPv6 addresses as it likes.
pub fn bucket_of(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
    }
}

/// Too often.
pub fn too_many_tries(wait: Duration) -> Problem {
    let detail = format!("Too many tries. The next one is possible in {} seconds.", wait.as_secs().max(1));
    Problem::new(ProblemKind::TooManyTries, detail).retry_after(wait)
}

/// Wraps every request.
pub async fn gate(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let for_machines = parts.uri.path().starts_with("/api/");
    let row = find(&parts.method, parts.uri.path());
    let client = state.gate.proxies.client(&parts.extensions, &parts.headers);
    parts.extensions.insert(Client(client));
    match admit(&state, &mut parts, client).await {
        Ok(()) => {
            let is_owners_alone = parts.extensions.get() == Some(&Principal::SingleUser);
            let response = next.run(Request::from_parts(parts, body)).await;
            note_sender(&state, row, client, response.extensions().get::<ProblemKind>());
            if row.is_some_and(|row| is_wrong_guess(row, &response)) {
                let problem = state.gate.wrong_guess(client, Problem::not_found());
                if problem.kind() == ProblemKind::TooManyTries {
                    return if for_machines { problem.into_response() } else { problem.into_page() };
                }
            }
            if is_owners_alone { response } else { ends_in_time(response, STREAM_FOR) }
        }
        Err(problem) if for_machines => {
            let kind = problem.kind();
            note_sender(&state, row, client, Some(&kind));
            let mut response = problem.into_response();
            if kind == ProblemKind::SignInNeeded {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
        Err(problem) if problem.kind() == ProblemKind::SignInNeeded && is_read(&parts.method) => {
            Redirect::to(&login_address(&parts.uri)).into_response()
        }
        Err(problem) => problem.into_page(),
    }
}

/// Nothing is behind this secret. A page says so by its status, other answers by the kind of their problem.
fn is_wrong_guess(row: &Row, response: &Response) -> bool {
    let kind = response.extensions().get::<ProblemKind>();
    match row.rule {
        Rule::Link => {
            response.status() == StatusCode::NOT_FOUND && kind.is_none_or(|kind| *kind == ProblemKind::NotFound)
        }
        Rule::Sender => kind == Some(&ProblemKind::TokenMissing),
        _ => false,
    }
}

/// Streams never end by themselves, and rights are looked at when one begins. So it ends, and browsers come back at once.
fn ends_in_time(response: Response, within: Duration) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    if kind.is_none_or(|kind| !kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(sleep(within))))
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// The sign-in page that leads back to where the visitor wanted to go.
fn login_address(uri: &Uri) -> String {
    let wanted = uri.path_and_query().map_or("/", |wanted| wanted.as_str());
    if wanted == "/" {
        return "/login".to_owned();
    }
    let mut address = String::from("/login?next=");
    for byte in wanted.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.') {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}"); // writing into a String cannot fail
        }
    }
    address
}

/// A sender that is turned away for what it shows; its node would else be missing without a word.
fn note_sender(state: &AppState, row: Option<&Row>, client: IpAddr, kind: Option<&ProblemKind>) {
    let why = match kind {
        Some(ProblemKind::TokenMissing | ProblemKind::SignInNeeded) => Why::Token,
        // A token of a project that takes no live data learns no more than that there is nothing.
        Some(ProblemKind::SenderNotAllowed | ProblemKind::NotAllowed | ProblemKind::NotFound) => Why::MayNot,
        _ => return,
    };
    if let Some(live) = state.live.as_ref().filter(|_| is_for_senders(row)) {
        live.turn_away(client, why);
    }
}

async fn admit(state: &AppState, parts: &mut Parts, client: IpAddr) -> Result<()> {
    let (who, granted) = decide(state, parts, client).await?;
    parts.extensions.insert(who);
    parts.extensions.insert(granted);
    Ok(())
}

async fn decide(state: &AppState, parts: &Parts, client: IpAddr) -> Result<(Principal, Granted)> {
    let gate = &state.gate;
    let row = find(&parts.method, parts.uri.path());
    // Allowed in every state, so also while the database cannot tell which one it is.
    if row.is_some_and(|row| row.rule == Rule::File && is_for_set_up(row)) {
        return Ok((Principal::Nobody, Granted { role: None }));
    }
    if !gate.accounts.is_set_up().await? {
        return match gate.without_users {
            WithoutUsers::Open => Ok((Principal::SingleUser, Granted { role: Some(Role::Admin) })),
            WithoutUsers::SetUp if row.is_some_and(is_for_set_up) => Ok((Principal::Nobody, Granted { role: None })),
            WithoutUsers::SetUp => {
                let detail = "This server has no administrator yet. Whoever started it finds the link for the first one in \
                    its output.";
                Err(Problem::new(ProblemKind::SetUpNeeded, detail))
            }
        };
    }
    if row.is_some_and(|row| row.rule == Rule::File) {
        return Ok((Principal::Nobody, Granted { role: None }));
    }
    let who = match principal(gate, parts, state.front.is_https()).await {
        // Where anybody may go, a token that does not work is no obstacle; senders may have one that the handler knows.
        Err(problem) if (is_for_anybody(row) || is_for_senders(row)) && problem.kind() == ProblemKind::SignInNeeded => {
            Principal::Nobody
        }
        Err(problem) if problem.kind() == ProblemKind::SignInNeeded => return Err(gate.wrong_guess(client, problem)),
        known => known?,
    };
    if let Principal::User(_) = &who {
        from_own_page(&parts.method, &parts.headers)?;
    }
    let Some(row) = row else {
        // Whoever is not known learns nothing, not even which addresses there are.
        return Err(if who == Principal::Nobody { sign_in_needed() } else { Problem::not_found() });
    };
    if let Principal::Token(holder) = &who
        && !is_for_anybody(Some(row))
        && !row.scope.is_some_and(|scope| holder.scopes.has(scope))
    {
        let needed = row.scope.map_or("no token is enough for this", scope_words);
        return Err(not_allowed(format!("This token is for {}; {needed}.", holder.scopes)));
    }
    let granted = allow(state, row, &who, &parts.uri).await?;
    Ok((who, granted))
}

fn scope_words(scope: Scope) -> &'static str {
    match scope {
        Scope::Samples => "this takes the scope samples",
        Scope::Upload => "this takes the scope upload",
        Scope::Read => "this takes the scope read",
    }
}

/// The page with which a server gets its first administrator, and what it is made of. And whether it is ready: who leads
/// nobody to a server that is not would also lead nobody to that page.
fn is_for_set_up(row: &Row) -> bool {
    matches!(row.path, "/setup/{token}" | "/style.css" | "/favicon.svg" | "/pkg/{*file}" | "/healthz" | "/readyz")
}

fn is_for_anybody(row: Option<&Row>) -> bool {
    row.is_some_and(|row| matches!(row.rule, Rule::Public | Rule::Link | Rule::File))
}

fn is_for_senders(row: Option<&Row>) -> bool {
    row.is_some_and(|row| row.rule == Rule::Sender)
}

fn sign_in_needed() -> Problem {
    Problem::new(ProblemKind::SignInNeeded, "Sign in, or send a token as Authorization: Bearer TOKEN.")
}

fn not_allowed(detail: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::NotAllowed, detail)
}

/// A token, else what a trusted proxy says, else a session.
async fn principal(gate: &Gate, parts: &Parts, is_https: bool) -> Result<Principal> {
    let headers = &parts.headers;
    if let Some(shown) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok())
        && let Some((scheme, token)) = shown.split_once(' ')
        && scheme.eq_ignore_ascii_case("bearer")
    {
        let holder = gate.accounts.token_holder(token.trim()).await?;
        let unknown = || {
            let detail = "The token is not known here, was revoked, has ended, or its owner has no rights any more.";
            Problem::new(ProblemKind::SignInNeeded, detail)
        };
        return holder.map(|holder| Principal::Token(Arc::new(holder))).ok_or_else(unknown);
    }
    let (user, via) = if let Some(name) = gate.proxies.user(&parts.extensions, headers) {
        (gate.accounts.user_of_proxy(&name).await?, Via::Proxy)
    } else if let Some(secret) = session_secret(headers, is_https) {
        (gate.accounts.user_of_session(secret).await?, Via::Session)
    } else {
        (None, Via::Session)
    };
    match user {
        Some(user) => {
            let memberships = gate.accounts.memberships(&user).await?;
            Ok(Principal::User(Arc::new(SignedIn { user, memberships, via })))
        }
        None => Ok(Principal::Nobody),
    }
}

/// What a browser sends along by itself (a cookie, a proxy's word) counts for a change only if the browser also says that
/// the request comes from one of this server's own pages. `guard` has refused it if it says otherwise.
fn from_own_page(method: &Method, headers: &HeaderMap) -> Result<()> {
    if is_read(method) || headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
        return Ok(());
    }
    let detail = "Changes with a session are taken only from this server's own pages. Programs send a token instead.";
    Err(Problem::new(ProblemKind::ForeignOrigin, detail))
}

async fn allow(state: &AppState, row: &Row, who: &Principal, uri: &Uri) -> Result<Granted> {
    let anywhere = Ok(Granted { role: None });
    if matches!(row.rule, Rule::File | Rule::Public | Rule::Link) {
        return anywhere;
    }
    if *who == Principal::Nobody {
        // The handler compares the token that the server was started with.
        return if row.rule == Rule::Sender { anywhere } else { Err(sign_in_needed()) };
    }
    let store = &state.service.store;
    let named = |name: &str| part(row.path, uri.path(), name).ok_or_else(Problem::not_found);
    match row.rule {
        Rule::File | Rule::Public | Rule::Link | Rule::SignedIn => anywhere,
        Rule::Nodes(role) => in_project(who, DEFAULT_PROJECT, role),
        Rule::Sender if matches!(who, Principal::Token(_)) => in_project(who, DEFAULT_PROJECT, Role::Editor),
        Rule::Sender => Err(not_allowed("Samples are sent by agents and probes, with a token.")),
        Rule::Administrator if who.is_administrator() => anywhere,
        Rule::Administrator => Err(not_allowed("This is for administrators of the server.")),
        Rule::AnyProject(role) if who.has_anywhere(role) => anywhere,
        Rule::AnyProject(role) => Err(role_needed(role, "of a project")),
        Rule::Project(role) => in_project(who, named("project")?, role),
        Rule::Run(role) => in_project(who, &store.project_of_run(named("id")?).await?, role),
        Rule::Share(role) => {
            let run = store.run_of_share(named("id")?).await?;
            in_project(who, &store.project_of_run(&run).await?, role)
        }
        Rule::Compared(role) => {
            for run in compared(uri)? {
                in_project(who, &store.project_of_run(&run).await?, role)?;
            }
            anywhere
        }
    }
}

/// Every run that the query names, however often.
fn compared(uri: &Uri) -> Result<Vec<String>> {
    let query = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
    let pairs = query.map_err(|error| Problem::invalid(error.body_text()))?.0;
    let named = pairs.into_iter().filter(|(key, _)| key == "base" || key == "head");
    Ok(named.map(|(_, run)| run.trim().to_owned()).filter(|run| !run.is_empty()).collect())
}

/// Who is no member of a project does not learn that it, or a run of it, is there.
fn in_project(who: &Principal, project: &str, least: Role) -> Result<Granted> {
    match who.role_in(project) {
        None => Err(Problem::not_found()),
        Some(role) if role >= least => Ok(Granted { role: Some(role) }),
        Some(_) => Err(role_needed(least, "of this project")),
    }
}

fn role_needed(role: Role, of: &str) -> Problem {
    let article = if role == Role::Viewer { "a" } else { "an" };
    not_allowed(format!("This takes {article} {} {of}. Ask an administrator of the project.", role.slug()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    #[test]
    fn the_way_back_is_an_address_of_this_server() {
        let way = |uri: &str| login_address(&uri.parse().unwrap());
        assert_eq!(way("/"), "/login");
        assert_eq!(way("/runs/1?version=2&x=/"), "/login?next=/runs/1%3Fversion%3D2%26x%3D/");
    }

    #[test]
    fn neighbours_in_one_ipv6_network_share_their_tries() {
        let bucket = |address: &str| bucket_of(address.parse().unwrap()).to_string();
        assert_eq!(bucket("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(bucket("203.0.113.9"), "203.0.113.9");
    }

    #[tokio::test]
    async fn streams_end_and_nothing_else_is_cut_off() {
        let body = |wait: u64| {
            let first = stream::iter([Ok::<_, std::io::Error>("data: 1\n\n")]);
            let later = async move {
                sleep(Duration::from_millis(wait)).await;
                Ok("data: 2\n\n")
            };
            Body::from_stream(first.chain(stream::once(later)))
        };
        let read = async |kind: &str, wait| {
            let response = ([(header::CONTENT_TYPE, kind.to_owned())], body(wait)).into_response();
            let body = ends_in_time(response, Duration::from_millis(50)).into_body();
            axum::body::to_bytes(body, usize::MAX).await.unwrap()
        };
        assert_eq!(read("text/event-stream", 3_600_000).await, "data: 1\n\n");
        assert_eq!(read("text/csv", 100).await, "data: 1\n\ndata: 2\n\n");
    }

    #[test]
    fn every_run_of_a_query_is_looked_at() {
        let runs = |uri: &str| compared(&uri.parse().unwrap()).unwrap();
        assert_eq!(runs("/compare?base=a&head=%62&base=c&x=d&head="), ["a", "b", "c"]);
        assert!(runs("/compare").is_empty());
    }
}
