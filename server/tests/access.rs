//! The table of access: every route and every page has a row, and every row is enforced for everybody.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

mod common;

use axum::{
    body::Body,
    http::{Method, header},
};
use common::{
    Answer,
    team::{Caller, Team, from},
};
use rankscope::{
    access::{ROWS, Row, Rule, find},
    accounts::{Role, Scope, User},
};
use std::{collections::HashMap, net::Ipv4Addr, path::Path, time::Duration};

/// A concrete address for a pattern, with plain text in its holes.
fn filled(pattern: &str) -> String {
    let parts = pattern.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

fn has_row(method: &Method, pattern: &str) {
    assert!(find(method, &filled(pattern)).is_some(), "no row of the table for {method} {pattern}");
}

#[tokio::test]
async fn every_route_of_the_api_has_a_row() {
    let server = common::Server::start().await;
    let description = server.get("/api/openapi.json").await.expect(200).json();
    let mut routes = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            has_row(&method, &format!("/api/v1{path}"));
            routes += 1;
        }
    }
    assert!(routes > 15, "{routes}");
}

#[test]
fn every_other_route_has_a_row() {
    let source = include_str!("../src/http/mod.rs");
    let mut routes = 0;
    for line in source.lines() {
        let Some((path, handlers)) = line.split_once(".route(\"").and_then(|(_, rest)| rest.split_once("\",")) else {
            continue;
        };
        for method in ["get", "post", "put", "patch", "delete"] {
            if handlers.contains(&format!(" {method}(")) || handlers.contains(&format!(".{method}(")) {
                has_row(&method.to_uppercase().parse().unwrap(), path);
                routes += 1;
            }
        }
    }
    assert!(routes > 25, "{routes}");
}

#[tokio::test]
async fn every_page_has_a_row() {
    let _ = any_spawner::Executor::init_tokio();
    let pages = leptos_axum::generate_route_list(rankscope_app::App);
    assert!(pages.len() > 10, "{}", pages.len());
    for page in pages {
        has_row(&Method::GET, page.path());
    }
}

#[test]
fn every_file_of_the_product_has_a_row() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (folder, address) in [("public", ""), ("style", ""), ("docs/images", "/docs/images")] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = format!("{address}/{}", entry.unwrap().file_name().to_string_lossy());
            assert_eq!(find(&Method::GET, &path).map(|row| row.rule), Some(Rule::File), "{path}");
        }
    }
}

/// Everybody who may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Nobody,
    ExpiredSession,
    IdleSession,
    RevokedToken,
    SamplesToken,
    UploadToken,
    ReadToken,
    /// A token of the other project, with every scope.
    OtherToken,
    /// An editor of the other project.
    OtherMember,
    Viewer,
    Editor,
    ProjectAdmin,
    Administrator,
}

const KINDS: [Kind; 13] = [
    Kind::Nobody,
    Kind::ExpiredSession,
    Kind::IdleSession,
    Kind::RevokedToken,
    Kind::SamplesToken,
    Kind::UploadToken,
    Kind::ReadToken,
    Kind::OtherToken,
    Kind::OtherMember,
    Kind::Viewer,
    Kind::Editor,
    Kind::ProjectAdmin,
    Kind::Administrator,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Allowed,
    SignIn,
    NotAllowed,
    NotFound,
}

/// What each gets, said once more and differently from how the gate does it.
fn expected(row: &Row, kind: Kind) -> Expected {
    use Expected::{Allowed, NotAllowed, NotFound, SignIn};
    if matches!(row.rule, Rule::File | Rule::Public | Rule::Link) {
        return Allowed;
    }
    if row.rule == Rule::Sender {
        // Who shows no token of ours may show the server's own: the handler asks. Of ours those of the default project count.
        return match kind {
            Kind::Nobody | Kind::ExpiredSession | Kind::IdleSession | Kind::RevokedToken => Allowed,
            Kind::SamplesToken | Kind::OtherToken => NotFound,
            _ => NotAllowed,
        };
    }
    let (least, somewhere) = match row.rule {
        Rule::Run(role) | Rule::Share(role) | Rule::Compared(role) | Rule::Project(role) => (Some(role), false),
        Rule::AnyProject(role) => (Some(role), true),
        _ => (None, false),
    };
    if matches!(row.rule, Rule::Nodes(_)) {
        // All of them are members of other projects than the default one.
        return match kind {
            Kind::Nobody | Kind::ExpiredSession | Kind::IdleSession | Kind::RevokedToken => SignIn,
            Kind::SamplesToken | Kind::UploadToken => NotAllowed,
            Kind::ReadToken | Kind::OtherToken if row.scope.is_none() => NotAllowed,
            Kind::Administrator => Allowed,
            _ => NotFound,
        };
    }
    let as_role = |own: Role| match (row.rule, least) {
        (Rule::Administrator, _) => NotAllowed,
        (_, Some(least)) if own < least => NotAllowed,
        _ => Allowed,
    };
    match kind {
        Kind::Nobody | Kind::ExpiredSession | Kind::IdleSession | Kind::RevokedToken => SignIn,
        Kind::SamplesToken if row.scope == Some(Scope::Samples) => Allowed,
        Kind::UploadToken if row.scope == Some(Scope::Upload) => Allowed,
        Kind::ReadToken if row.scope == Some(Scope::Read) => Allowed,
        Kind::SamplesToken | Kind::UploadToken | Kind::ReadToken => NotAllowed,
        Kind::OtherToken if row.scope.is_none() => NotAllowed,
        Kind::OtherToken | Kind::OtherMember if least.is_some() && !somewhere => NotFound,
        Kind::OtherMember | Kind::Editor => as_role(Role::Editor),
        Kind::Viewer => as_role(Role::Viewer),
        Kind::ProjectAdmin => as_role(Role::Admin),
        Kind::OtherToken | Kind::Administrator => Allowed,
    }
}

