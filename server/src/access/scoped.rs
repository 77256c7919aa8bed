//! What pages read, narrowed to what their visitor may see. Also if an address should slip through the gate, its page
//! finds nothing of a project that is somebody else's.

use super::Principal;
use crate::{
    accounts::{DEFAULT_PROJECT, Identity, Project, Role, SetUpFor},
    http::AppState,
    store::StoreError,
};
use rankscope_app::{
    AskedLimits, AuditLine, Backend, BackendError, BackendFuture, ComparedReports, IdentityLine, LiveNow, MemberLine,
    NamedSnapshot, ProjectChoice, ProjectLine, Retention, RunProject, SetUp, Settings, SharedView, TokenLine, UserLine,
};
use rankscope_model::{ItemNote, Report, RunStanding, RunSummary, ShareInfo};
use std::{collections::HashMap, sync::Arc};

/// Lines of the record that its page shows.
const AUDIT_LINES: u32 = 500;

/// The pages' seam for one visitor.
pub struct Scoped {
    inner: Arc<dyn Backend>,
    state: AppState,
    who: Principal,
}

impl Scoped {
    /// `inner` as `who` sees it.
    pub fn new(state: AppState, who: Principal) -> Self {
        Self { inner: Arc::clone(&state.backend), state, who }
    }

    async fn may_see(&self, run: &str) -> Result<(), BackendError> {
        let project = self.state.service.store.project_of_run(run).await.map_err(for_pages)?;
        self.who.role_in(&project).map(drop).ok_or(BackendError::NotFound)
    }

    fn is_administrator(&self) -> Result<(), BackendError> {
        if self.who.is_administrator() { Ok(()) } else { Err(BackendError::NotFound) }
    }
}

fn for_pages(error: StoreError) -> BackendError {
    match error {
        StoreError::Missing => BackendError::NotFound,
        error => {
            tracing::error!(%error, "a page could not be filled");
            BackendError::Unavailable
        }
    }
}

fn identity_line(identity: Identity) -> IdentityLine {
    IdentityLine {
        id: identity.id,
        shown: identity.shown,
        subject: identity.subject,
        is_linked: identity.user_id.is_some(),
        seen_at: identity.seen_at,
    }
}

/// The projects in which somebody may add runs.
fn editable(who: &Principal) -> Vec<ProjectChoice> {
    let Principal::User(signed_in) = who else { return Vec::new() };
    let editable = signed_in.memberships.iter().filter(|member| member.role >= Role::Editor);
    editable.map(|member| ProjectChoice { id: member.project.clone(), name: member.name.clone() }).collect()
}

