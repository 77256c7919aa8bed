//! `/settings/projects`: projects and their members, for those who decide.

use super::backend;
use super::message::{Sought, message};
use super::settings::frame;
use crate::accounts::{MemberLine, ProjectLine, Visitor};
use crate::backend::BackendError;
use crate::words;
use leptos::prelude::*;

/// What a member can be: slug, and what that means.
const ROLES: [(&str, &str); 3] =
    [("viewer", "viewer: reads"), ("editor", "editor: uploads, notes, shares"), ("admin", "admin: deletes, decides")];

/// The projects in which this visitor decides.
#[component]
pub fn ProjectsPage() -> impl IntoView {
    Suspend::new(async move {
        match load().await {
            Ok(projects) => page(&projects),
            Err(error) => message(&error, Sought::Page),
        }
    })
}

async fn load() -> Result<Vec<ProjectLine>, BackendError> {
    backend()?.projects().await
}

fn page(projects: &[ProjectLine]) -> AnyView {
    let is_admin = use_context::<Visitor>().is_some_and(|visitor| visitor.is_admin);
    let add = is_admin.then(|| {
        view! {
            <section class="card" aria-labelledby="add-title">
                <h2 id="add-title">"Add a project" <span>"groups runs; its members see them"</span></h2>
                <form class="inline" method="post" action="/settings/projects">
                    <div class="field">
                        <label for="name">"Name"</label>
                        <input id="name" type="text" name="name" maxlength="80" required autocomplete="off"/>
                    </div>
                    <button type="submit" class="button">"Add"</button>
                </form>
            </section>
        }
    });
    let projects = projects.iter().map(|line| project(line, is_admin)).collect_view();
    frame("Projects", "/settings/projects", view! { {add}{projects} }.into_any())
}

fn project(line: &ProjectLine, is_admin: bool) -> AnyView {
    let address = format!("/settings/projects/{}", line.id);
    let members = (!line.members.is_empty()).then(|| {
        view! { <ul class="shares">{line.members.iter().map(|found| member(found, &address)).collect_view()}</ul> }
    });
    let roles = ROLES.iter().map(|&(slug, what)| view! { <option value=slug>{what}</option> }).collect_view();
    let runs = words::count(usize::try_from(line.runs).unwrap_or(usize::MAX), "run");
    let (name_id, user_id, role_id) =
        (format!("name-{}", line.id), format!("user-{}", line.id), format!("role-{}", line.id));
    let remove = (is_admin && line.runs == 0 && line.id != "default").then(|| {
        view! {
            <form method="post" action=format!("{address}/remove")>
                <button type="submit" class="button small">"Remove this empty project"</button>
            </form>
        }
    });
    view! {
        <section class="card fields">
            <h2><bdi>{words::shown_line(&line.name)}</bdi> <span>{runs}</span></h2>
            {members}
            <form class="inline" method="post" action=format!("{address}/members")>
                <div class="field">
                    <label for=user_id.clone()>"User"</label>
                    <input id=user_id type="text" name="name" maxlength="64" required autocomplete="off" autocapitalize="none" spellcheck="false"/>
                </div>
                <div class="field">
                    <label for=role_id.clone()>"Role"</label>
                    <select id=role_id name="role">{roles}</select>
                </div>
                <button type="submit" class="button">"Set"</button>
            </form>
            <form class="inline" method="post" action=format!("{address}/name")>
                <div class="field">
                    <label for=name_id.clone()>"Name"</label>
                    <input id=name_id type="text" name="name" maxlength="80" required value=line.name.clone() autocomplete="off"/>
                </div>
                <button type="submit" class="button">"Rename"</button>
            </form>
            <p><a href=format!("{address}/retention")>"How long its runs are kept"</a></p>
            {remove}
        </section>
    }
    .into_any()
}

fn member(found: &MemberLine, address: &str) -> AnyView {
    view! {
        <li>
            <span><strong>{found.name.clone()}</strong> " " {found.role.clone()}</span>
            <form method="post" action=format!("{address}/members")>
                <input type="hidden" name="name" value=found.name.clone()/>
                <input type="hidden" name="role" value=""/>
                <button type="submit" class="button small">"Remove"</button>
            </form>
        </li>
    }
    .into_any()
}
