//! THE table: who may ask for which address, with which method. What is not in it is refused.
//!
//! The first row that fits counts. Tests walk every route and every page, and fail for one without a row.

use super::path::{fits, is_plain};
use crate::accounts::{Role, Scope};
use axum::http::Method;

/// Who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Anybody, without being asked who it is: files of the product itself.
    File,
    /// Anybody.
    Public,
    /// Whoever has the link; the handler looks its secret up.
    Link,
    /// Whoever has signed in.
    SignedIn,
    /// A member of the project of the run `{id}` with this role or more.
    Run(Role),
    /// The same for the run that the share `{id}` shows.
    Share(Role),
    /// The same for both runs that `base` and `head` of the query name; without them whoever has signed in.
    Compared(Role),
    /// A member of the project `{project}` with this role or more.
    Project(Role),
    /// Who has this role or more in any project. The handler decides which.
    AnyProject(Role),
    /// A member of the default project with this role or more: live nodes and their runs belong there.
    Nodes(Role),
    /// A token of the default project, or what the handler knows of senders (`--agent-token-file`).
    Sender,
    /// An administrator of the server.
    Administrator,
}

/// A line of the table.
#[derive(Debug)]
pub struct Row {
    /// `GET` stands for `HEAD` too.
    pub method: Method,
    /// Pattern of the address.
    pub path: &'static str,
    /// Who may.
    pub rule: Rule,
    /// The scope with which a token may too, in its own project. Without one no token may.
    pub scope: Option<Scope>,
}

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;
const OPTIONS: Method = Method::OPTIONS;

const VIEWER: Role = Role::Viewer;
const EDITOR: Role = Role::Editor;
const ADMIN: Role = Role::Admin;

const fn row(method: Method, path: &'static str, rule: Rule) -> Row {
    Row { method, path, rule, scope: None }
}

const fn open_to(scope: Scope, method: Method, path: &'static str, rule: Rule) -> Row {
    Row { method, path, rule, scope: Some(scope) }
}

