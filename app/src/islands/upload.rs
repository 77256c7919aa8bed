//! Sending files and text: drop feedback, limits checked beforehand, progress, and what each file was taken for.

use crate::words;
use leptos::html::Div;
use leptos::prelude::*;

/// Where a sending stands.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(not(feature = "hydrate"), allow(dead_code))] // on the server an island is always idle
enum State {
    #[default]
    Idle,
    /// Bytes sent of all bytes.
    Sending {
        /// Sent so far.
        sent: f64,
        /// All.
        total: f64,
    },
    /// All is sent; the server reads and diagnoses.
    Reading,
    /// Files were understood, some with warnings: the visitor sees them before going on.
    Done {
        /// One line per file.
        files: Vec<TakenFile>,
        /// The report, or the place in the wizard that sent the files.
        url: String,
        /// The words of the way there.
        way: &'static str,
    },
    /// Why not.
    Failed(String),
}

/// What a file was taken for.
#[derive(Debug, Clone, PartialEq)]
struct TakenFile {
    name: String,
    kind: &'static str,
    speaks_of: String,
    warnings: Vec<String>,
}

/// Files that are listed at once after a sending, and warnings of one file; what is more is folded.
const FIRST_FILES: usize = 4;
const FIRST_WARNINGS: usize = 2;

/// Wraps a form that takes evidence.
#[island]
pub fn Upload(children: Children) -> impl IntoView {
    let root = NodeRef::<Div>::new();
    let state = RwSignal::new(State::default());
    #[cfg(feature = "hydrate")]
    Effect::new(move |_| {
        if let Some(root) = root.get() {
            browser::wire(&root, state);
        }
    });
    view! {
        <div class="upload" node_ref=root>
            {children()}
            <div class="upload-live">
                <p class="said" class:quiet=move || state.with(|state| *state == State::Idle) role="status">{move || state.with(said)}</p>
                {move || state.with(details)}
            </div>
        </div>
    }
}

/// What is announced: once per change of state, not once per per cent.
fn said(state: &State) -> String {
    match state {
        State::Idle => String::new(),
        State::Sending { .. } => "Sending".to_owned(),
        State::Reading => "Sent. Reading the files and lining up the ranks".to_owned(),
        State::Done { files, .. } => {
            let warned = files.iter().filter(|file| !file.warnings.is_empty()).count();
            if warned == 0 {
                "Read. Opening the report".to_owned()
            } else {
                format!("Read. {} of {} carry a warning", warned, words::count(files.len(), "file"))
            }
        }
        State::Failed(why) => why.clone(),
    }
}

fn details(state: &State) -> AnyView {
    match state {
        State::Idle | State::Failed(_) => ().into_any(),
        State::Sending { sent, total } => {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a hundred")]
            let percent = if *total > 0.0 { (sent / total * 100.0) as u8 } else { 0 };
            view! {
                <div class="progress">
                    <progress max="100" value=percent aria-label="Sent"></progress>
                    <span aria-hidden="true">{format!("{percent} %")}</span>
                </div>
            }
            .into_any()
        }
        State::Reading => view! { <div class="progress"><progress aria-label="Reading"></progress></div> }.into_any(),
        State::Done { files, url, way } => view! {
            // First of all, so that nobody has to look for it below a long list.
            <a class="button primary" href=url.clone()>{*way}</a>
            {list(files)}
        }
        .into_any(),
    }
}

/// What each file was taken for; those with a warning first.
fn list(files: &[TakenFile]) -> AnyView {
    let (warned, clean): (Vec<&TakenFile>, Vec<&TakenFile>) = files.iter().partition(|file| !file.warnings.is_empty());
    let warned_later = warned.len().saturating_sub(FIRST_FILES);
    let all: Vec<&TakenFile> = warned.into_iter().chain(clean).collect();
    let (first, rest) = all.split_at(all.len().min(FIRST_FILES));
    let more = words::count(rest.len(), "more file");
    let word = match warned_later {
        0 => format!("and {more} without a warning"),
        n if n == rest.len() => format!("and {more} with a warning"),
        n => format!("and {more}, {n} with a warning"),
    };
    let folded = (!rest.is_empty()).then(|| fold(word, listed(rest)));
    view! { {listed(first)}{folded} }.into_any()
}

