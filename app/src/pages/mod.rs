//! Pages: each reads what it shows through the [`crate::Backend`] and hands it to a view.

mod checklist;
mod compare;
mod delete;
mod docs;
mod home;
mod live;
mod login;
mod message;
mod preview;
mod retention;
mod run;
mod set_up;
mod settings;
mod settings_audit;
mod settings_projects;
mod settings_users;
mod shared;
mod snapshots;

pub use checklist::ChecklistPage;
pub use compare::ComparePage;
pub use delete::DeletePage;
pub use docs::DocsPage;
pub use home::HomePage;
pub use live::LivePage;
pub use login::LoginPage;
pub use message::NotFoundPage;
pub use retention::RetentionPage;
pub use run::RunPage;
pub use set_up::SetUpPage;
pub use settings::SettingsPage;
pub use settings_audit::AuditPage;
pub use settings_projects::ProjectsPage;
pub use settings_users::UsersPage;
pub use shared::SharedPage;
pub use snapshots::SnapshotsPage;

use crate::backend::{Backend, BackendError, ComparedReports, RequestFacts, SiteFacts};
use leptos::prelude::*;
use std::sync::Arc;

/// The backend of this request. Absent only while the server asks which routes exist.
fn backend() -> Result<Arc<dyn Backend>, BackendError> {
    use_context::<Arc<dyn Backend>>().ok_or(BackendError::Unavailable)
}

/// A run beside the one after its fix, if one was named.
async fn after(backend: &Arc<dyn Backend>, run: &str) -> Result<Option<ComparedReports>, BackendError> {
    let Some(after) = backend.after_run(run.to_owned()).await? else { return Ok(None) };
    match backend.compared(run.to_owned(), after).await {
        // Deleted between two questions: then there is no proof, but still a page.
        Err(BackendError::NotFound) => Ok(None),
        other => other.map(Some),
    }
}

fn site() -> SiteFacts {
    use_context::<SiteFacts>().unwrap_or(SiteFacts {
        max_file_bytes: 0,
        max_request_bytes: 0,
        prometheus: Vec::new(),
        sign_in: None,
        has_bundle: false,
    })
}

/// Scheme and authority of this request; empty while the server asks which routes exist.
fn base_url() -> String {
    use_context::<RequestFacts>().map(|facts| facts.base_url).unwrap_or_default()
}

/// Puts elements into the document's head now. Left in the view of a page that waits for its data, they would be
/// rendered when the context that collects them is out of reach, and be missing now and then.
fn head(elements: impl IntoView) {
    let _ = elements.into_view().to_html();
}

fn set_status(status: u16) {
    if let Some(facts) = use_context::<RequestFacts>() {
        (facts.set_status)(status);
    }
}