/// The table.
pub static ROWS: &[Row] = &[
    // What the product is made of, and what operators watch: no names, no runs.
    row(GET, "/style.css", Rule::File),
    row(GET, "/favicon.svg", Rule::File),
    row(GET, "/rankscope_probe.py", Rule::File),
    row(GET, "/robots.txt", Rule::File),
    row(GET, "/pkg/{*file}", Rule::File),
    row(GET, "/docs/images/{*file}", Rule::File),
    row(GET, "/healthz", Rule::File),
    row(GET, "/readyz", Rule::File),
    row(GET, "/metrics", Rule::File),
    row(GET, "/problems/{slug}", Rule::File),
    row(GET, "/api/openapi.json", Rule::File),
    row(GET, "/docs", Rule::Public),
    row(GET, "/docs/{*page}", Rule::Public),
    // Ways in.
    row(GET, "/login", Rule::Public),
    row(POST, "/login", Rule::Public),
    row(GET, "/login/oidc", Rule::Public),
    row(GET, "/login/oidc/callback", Rule::Public),
    row(POST, "/logout", Rule::Public),
    row(GET, "/setup/{token}", Rule::Link),
    row(POST, "/setup/{token}", Rule::Link),
    // Shares.
    row(GET, "/r/{token}", Rule::Link),
    row(GET, "/r/{token}/preview.png", Rule::Link),
    row(GET, "/r/{token}/series", Rule::Link),
    row(GET, "/r/{token}/charts/{chart}", Rule::Link),
    row(GET, "/r/{token}/artifacts/{n}", Rule::Link),
    row(POST, "/r/{token}/unlock", Rule::Link),
    // Pages of runs, and their forms.
    row(GET, "/", Rule::SignedIn),
    row(GET, "/runs", Rule::SignedIn),
    row(POST, "/runs", Rule::AnyProject(EDITOR)),
    row(POST, "/runs/from-prometheus", Rule::AnyProject(EDITOR)),
    row(GET, "/runs/{id}", Rule::Run(VIEWER)),
    row(GET, "/runs/{id}/checklist", Rule::Run(VIEWER)),
    row(GET, "/runs/{id}/checklist/{stage}", Rule::Run(VIEWER)),
    row(GET, "/runs/{id}/snapshots", Rule::Run(VIEWER)),
    row(GET, "/runs/{id}/preview.png", Rule::Run(VIEWER)),
    row(GET, "/runs/{id}/delete", Rule::Run(ADMIN)),
    row(POST, "/runs/{id}/delete", Rule::Run(ADMIN)),
    row(POST, "/runs/{id}/title", Rule::Run(EDITOR)),
    row(POST, "/runs/{id}/read-again", Rule::Run(EDITOR)),
    row(GET, "/compare", Rule::Compared(VIEWER)),
    row(GET, "/live", Rule::Nodes(VIEWER)),
    row(POST, "/live/nodes/remove", Rule::Nodes(EDITOR)),
    row(POST, "/runs/{id}/files", Rule::Run(EDITOR)),
    row(POST, "/runs/{id}/after", Rule::Run(EDITOR)),
    row(POST, "/runs/{id}/after/files", Rule::Run(EDITOR)),
    row(POST, "/runs/{id}/checklist/{item}/notes", Rule::Run(EDITOR)),
    row(POST, "/runs/{id}/shares", Rule::Run(EDITOR)),
    row(POST, "/runs/{id}/shares/{share}/revoke", Rule::Run(EDITOR)),
    row(POST, "/runs/{id}/project", Rule::Run(EDITOR)),
    // One's own account.
    row(GET, "/settings", Rule::SignedIn),
    row(POST, "/settings/password", Rule::SignedIn),
    row(POST, "/settings/tokens", Rule::SignedIn),
    row(POST, "/settings/tokens/{token}/revoke", Rule::SignedIn),
    row(POST, "/settings/identities/{identity}/link", Rule::SignedIn),
    row(POST, "/settings/identities/{identity}/remove", Rule::SignedIn),
    // Everybody's.
    row(GET, "/settings/users", Rule::Administrator),
    row(POST, "/settings/users", Rule::Administrator),
    row(POST, "/settings/users/{user}/link", Rule::Administrator),
    row(POST, "/settings/users/{user}/administrator", Rule::Administrator),
    row(POST, "/settings/users/{user}/disabled", Rule::Administrator),
    row(POST, "/settings/users/identities/{identity}/link", Rule::Administrator),
    row(POST, "/settings/users/identities/{identity}/add", Rule::Administrator),
    row(POST, "/settings/users/identities/{identity}/remove", Rule::Administrator),
    row(GET, "/settings/projects", Rule::AnyProject(ADMIN)),
    row(POST, "/settings/projects", Rule::Administrator),
    row(POST, "/settings/projects/{project}/name", Rule::Project(ADMIN)),
    row(POST, "/settings/projects/{project}/members", Rule::Project(ADMIN)),
    row(GET, "/settings/projects/{project}/retention", Rule::Project(ADMIN)),
    row(POST, "/settings/projects/{project}/retention", Rule::Project(ADMIN)),
    row(POST, "/settings/projects/{project}/remove", Rule::Administrator),
    row(GET, "/settings/audit", Rule::Administrator),
    // The API.
    open_to(Scope::Read, GET, "/api/v1/runs", Rule::SignedIn),
    open_to(Scope::Upload, POST, "/api/v1/runs", Rule::AnyProject(EDITOR)),
    open_to(Scope::Upload, POST, "/api/v1/runs/from-prometheus", Rule::AnyProject(EDITOR)),
    open_to(Scope::Read, GET, "/api/v1/runs/{id}", Rule::Run(VIEWER)),
    row(PATCH, "/api/v1/runs/{id}", Rule::Run(EDITOR)),
    row(DELETE, "/api/v1/runs/{id}", Rule::Run(ADMIN)),
    open_to(Scope::Upload, POST, "/api/v1/runs/{id}/files", Rule::Run(EDITOR)),
    open_to(Scope::Upload, POST, "/api/v1/runs/{id}/read-again", Rule::Run(EDITOR)),
    // Whose file it is, the handler knows: nobody else's is found.
    open_to(Scope::Upload, OPTIONS, "/api/v1/uploads", Rule::AnyProject(EDITOR)),
    open_to(Scope::Upload, POST, "/api/v1/uploads", Rule::AnyProject(EDITOR)),
    open_to(Scope::Upload, GET, "/api/v1/uploads/{upload}", Rule::AnyProject(EDITOR)),
    open_to(Scope::Upload, PATCH, "/api/v1/uploads/{upload}", Rule::AnyProject(EDITOR)),
    open_to(Scope::Upload, DELETE, "/api/v1/uploads/{upload}", Rule::AnyProject(EDITOR)),
    open_to(Scope::Read, GET, "/api/v1/runs/{id}/series", Rule::Run(VIEWER)),
    open_to(Scope::Read, GET, "/api/v1/runs/{id}/artifacts/{n}", Rule::Run(VIEWER)),
    open_to(Scope::Read, GET, "/api/v1/runs/{id}/charts/{chart}", Rule::Run(VIEWER)),
    open_to(Scope::Read, GET, "/api/v1/runs/{id}/snapshots/charts/{chart}", Rule::Run(VIEWER)),
    open_to(Scope::Read, GET, "/api/v1/runs/{id}/report.html", Rule::Run(VIEWER)),
    open_to(Scope::Read, GET, "/api/v1/runs/{id}/report.md", Rule::Run(VIEWER)),
    open_to(Scope::Read, GET, "/api/v1/runs/{id}/report.json", Rule::Run(VIEWER)),
    open_to(Scope::Read, GET, "/api/v1/runs/{id}/checklist/{item}", Rule::Run(VIEWER)),
    row(POST, "/api/v1/runs/{id}/checklist/{item}", Rule::Run(EDITOR)),
    row(POST, "/api/v1/runs/{id}/after", Rule::Run(EDITOR)),
    open_to(Scope::Upload, POST, "/api/v1/runs/{id}/after/files", Rule::Run(EDITOR)),
    open_to(Scope::Read, GET, "/api/v1/compare", Rule::Compared(VIEWER)),
    open_to(Scope::Samples, POST, "/api/v1/samples", Rule::Sender),
    open_to(Scope::Read, GET, "/api/v1/nodes", Rule::Nodes(VIEWER)),
    row(POST, "/api/v1/nodes/remove", Rule::Nodes(EDITOR)),
    open_to(Scope::Read, GET, "/api/v1/live/events", Rule::Nodes(VIEWER)),
    open_to(Scope::Read, GET, "/api/v1/runs/{id}/live", Rule::Run(VIEWER)),
    row(GET, "/api/v1/runs/{id}/shares", Rule::Run(VIEWER)),
    row(POST, "/api/v1/runs/{id}/shares", Rule::Run(EDITOR)),
    row(DELETE, "/api/v1/shares/{id}", Rule::Share(EDITOR)),
];