struct People {
    viewer: User,
    editor: User,
    admin: User,
    other: User,
    root: User,
    /// Tokens last, so each is made once.
    tokens: HashMap<Kind, Caller>,
}

/// The tokens of all kinds.
async fn tokens(team: &Team, admin: &User, other: &User) -> HashMap<Kind, Caller> {
    let accounts = &team.gate.accounts;
    let revoked = team.token(admin, &team.project, &Scope::ALL).await;
    let newest = accounts.tokens_of(&admin.id).await.unwrap().remove(0);
    accounts.revoke_token(&newest.id, &admin.id).await.unwrap();
    HashMap::from([
        (Kind::RevokedToken, revoked),
        (Kind::SamplesToken, team.token(admin, &team.project, &[Scope::Samples]).await),
        (Kind::UploadToken, team.token(admin, &team.project, &[Scope::Upload]).await),
        (Kind::ReadToken, team.token(admin, &team.project, &[Scope::Read]).await),
        (Kind::OtherToken, team.token(other, &team.other, &Scope::ALL).await),
    ])
}

async fn caller(team: &Team, people: &People, kind: Kind) -> Caller {
    let accounts = &team.gate.accounts;
    // Sessions anew for each request: some of them end theirs.
    match kind {
        token if people.tokens.contains_key(&token) => people.tokens[&token].clone(),
        Kind::Nobody => Caller::Nobody,
        Kind::ExpiredSession | Kind::IdleSession => {
            let session = team.session(&people.admin).await;
            let by = if kind == Kind::IdleSession { rankscope::accounts::IDLE } else { rankscope::accounts::LONGEST };
            accounts.age_sessions(&people.admin.id, by + Duration::from_secs(1)).await.unwrap();
            session
        }
        Kind::OtherMember => team.session(&people.other).await,
        Kind::Viewer => team.session(&people.viewer).await,
        Kind::Editor => team.session(&people.editor).await,
        Kind::ProjectAdmin => team.session(&people.admin).await,
        Kind::Administrator => team.session(&people.root).await,
        token => panic!("no token {token:?}"),
    }
}

fn what_came(answer: &Answer) -> Expected {
    let location = answer.headers.get(header::LOCATION).map_or("", |to| to.to_str().unwrap());
    match answer.status.as_u16() {
        401 => Expected::SignIn,
        303 if location.starts_with("/login?") || location == "/login" => Expected::SignIn,
        403 => Expected::NotAllowed,
        404 if answer.text().contains("No run, report, file or share has this address.") => Expected::NotFound,
        _ => Expected::Allowed,
    }
}