// Views of one shape are made in one place: each shape is code of its own in the bundle.
fn fold(word: String, inside: AnyView) -> AnyView {
    view! { <details class="exact"><summary>{word}</summary>{inside}</details> }.into_any()
}

fn listed(files: &[&TakenFile]) -> AnyView {
    let lines: Vec<AnyView> = files.iter().map(|file| taken(file)).collect();
    view! { <ul class="taken">{lines}</ul> }.into_any()
}

fn warnings(all: &[String]) -> AnyView {
    let lines: Vec<AnyView> =
        all.iter().map(|warning| view! { <p class="warning">{words::shown(warning)}</p> }.into_any()).collect();
    lines.into_any()
}

fn taken(file: &TakenFile) -> AnyView {
    let (first, rest) = file.warnings.split_at(file.warnings.len().min(FIRST_WARNINGS));
    let folded =
        (!rest.is_empty()).then(|| fold(format!("and {}", words::count(rest.len(), "more warning")), warnings(rest)));
    view! {
        <li>
            <strong><bdi>{words::shown_line(&file.name)}</bdi></strong>
            " "
            <span class="kind">{file.kind}</span>
            " "
            <span class="dim">{file.speaks_of.clone()}</span>
            {warnings(first)}
            {folded}
        </li>
    }
    .into_any()
}

#[cfg(feature = "hydrate")]
mod browser {
    use super::{State, TakenFile};
    use crate::islands::dom;
    use crate::islands::folders::{self, Found};
    use crate::words;
    use leptos::prelude::*;
    use rankscope_model::{ArtifactKind, Bytes};
    use std::cell::RefCell;
    use std::rc::Rc;
    use wasm_bindgen::JsValue;
    use web_sys::{
        ClipboardEvent, DragEvent, Event, FileList, FormData, HtmlElement, HtmlFormElement, HtmlInputElement,
        HtmlSelectElement, HtmlTextAreaElement, ProgressEvent,
    };

    /// A request that was never answered.
    const NOT_SENT: &str = "Nothing was kept: the server could not be reached, or a file changed while it was read, as a log \
                            does that is still written to. Choose the files again, or send a copy.";

    /// The runs below the form, where the page has them.
    const RUNS: &str = "#runs";

    /// Files of a folder that come within this are shown in one change of the page.
    const SHOWN_TOGETHER_MS: u32 = 100;

    /// The form's parts and the files chosen so far.
    #[derive(Clone)]
    struct Evidence {
        form: HtmlFormElement,
        input: HtmlInputElement,
        picked: HtmlElement,
        files: Rc<RefCell<Vec<Found>>>,
        state: RwSignal<State>,
    }

    pub fn wire(root: &HtmlElement, state: RwSignal<State>) -> Option<()> {
        let form = Evidence {
            form: dom::find(root, "form.evidence")?,
            input: dom::find(root, "input[type=file]")?,
            picked: dom::find(root, ".picked")?,
            files: Rc::default(),
            state,
        };
        // Chosen while the page was still coming to life.
        form.take_chosen();
        let drop: HtmlElement = dom::find(root, ".drop")?;
        let _ = root.class_list().add_1("live");

        let chosen = form.clone();
        dom::on::<Event>(&form.input, "change", move |_| chosen.take_chosen());
        if let Some(folder) = dom::find::<HtmlInputElement>(root, ".folder input") {
            let (picked, field) = (form.clone(), folder.clone());
            dom::on::<Event>(&folder, "change", move |_| {
                picked.add(field.files());
                field.set_value("");
            });
        }
        wire_drop(&form, &drop);
        let pasted = form.clone();
        dom::on::<ClipboardEvent>(&form.form, "paste", move |event| {
            let files = event.clipboard_data().and_then(|data| data.files());
            if files.as_ref().is_some_and(|files| files.length() > 0) {
                event.prevent_default();
                pasted.add(files);
            }
        });
        let sent = form.clone();
        dom::on::<Event>(&form.form, "submit", move |event| {
            event.prevent_default();
            sent.send();
        });
        // Back from the report, the browser shows the page as it was left.
        dom::on::<Event>(&window(), "pageshow", |event| {
            if dom::member(&event, "persisted").is_truthy() {
                renew_runs();
            }
        });
        Some(())
    }