/// The row of a request. `None`: nobody may.
pub fn find(method: &Method, path: &str) -> Option<&'static Row> {
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    if !is_plain(path) {
        return None;
    }
    ROWS.iter().find(|row| row.method == *method && fits(row.path, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_the_table_is_for_nobody() {
        for (method, path) in [
            (Method::GET, "/data"),
            (Method::GET, "/setup"),
            (Method::PUT, "/runs/1"),
            (Method::OPTIONS, "/runs/1"),
            (Method::TRACE, "/"),
            (Method::POST, "/docs"),
            (Method::GET, "/docs/../runs/1"),
            (Method::GET, "/pkg/../../runs/1"),
            (Method::GET, "/settings/users/1/link"),
            (Method::GET, "/api/v1/runs/1/"),
        ] {
            assert!(find(&method, path).is_none(), "{method} {path}");
        }
        assert_eq!(find(&Method::HEAD, "/runs/1").unwrap().rule, Rule::Run(Role::Viewer));
    }

    #[test]
    fn no_row_is_written_twice_and_rows_that_name_something_ask_for_it() {
        for (position, row) in ROWS.iter().enumerate() {
            let twice = ROWS[..position].iter().any(|other| other.method == row.method && other.path == row.path);
            assert!(!twice, "{} {}", row.method, row.path);
            let names_run = row.path.contains("/runs/{id}");
            assert_eq!(names_run, matches!(row.rule, Rule::Run(_)), "{}", row.path);
            let asks_for_it = matches!(row.rule, Rule::Project(_) | Rule::Administrator);
            assert!(asks_for_it || !row.path.contains("{project}"), "{}", row.path);
            let changes = row.method != Method::GET;
            if changes {
                let reads = matches!(row.rule, Rule::File | Rule::Run(Role::Viewer) | Rule::AnyProject(Role::Viewer));
                assert!(!reads, "{} {} changes something and asks for no more than reading", row.method, row.path);
            }
            match row.scope {
                Some(Scope::Read) => assert!(!changes, "{}", row.path),
                Some(Scope::Upload) if row.path.starts_with("/api/v1/uploads") => {}
                Some(Scope::Upload | Scope::Samples) => assert_eq!(row.method, Method::POST, "{}", row.path),
                None => {}
            }
            assert!(row.scope.is_none() || row.path.starts_with("/api/"), "tokens are for programs: {}", row.path);
        }
    }
}