#[tokio::test]
async fn the_table_is_enforced_for_everybody() {
    let team = Team::start().await;
    let admin = team.user("padmin", false, &[(&team.project, Role::Admin)]).await;
    let other = team.user("other", false, &[(&team.other, Role::Editor)]).await;
    let people = People {
        viewer: team.user("viewer", false, &[(&team.project, Role::Viewer)]).await,
        editor: team.user("editor", false, &[(&team.project, Role::Editor)]).await,
        tokens: tokens(&team, &admin, &other).await,
        admin,
        other,
        root: team.gate.accounts.user_by_name(&"root".parse().unwrap()).await.unwrap(),
    };
    let mut checked = 0_u32;
    for row in ROWS {
        for kind in KINDS {
            // What a row ends for good is made for it alone.
            let root = team.session(&people.root).await;
            let run = if row.method == Method::DELETE || row.path == "/runs/{id}/delete" {
                team.upload(&root, &team.project, "to delete").await
            } else {
                team.run.clone()
            };
            let share = team.server.service.store.create_share(&run, None, None).await.unwrap().info.id;
            let path = row
                .path
                .replace("/shares/{id}", &format!("/shares/{share}"))
                .replace("{id}", &run)
                .replace("{share}", &share)
                .replace("{project}", &team.project)
                .replace("{user}", &people.viewer.id)
                .replace("{item}", "device_visibility")
                .replace("{stage}", "environment")
                .replace("{chart}", "imbalance.svg")
                .replace("{n}", "0")
                .replace("{token}", "guess")
                .replace("{identity}", "none")
                .replace("{upload}", "none")
                .replace("{slug}", "not-found")
                .replace("{*file}", "nothing.png")
                .replace("{*page}", "security");
            let path = match row.rule {
                Rule::Compared(_) => format!("{path}?base={run}&head={run}"),
                _ => path,
            };
            let caller = caller(&team, &people, kind).await;
            let request = Team::by(&caller, row.method.clone(), &path);
            // Each from an address of its own, so that no limit on tries speaks before the table does.
            let address = Ipv4Addr::from_bits(0x0a00_0000 + checked);
            let answer = team.server.send(from(request.body(Body::empty()).unwrap(), &address.to_string())).await;
            let (came, expected) = (what_came(&answer), expected(row, kind));
            // These handlers look a secret, a password or an entry up themselves, and say so in the same words.
            let looks_up = matches!(row.rule, Rule::Link | Rule::File)
                || ["/login", "/logout", "/login/oidc", "/login/oidc/callback"].contains(&row.path);
            let looks_up =
                looks_up || ["/settings/tokens/{token}/revoke", "/api/v1/uploads/{upload}"].contains(&row.path);
            if expected == Expected::Allowed && looks_up {
                assert_ne!(came, Expected::NotAllowed, "{} {path} for {kind:?}", row.method);
            } else {
                assert_eq!(came, expected, "{} {path} for {kind:?}: {} {}", row.method, answer.status, answer.text());
            }
            checked += 1;
        }
    }
    assert!(checked > 900, "{checked}");
    // And nothing of it has changed anything for the other project.
    assert_eq!(team.server.service.store.project_of_run(&team.other_run).await.unwrap(), team.other);
}

#[tokio::test]
async fn the_table_itself_says_what_was_meant() {
    let rule = |method: Method, path: &str| find(&method, path).map(|row| row.rule);
    assert_eq!(rule(Method::DELETE, "/api/v1/runs/1"), Some(Rule::Run(Role::Admin)));
    assert_eq!(rule(Method::POST, "/runs/1/shares"), Some(Rule::Run(Role::Editor)));
    assert_eq!(rule(Method::GET, "/api/v1/runs/1/artifacts/0"), Some(Rule::Run(Role::Viewer)));
    assert_eq!(rule(Method::POST, "/settings/projects/1/members"), Some(Rule::Project(Role::Admin)));
    assert_eq!(rule(Method::GET, "/settings/audit"), Some(Rule::Administrator));
    assert_eq!(rule(Method::POST, "/live/nodes/remove"), Some(Rule::Nodes(Role::Editor)));
    assert_eq!(rule(Method::POST, "/api/v1/nodes/remove"), Some(Rule::Nodes(Role::Editor)));
    let open: Vec<&str> = ROWS
        .iter()
        .filter(|row| matches!(row.rule, Rule::File | Rule::Public | Rule::Link))
        .map(|row| row.path)
        .collect();
    assert_eq!(
        open,
        [
            "/style.css",
            "/favicon.svg",
            "/rankscope_probe.py",
            "/robots.txt",
            "/pkg/{*file}",
            "/docs/images/{*file}",
            "/healthz",
            "/readyz",
            "/metrics",
            "/problems/{slug}",
            "/api/openapi.json",
            "/docs",
            "/docs/{*page}",
            "/login",
            "/login",
            "/login/oidc",
            "/login/oidc/callback",
            "/logout",
            "/setup/{token}",
            "/setup/{token}",
            "/r/{token}",
            "/r/{token}/preview.png",
            "/r/{token}/series",
            "/r/{token}/charts/{chart}",
            "/r/{token}/artifacts/{n}",
            "/r/{token}/unlock",
        ],
        "what anybody may see is listed here by hand, so that nothing joins it by accident"
    );
}

#[tokio::test]
async fn what_is_in_no_row_is_refused_for_everybody() {
    let team = Team::start().await;
    let root = team.gate.accounts.user_by_name(&"root".parse().unwrap()).await.unwrap();
    let root = team.session(&root).await;
    let title = "our run";
    for path in [
        format!("/docs/../runs/{}", team.run),
        format!("/docs/%2e%2e/runs/{}", team.run),
        format!("/docs/..%2fruns/{}", team.run),
        format!("/pkg/../runs/{}", team.run),
        format!("//runs/{}", team.run),
        format!("/runs/./{}", team.run),
        format!("/runs/{}/", team.run),
        "/api/v1/nothing".to_owned(),
        "/nothing".to_owned(),
    ] {
        let nobody = team.get(&Caller::Nobody, &path).await;
        assert_eq!(what_came(&nobody), Expected::SignIn, "{path}: {}", nobody.status);
        assert!(!nobody.text().contains(title), "{path}");
        assert_eq!(team.get(&root, &path).await.status, 404, "{path}");
    }
    let put = Team::by(&root, Method::PUT, &format!("/api/v1/runs/{}", team.run)).body(Body::empty()).unwrap();
    assert_eq!(team.server.send(put).await.status, 404);
}