    /// The whole page takes a drop, so that a near miss does not open the file instead.
    fn wire_drop(form: &Evidence, drop: &HtmlElement) {
        let Some(body) = dom::document().body() else { return };
        let owns_page = !form.form.class_list().contains("compact") || dom::find_all(&body, "form.evidence").len() == 1;
        let area: HtmlElement = if owns_page { body } else { drop.clone() };
        let lit = drop.clone();
        dom::on::<DragEvent>(&area, "dragover", move |event| {
            event.prevent_default();
            let _ = lit.class_list().add_1("over");
        });
        let lit = drop.clone();
        dom::on::<DragEvent>(&area, "dragleave", move |_| {
            let _ = lit.class_list().remove_1("over");
        });
        let (lit, form) = (drop.clone(), form.clone());
        dom::on::<DragEvent>(&area, "drop", move |event| {
            event.prevent_default();
            let _ = lit.class_list().remove_1("over");
            let Some(data) = event.data_transfer() else { return };
            let (loose, dropped) = folders::dropped(&data);
            form.put(loose);
            // A folder is read while the page goes on; its files come one by one, and are shown together.
            for folder in dropped {
                let (found, refused) = (form.clone(), form.clone());
                let waiting: Rc<RefCell<Vec<Found>>> = Rc::default();
                let come = move |file| {
                    waiting.borrow_mut().push(file);
                    if waiting.borrow().len() == 1 {
                        let (form, waiting) = (found.clone(), Rc::clone(&waiting));
                        dom::later(SHOWN_TOGETHER_MS, move || form.put(waiting.take()));
                    }
                };
                folders::read(&folder, come, move |why| refused.refuse(why));
            }
        });
    }

    impl Evidence {
        fn limit(&self, name: &str) -> f64 {
            dom::number(&self.form, name).filter(|limit| *limit > 0.0).unwrap_or(f64::INFINITY)
        }

        fn take_chosen(&self) {
            self.add(self.input.files());
            // The list below holds them now; an emptied field can take the same file again.
            self.input.set_value("");
        }

        fn add(&self, list: Option<FileList>) {
            let Some(list) = list else { return };
            self.put((0..list.length()).filter_map(|n| list.get(n)).map(Found::of_file).collect());
        }

        fn put(&self, new: Vec<Found>) {
            if new.is_empty() {
                return;
            }
            for found in new {
                let mut files = self.files.borrow_mut();
                let is_same = |had: &Found| had.path == found.path && (had.file.size() - found.file.size()).abs() < 1.0;
                if !files.iter().any(is_same) {
                    files.push(found);
                }
            }
            // After a sending the form was put away; new files bring it back.
            let _ = self.form.remove_attribute("hidden");
            self.state.set(State::Idle);
            self.list();
        }

        fn refuse(&self, why: String) {
            self.state.set(State::Failed(why));
        }

        /// What was sent is with the server: the same must not be sent again by a second Enter.
        fn put_away(&self) {
            self.files.borrow_mut().clear();
            self.list();
            if let Some(area) = dom::find::<HtmlTextAreaElement>(&self.form, "textarea") {
                area.set_value("");
            }
            let _ = self.form.set_attribute("hidden", "");
        }

