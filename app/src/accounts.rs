//! What pages are told of accounts: who visits, and the lines of the settings. The server decides what anybody may do;
//! this only says what there is to show.

use leptos::prelude::use_context;
use rankscope_model::UnixMicros;

/// Who visits. Provided through context where there are accounts; without it the server is its owner's alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Visitor {
    /// The name; `None` for who has not signed in.
    pub name: Option<String>,
    /// May do everything.
    pub is_admin: bool,
    /// Decides in some project who is a member.
    pub manages_projects: bool,
    /// What the visitor may do to what this page shows.
    pub may: May,
    /// Has a session that can be ended.
    pub may_sign_out: bool,
    /// What was made just now, at the only moment at which it can be shown.
    pub shown_once: Option<ShownOnce>,
}

/// What somebody may do to what a page shows. Ordered: each includes the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum May {
    /// Look at it.
    #[default]
    Read,
    /// Change it.
    Edit,
    /// End it.
    Delete,
}

/// A secret at the only moment at which it can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownOnce {
    /// A token for agents and scripts.
    Token(String),
    /// The whole address with which somebody chooses a password.
    Link(String),
}

/// Why a form was not taken; shown above it. Provided through context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said(pub String);

/// A project to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectChoice {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// Where a run belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunProject {
    /// Its project.
    pub current: ProjectChoice,
    /// The projects to which this visitor may move it.
    pub others: Vec<ProjectChoice>,
}

/// For whom a set-up link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetUp {
    /// The user; `None` for the first administrator, who chooses a name.
    pub name: Option<String>,
}

/// A visitor's own settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// There is a password to change.
    pub has_password: bool,
    /// Newest first.
    pub tokens: Vec<TokenLine>,
    /// In which tokens can work.
    pub projects: Vec<ProjectChoice>,
    /// What opens the account, and what may.
    pub identities: Vec<IdentityLine>,
}

/// Somebody as a provider of sign-ins knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityLine {
    /// For linking and forgetting.
    pub id: String,
    /// What the provider calls this person.
    pub shown: String,
    /// The provider's own name for this person, which never changes.
    pub subject: String,
    /// Opens the account; else it waits for somebody to say so.
    pub is_linked: bool,
    /// When it was shown last.
    pub seen_at: UnixMicros,
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenLine {
    /// For revoking.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// Slugs.
    pub scopes: Vec<String>,
    /// Name of its project.
    pub project: String,
    /// When it was made.
    pub created_at: UnixMicros,
    /// When it ends by itself.
    pub expires_at: Option<UnixMicros>,
    /// When it was revoked.
    pub revoked_at: Option<UnixMicros>,
    /// When it was used last.
    pub used_at: Option<UnixMicros>,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserLine {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// May do everything.
    pub is_admin: bool,
    /// Has chosen a password.
    pub has_password: bool,
    /// Cannot sign in.
    pub is_disabled: bool,
    /// What opens this account beside a password.
    pub identities: Vec<IdentityLine>,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectLine {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its runs.
    pub runs: u64,
    /// Its members by name.
    pub members: Vec<MemberLine>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberLine {
    /// Name of the user.
    pub name: String,
    /// Slug.
    pub role: String,
}

/// A line of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// When.
    pub at: UnixMicros,
    /// Who.
    pub who: String,
    /// Did what.
    pub what: String,
    /// To what.
    pub subject: String,
    /// From where.
    pub address: String,
}

/// Whether forms that change what the page shows have a point.
pub fn may_edit() -> bool {
    use_context::<Visitor>().is_none_or(|visitor| visitor.may >= May::Edit)
}

/// Whether there is a point in offering the end of what the page shows.
pub fn may_delete() -> bool {
    use_context::<Visitor>().is_none_or(|visitor| visitor.may >= May::Delete)
}
