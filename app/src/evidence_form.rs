//! The form that takes files and pasted text, for a new run and for more evidence. Works without JavaScript; the
//! upload island adds drag and drop feedback, limits checked beforehand and progress.

use crate::accounts::{ProjectChoice, may_edit};
use crate::islands::Upload;
use crate::words;
use leptos::attr::custom::custom_attribute;
use leptos::prelude::*;
use rankscope_model::Bytes;

/// Where the form goes and how large it is.
pub struct EvidenceForm {
    /// Address of the plain form.
    pub action: String,
    /// Address of the same in the API, for the island.
    pub api: String,
    /// Where the visitor is to be afterwards, if not where the answer leads.
    pub back: Option<String>,
    /// The button's words.
    pub button: &'static str,
    /// Start of the elements' ids; unique in the page.
    pub id: &'static str,
    /// Asks for a title, and shows the large drop area.
    pub new_run: bool,
    /// Where a new run can belong; with fewer than two there is nothing to choose.
    pub projects: Vec<ProjectChoice>,
    /// Largest accepted file in bytes.
    pub max_file_bytes: u64,
    /// Largest accepted request in bytes.
    pub max_request_bytes: u64,
}

/// For those who do not drag: a field that takes a folder with all that is in it.
fn folder_field(id: &str) -> impl IntoView + use<> {
    let id = format!("{id}-folder");
    // An attribute that the standard leaves to the browsers, all of which have it.
    let field =
        view! { <input type="file" id=id.clone() name="files"/> }.add_any_attr(custom_attribute("webkitdirectory", ""));
    view! {
        <div class="folder">
            <label for=id>"Or a whole folder"</label>
            {field}
        </div>
    }
}

/// The form, inside its island.
pub fn evidence_form(form: EvidenceForm) -> AnyView {
    let EvidenceForm { action, api, back, button, id, new_run, projects, max_file_bytes, max_request_bytes } = form;
    if !may_edit() {
        return view! { <p class="dim">"You may read here. Files are added by editors of the project."</p> }.into_any();
    }
    let project_id = format!("{id}-project");
    let project = (projects.len() > 1).then(|| {
        let option = |project: &ProjectChoice| {
            view! { <option value=project.id.clone()>{words::shown_line(&project.name)}</option> }
        };
        view! {
            <div class="field">
                <label for=project_id.clone()>"Project"</label>
                <select id=project_id.clone() name="project">{projects.iter().map(option).collect_view()}</select>
            </div>
        }
    });
    let (files_id, text_id, title_id, hint_id) =
        (format!("{id}-files"), format!("{id}-text"), format!("{id}-title"), format!("{id}-limits"));
    let drop_words = if new_run { "Drop files or a folder here, or choose files" } else { "Drop the new files here" };
    let paste_words = if new_run { "Or paste text" } else { "Or paste its output" };
    let placeholder =
        if new_run { "nvidia-smi table, out-of-memory message, log lines with memory figures" } else { "Paste here" };
    view! {
        <Upload>
            <form
                class="evidence"
                class:compact=!new_run
                method="post"
                action=action
                enctype="multipart/form-data"
                data-api=api
                data-back=back
                data-max-file=max_file_bytes.to_string()
                data-max-request=max_request_bytes.to_string()
            >
                <div class="drop">
                    <input type="file" id=files_id.clone() name="files" multiple aria-describedby=hint_id.clone()/>
                    <label for=files_id>
                        <strong>{drop_words}</strong>
                        {new_run.then(|| view! { <span>"Logs, snapshots, scripts, pastes; also .gz, .zst, .zip, .tar.gz"</span> })}
                    </label>
                </div>
                {new_run.then(|| folder_field(id))}
                <ul class="picked" aria-label="Chosen files"></ul>
                <div class="field">
                    <label for=text_id.clone()>{paste_words}</label>
                    <textarea
                        id=text_id
                        name="text"
                        rows=if new_run { "5" } else { "2" }
                        placeholder=placeholder
                        spellcheck="false"
                        autocomplete="off"
                    ></textarea>
                </div>
                {project}
                <div class="send">
                    {new_run
                        .then(|| {
                            view! {
                                <div class="field">
                                    <label for=title_id.clone()>"Title " <span class="optional">"optional"</span></label>
                                    <input id=title_id type="text" name="title" maxlength="200" placeholder="made from the files" autocomplete="off"/>
                                </div>
                            }
                        })}
                    <button type="submit" class="button primary">{button}</button>
                </div>
                <p class="limits" id=hint_id>
                    {format!(
                        "Up to {} a file, {} together. Files are kept as they are and never run.",
                        Bytes(max_file_bytes),
                        Bytes(max_request_bytes),
                    )}
                </p>
            </form>
        </Upload>
    }
    .into_any()
}