        /// Draws the list of chosen files, each with its size and a way to take it off again.
        fn list(&self) {
            self.picked.set_text_content(None);
            let limit = self.limit("data-max-file");
            for (n, found) in self.files.borrow().iter().enumerate() {
                let _ = self.line(n, found, limit);
            }
        }

        fn line(&self, n: usize, Found { path, file }: &Found, limit: f64) -> Option<()> {
            let too_large = file.size() > limit;
            let line = dom::element("li", if too_large { "refused" } else { "" }, "")?;
            let name = dom::element("bdi", "", &words::shown_line(path))?;
            let note = if too_large { format!("{}, too large", size(file.size())) } else { size(file.size()) };
            let remove = dom::element("button", "remove", "Remove")?;
            let _ = remove.set_attribute("type", "button");
            let _ = remove.set_attribute("aria-label", &format!("Remove {path}"));
            let form = self.clone();
            dom::on::<Event>(&remove, "click", move |_| {
                if n < form.files.borrow().len() {
                    form.files.borrow_mut().remove(n);
                }
                form.list();
            });
            let note = dom::element("span", "dim", &note)?;
            let _ = line.append_with_node_3(&name, &note, &remove);
            self.picked.append_child(&line).ok().map(|_| ())
        }

        /// What would be refused anyway is said before anything is sent.
        fn refused(&self, text: &str) -> Option<String> {
            let files = self.files.borrow();
            let limit = self.limit("data-max-file");
            if let Some(Found { path, file }) = files.iter().find(|found| found.file.size() > limit) {
                let name = words::shown_line(path);
                return Some(format!(
                    "{name} has {}; a file may have {}. Compressed files are read too.",
                    size(file.size()),
                    size(limit)
                ));
            }
            let (all, limit) =
                (files.iter().map(|found| found.file.size()).sum::<f64>(), self.limit("data-max-request"));
            if all > limit {
                return Some(format!(
                    "Together {}; the server accepts {}. Send them in parts.",
                    size(all),
                    size(limit)
                ));
            }
            (files.is_empty() && text.trim().is_empty())
                .then(|| "Nothing to send yet: choose a file or paste some text.".to_owned())
        }

        fn send(&self) {
            if matches!(self.state.get_untracked(), State::Sending { .. } | State::Reading | State::Done { .. }) {
                return;
            }
            let text: String =
                dom::find::<HtmlTextAreaElement>(&self.form, "textarea").map(|area| area.value()).unwrap_or_default();
            if let Some(why) = self.refused(&text) {
                self.state.set(State::Failed(why));
                return;
            }
            let (Ok(data), Some(api)) = (FormData::new(), self.form.get_attribute("data-api")) else { return };
            if let Some(title) = dom::find::<HtmlInputElement>(&self.form, "input[name=title]") {
                let _ = data.append_with_str("title", &title.value());
            }
            if let Some(project) = dom::find::<HtmlSelectElement>(&self.form, "select[name=project]") {
                let _ = data.append_with_str("project", &project.value());
            }
            if !text.trim().is_empty() {
                let _ = data.append_with_str("text", &text);
            }
            for Found { path, file } in self.files.borrow().iter() {
                let _ = data.append_with_blob_and_filename("files", file, path);
            }
            let state = self.state;
            let back = self.form.get_attribute("data-back");
            let sent = self.clone();
            let asked = dom::request("POST", &api, move |answer| finish(&answer, back, &sent));
            let Some(request) = asked else { return };
            state.set(State::Sending { sent: 0.0, total: 1.0 });
            if let Ok(upload) = request.upload() {
                dom::on::<ProgressEvent>(&upload, "progress", move |event| {
                    state.set(State::Sending { sent: event.loaded(), total: event.total() });
                });
                dom::on::<Event>(&upload, "load", move |_| state.set(State::Reading));
            }
            let _ = request.send_with_opt_form_data(Some(&data));
        }
    }