impl Backend for Scoped {
    fn recent_runs(&self, query: Option<String>, limit: u32) -> BackendFuture<'_, Vec<RunSummary>> {
        Box::pin(async move {
            let store = &self.state.service.store;
            store.runs_seen(&self.who.sees(), query.as_deref(), limit).await.map_err(for_pages)
        })
    }

    fn report(&self, run_id: String, version: Option<u32>) -> BackendFuture<'_, Report> {
        Box::pin(async move {
            self.may_see(&run_id).await?;
            self.inner.report(run_id, version).await
        })
    }

    fn shares(&self, run_id: String) -> BackendFuture<'_, Vec<ShareInfo>> {
        Box::pin(async move {
            self.may_see(&run_id).await?;
            self.inner.shares(run_id).await
        })
    }

    fn notes(&self, run_id: String) -> BackendFuture<'_, Vec<ItemNote>> {
        Box::pin(async move {
            self.may_see(&run_id).await?;
            self.inner.notes(run_id).await
        })
    }

    fn after_run(&self, run_id: String) -> BackendFuture<'_, Option<String>> {
        Box::pin(async move {
            self.may_see(&run_id).await?;
            let Some(after) = self.inner.after_run(run_id).await? else { return Ok(None) };
            // It may have been moved to a project that is not this visitor's.
            Ok(self.may_see(&after).await.is_ok().then_some(after))
        })
    }

    fn compared(&self, base: String, head: String) -> BackendFuture<'_, ComparedReports> {
        Box::pin(async move {
            self.may_see(&base).await?;
            self.may_see(&head).await?;
            self.inner.compared(base, head).await
        })
    }

    fn snapshots(&self, run_id: String) -> BackendFuture<'_, Arc<Vec<NamedSnapshot>>> {
        Box::pin(async move {
            self.may_see(&run_id).await?;
            self.inner.snapshots(run_id).await
        })
    }

    fn shared_report(&self, token: String, proof: Option<String>) -> BackendFuture<'_, SharedView> {
        self.inner.shared_report(token, proof)
    }

    fn live(&self) -> BackendFuture<'_, LiveNow> {
        let Some(role) = self.who.role_in(DEFAULT_PROJECT) else {
            return Box::pin(async { Ok(LiveNow::default()) });
        };
        Box::pin(async move {
            let mut now = self.inner.live().await?;
            if role < Role::Editor {
                now.turned_away.clear();
            }
            Ok(now)
        })
    }

    fn goes_on(&self, run_id: String) -> BackendFuture<'_, Option<RunStanding>> {
        Box::pin(async move {
            self.may_see(&run_id).await?;
            self.inner.goes_on(run_id).await
        })
    }

    fn being_read(&self, run_id: String) -> BackendFuture<'_, u64> {
        Box::pin(async move {
            self.may_see(&run_id).await?;
            self.inner.being_read(run_id).await
        })
    }

    fn retention(&self, project_id: String, asked: Option<AskedLimits>) -> BackendFuture<'_, Retention> {
        Box::pin(async move {
            if self.who.role_in(&project_id) != Some(Role::Admin) {
                return Err(BackendError::NotFound);
            }
            self.inner.retention(project_id, asked).await
        })
    }

    fn upload_projects(&self) -> BackendFuture<'_, Vec<ProjectChoice>> {
        Box::pin(async move { Ok(editable(&self.who)) })
    }

    fn run_project(&self, run_id: String) -> BackendFuture<'_, Option<RunProject>> {
        Box::pin(async move {
            let project = self.state.service.store.project_of_run(&run_id).await.map_err(for_pages)?;
            let role = self.who.role_in(&project).ok_or(BackendError::NotFound)?;
            let name = self.state.gate.accounts.project_name(&project).await.map_err(for_pages)?;
            let mut others = if role >= Role::Editor { editable(&self.who) } else { Vec::new() };
            others.retain(|other| other.id != project);
            Ok(Some(RunProject { current: ProjectChoice { id: project, name }, others }))
        })
    }

    fn set_up(&self, token: String) -> BackendFuture<'_, SetUp> {
        Box::pin(async move {
            match self.state.gate.accounts.set_up_for(&token).await.map_err(for_pages)? {
                None => Err(BackendError::NotFound),
                Some(SetUpFor::FirstAdmin) => Ok(SetUp { name: None }),
                Some(SetUpFor::User(user)) => Ok(SetUp { name: Some(user.name) }),
            }
        })
    }

    fn settings(&self) -> BackendFuture<'_, Settings> {
        Box::pin(async move {
            let Principal::User(signed_in) = &self.who else { return Err(BackendError::NotFound) };
            let tokens = self.state.gate.accounts.tokens_of(&signed_in.user.id).await.map_err(for_pages)?;
            let identities = self.state.gate.accounts.identities_of(&signed_in.user.id).await.map_err(for_pages)?;
            let line = |token: crate::accounts::TokenInfo| TokenLine {
                id: token.id,
                name: token.name,
                scopes: token.scopes.iter().map(|scope| scope.slug().to_owned()).collect(),
                project: token.project_name,
                created_at: token.created_at,
                expires_at: token.expires_at,
                revoked_at: token.revoked_at,
                used_at: token.used_at,
            };
            let choice = |member: &crate::accounts::Membership| ProjectChoice {
                id: member.project.clone(),
                name: member.name.clone(),
            };
            Ok(Settings {
                has_password: signed_in.user.has_password,
                tokens: tokens.into_iter().map(line).collect(),
                projects: signed_in.memberships.iter().map(choice).collect(),
                identities: identities.into_iter().map(identity_line).collect(),
            })
        })
    }

    fn users(&self) -> BackendFuture<'_, Vec<UserLine>> {
        Box::pin(async move {
            self.is_administrator()?;
            let users = self.state.gate.accounts.users().await.map_err(for_pages)?;
            let mut identities: HashMap<String, Vec<IdentityLine>> = HashMap::new();
            for identity in self.state.gate.accounts.identities().await.map_err(for_pages)? {
                if let Some(user) = identity.user_id.clone() {
                    identities.entry(user).or_default().push(identity_line(identity));
                }
            }
            let mut line = |user: crate::accounts::User| UserLine {
                identities: identities.remove(&user.id).unwrap_or_default(),
                id: user.id,
                name: user.name,
                is_admin: user.is_admin,
                has_password: user.has_password,
                is_disabled: user.disabled_at.is_some(),
            };
            Ok(users.into_iter().map(&mut line).collect())
        })
    }

    fn waiting(&self) -> BackendFuture<'_, Vec<IdentityLine>> {
        Box::pin(async move {
            self.is_administrator()?;
            let all = self.state.gate.accounts.identities().await.map_err(for_pages)?;
            Ok(all.into_iter().filter(|identity| identity.user_id.is_none()).map(identity_line).collect())
        })
    }

    fn projects(&self) -> BackendFuture<'_, Vec<ProjectLine>> {
        Box::pin(async move {
            let accounts = &self.state.gate.accounts;
            let mut lines = Vec::new();
            for Project { id, name, runs, .. } in accounts.projects().await.map_err(for_pages)? {
                if self.who.role_in(&id) != Some(Role::Admin) {
                    continue;
                }
                let members = accounts.members(&id).await.map_err(for_pages)?;
                let members =
                    members.into_iter().map(|member| MemberLine { name: member.name, role: member.role.slug().into() });
                lines.push(ProjectLine { members: members.collect(), id, name, runs });
            }
            Ok(lines)
        })
    }

    fn audit(&self) -> BackendFuture<'_, Vec<AuditLine>> {
        Box::pin(async move {
            self.is_administrator()?;
            let entries = self.state.gate.accounts.audit(AUDIT_LINES).await.map_err(for_pages)?;
            let line = |entry: crate::accounts::AuditEntry| AuditLine {
                at: entry.created_at,
                who: entry.user_name,
                what: entry.action,
                subject: entry.subject,
                address: entry.address,
            };
            Ok(entries.into_iter().map(line).collect())
        })
    }
}