    fn finish(answer: &dom::Answer, back: Option<String>, sent: &Evidence) {
        let state = sent.state;
        let json = answer.json();
        let way = if back.is_some() { "See what changed" } else { "Open the report" };
        let Some(url) = back.or_else(|| dom::text(&json, "url")).filter(|_| answer.ok()) else {
            // The browser does not say which of the two it was.
            let why = if answer.status == 0 { NOT_SENT.to_owned() } else { answer.problem() };
            state.set(State::Failed(why));
            return;
        };
        let files: Vec<TakenFile> = dom::items(&dom::member(&json, "artifacts")).iter().map(taken).collect();
        let clean = files.iter().all(|file| file.warnings.is_empty());
        sent.put_away();
        state.set(State::Done { files, url: url.clone(), way });
        renew_runs();
        if clean {
            open(&url);
            return;
        }
        // The next Enter opens the report. The link is there once the new state is drawn.
        let form = sent.form.clone();
        dom::later(0, move || {
            let root = form.closest(".upload").ok().flatten();
            if let Some(link) = root.and_then(|root| dom::find::<HtmlElement>(&root, ".upload-live a")) {
                dom::on::<Event>(&link, "click", move |event| {
                    if is_here(&url) {
                        event.prevent_default();
                        open(&url);
                    }
                });
                let _ = link.focus();
            }
        });
    }

    /// The list of runs below the form lacks the new one: now, and when somebody comes back to this page, which the
    /// browser keeps as it was.
    fn renew_runs() {
        if dom::document().query_selector(RUNS).is_ok_and(|runs| runs.is_some()) {
            let url = window().location().href().unwrap_or_default();
            dom::renew(&url, RUNS);
        }
    }

    /// An added file leads to the same address; one that differs only behind the # is no other page either.
    fn is_here(url: &str) -> bool {
        let page = url.split('#').next().unwrap_or_default();
        window().location().pathname().is_ok_and(|path| page == path || page.ends_with(&path) && path != "/")
    }

    /// Goes there. Of the page that is open only a fresh load shows the new diagnosis.
    fn open(url: &str) {
        let (location, same) = (window().location(), is_here(url));
        if !same || url.contains('#') {
            let _ = location.set_href(url);
        }
        if same {
            let _ = location.reload();
        }
    }

    fn taken(file: &JsValue) -> TakenFile {
        let numbers = |key| -> Vec<u32> {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            dom::items(&dom::member(file, key)).iter().filter_map(JsValue::as_f64).map(|n| n as u32).collect()
        };
        let parts = [words::numbered("rank", &numbers("ranks")), words::numbered("GPU", &numbers("devices"))];
        TakenFile {
            name: dom::text(file, "name").unwrap_or_default(),
            kind: kind(&dom::text(file, "kind").unwrap_or_default()),
            speaks_of: parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", "),
            warnings: dom::items(&dom::member(file, "warnings")).iter().filter_map(JsValue::as_string).collect(),
        }
    }

    /// The words for a kind's slug.
    fn kind(slug: &str) -> &'static str {
        match slug {
            "nvidia_smi" => ArtifactKind::NvidiaSmi,
            "nvidia_smi_csv" => ArtifactKind::NvidiaSmiCsv,
            "nvidia_smi_query" => ArtifactKind::NvidiaSmiQuery,
            "nvidia_smi_monitor" => ArtifactKind::NvidiaSmiMonitor,
            "nvidia_smi_list" => ArtifactKind::NvidiaSmiList,
            "gpu_topology" => ArtifactKind::GpuTopology,
            "gpustat" => ArtifactKind::Gpustat,
            "nvitop" => ArtifactKind::Nvitop,
            "prometheus" => ArtifactKind::Prometheus,
            "rocm_smi" => ArtifactKind::RocmSmi,
            "nvml" => ArtifactKind::Nvml,
            "step_log" => ArtifactKind::StepLog,
            "memory_stats" => ArtifactKind::MemoryStats,
            "oom_message" => ArtifactKind::OomMessage,
            "torch_snapshot" => ArtifactKind::TorchSnapshot,
            "profiler_trace" => ArtifactKind::ProfilerTrace,
            "memory_timeline" => ArtifactKind::MemoryTimeline,
            "python_script" => ArtifactKind::PythonScript,
            "probe_log" => ArtifactKind::ProbeLog,
            "live_record" => ArtifactKind::LiveRecord,
            "job_log" => ArtifactKind::JobLog,
            "environment" => ArtifactKind::Environment,
            "process_list" => ArtifactKind::ProcessList,
            "launch_script" => ArtifactKind::LaunchScript,
            "accelerate_config" => ArtifactKind::AccelerateConfig,
            "deepspeed_config" => ArtifactKind::DeepspeedConfig,
            "archive" => ArtifactKind::Archive,
            "unreadable" => ArtifactKind::Unreadable,
            _ => ArtifactKind::Text,
        }
        .title()
    }

    fn size(bytes: f64) -> String {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Bytes(bytes as u64).to_string()
    }
}

#[cfg(all(test, feature = "ssr"))]
mod tests {
    use super::*;

    fn file(n: usize, warnings: usize) -> TakenFile {
        TakenFile {
            name: format!("rank{n}.log"),
            kind: "step log",
            speaks_of: format!("rank {n}"),
            warnings: (0..warnings).map(|w| format!("line {w} of {n} is cut")).collect(),
        }
    }

    fn done(files: Vec<TakenFile>) -> String {
        let owner = Owner::new_root(None);
        let state = State::Done { files, url: "/runs/1".into(), way: "Open the report" };
        owner.with(|| details(&state).to_html())
    }

    fn at(html: &str, text: &str) -> usize {
        html.find(text).unwrap_or_else(|| panic!("{text} in {html}"))
    }

    #[test]
    fn the_way_on_stands_above_every_file() {
        let html = done((0..64).map(|n| file(n, 1)).collect());
        assert!(at(&html, "Open the report") < at(&html, "rank0.log"));
        assert!(html.starts_with("<a"), "{html}");
    }

    #[test]
    fn files_with_a_warning_come_first_and_the_rest_is_folded_and_counted() {
        let mut files: Vec<TakenFile> = (0..6).map(|n| file(n, 0)).collect();
        files.extend((6..12).map(|n| file(n, 1)));
        let html = done(files);
        let fold = at(&html, "<details");
        for n in 6..10 {
            assert!(at(&html, &format!("rank{n}.log")) < fold, "{n}");
        }
        for n in [10, 11, 0, 5] {
            assert!(at(&html, &format!("rank{n}.log")) > fold, "{n}");
        }
        assert!(html.contains("and 8 more files, 2 with a warning"));
        assert!(done((0..9).map(|n| file(n, 1)).collect()).contains("and 5 more files with a warning"));
        let few: Vec<TakenFile> = std::iter::once(file(0, 1)).chain((1..6).map(|n| file(n, 0))).collect();
        assert!(done(few).contains("and 2 more files without a warning"));
    }

    #[test]
    fn a_short_list_is_whole() {
        let html = done(vec![file(0, 2), file(1, 0), file(2, 1)]);
        assert!(!html.contains("<details"), "{html}");
        assert_eq!(html.matches("class=\"warning\"").count(), 3);
    }

    #[test]
    fn many_warnings_of_one_file_are_folded() {
        let html = done(vec![file(0, 7)]);
        assert!(at(&html, "line 1 of 0") < at(&html, "and 5 more warnings"));
        assert!(at(&html, "line 2 of 0") > at(&html, "<details"));
    }
}
