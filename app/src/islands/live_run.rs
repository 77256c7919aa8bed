//! Follows a run whose job goes on: when the diagnosis was renewed, the report's parts are exchanged where they stand.
//! What somebody is reading along, typing into or has zoomed into is left alone, and everything while it is paused.

use leptos::html::Div;
use leptos::prelude::*;

/// Stands above the report; finds the run in the element inside.
#[island]
pub fn LiveRun(children: Children) -> impl IntoView {
    let root = NodeRef::<Div>::new();
    let said = RwSignal::new(String::new());
    let paused = RwSignal::new(false);
    let live = RwSignal::new(false);
    let ended = RwSignal::new(false);
    let notices = RwSignal::new(Vec::<(String, String)>::new());
    #[cfg(feature = "hydrate")]
    Effect::new(move |_| {
        if let Some(root) = root.get() {
            browser::wire(&root, browser::Signals { said, paused, live, ended, notices });
        }
    });
    view! {
        <div class="live-run" node_ref=root data-ended=move || ended.get().then_some("")>
            {children()}
            <span class="live-said" role="status">{move || said.get()}</span>
            <button type="button" class="button small" data-pause="" aria-pressed=move || paused.get().to_string() hidden=move || !live.get()>
                {move || if paused.get() { "Resume" } else { "Pause" }}
            </button>
            <ul class="notices" aria-live="polite">
                {move || {
                    let line = |(at, text): (String, String)| view! { <li>"New finding at "<time>{at}</time>": "{text}</li> };
                    notices.get().into_iter().map(line).collect_view()
                }}
            </ul>
        </div>
    }
}

#[cfg(feature = "hydrate")]
mod browser {
    use crate::islands::dom;
    use crate::islands::events::{Events, Link};
    use crate::words;
    use leptos::prelude::*;
    use rankscope_model::UnixMicros;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use wasm_bindgen::JsValue;
    use web_sys::{Document, DomParser, Element, Event, HtmlElement, MouseEvent, SupportedType};

    /// Parts of the report that are exchanged. None of them holds an island.
    const PARTS: [&str; 9] = [
        "main > .headline",
        "main .cause",
        "#events",
        "#timeline-title",
        "#heatmap",
        "#peaks",
        "#composition",
        "#files",
        "#checklist",
    ];
    /// Notices that are shown.
    const SHOWN: usize = 5;

    #[derive(Clone, Copy)]
    pub struct Signals {
        pub said: RwSignal<String>,
        pub paused: RwSignal<bool>,
        pub live: RwSignal<bool>,
        pub ended: RwSignal<bool>,
        pub notices: RwSignal<Vec<(String, String)>>,
    }

    struct Run {
        id: String,
        /// Says how the job stands.
        word: HtmlElement,
        signals: Signals,
        /// When the diagnosis that is shown was made.
        shown: Cell<f64>,
        /// The newest that there is.
        newest: Cell<f64>,
        asking: Cell<bool>,
        ended: Cell<bool>,
        /// Nobody of it says anything.
        still: Cell<bool>,
        events: RefCell<Option<Rc<Events>>>,
    }

    pub fn wire(root: &HtmlElement, signals: Signals) -> Option<()> {
        let facts: HtmlElement = dom::find(root, "[data-run]")?;
        let shown = dom::number(&facts, "data-diagnosed").unwrap_or(0.0);
        let run = Rc::new(Run {
            id: facts.get_attribute("data-run")?,
            still: Cell::new(facts.has_attribute("data-still")),
            word: facts,
            signals,
            shown: Cell::new(shown),
            newest: Cell::new(shown),
            asking: Cell::new(false),
            ended: Cell::new(false),
            events: RefCell::default(),
        });
        signals.live.set(true);
        let here = run.clone();
        let pause: HtmlElement = dom::find(root, "[data-pause]")?;
        dom::on::<MouseEvent>(&pause, "click", move |_| {
            signals.paused.update(|paused| *paused = !*paused);
            here.look();
        });
        let (here, link, url) = (run.clone(), run.clone(), format!("/api/v1/runs/{}/live", run.id));
        let events = Events::follow(move |_| url.clone(), "run", move |tick| here.take(tick), move |to| link.say(to));
        *run.events.borrow_mut() = Some(events);
        Some(())
    }

    impl Run {
        fn say(&self, link: Link) {
            if self.ended.get() {
                return;
            }
            self.signals.said.set(match (link, self.signals.paused.get_untracked()) {
                (Link::Lost, _) => "Connection lost. Trying again.".to_owned(),
                (Link::Paused, _) => String::new(),
                (Link::Open, true) => "Paused. The run goes on.".to_owned(),
                // The word beside it says who is silent; nothing is renewed until somebody speaks again.
                (Link::Open, false) if self.still.get() => String::new(),
                (Link::Open, false) => "Renewed while its evidence changes.".to_owned(),
            });
        }

        fn take(self: &Rc<Self>, tick: &JsValue) {
            let found = dom::items(&dom::member(tick, "notices"));
            let line = |notice: &JsValue| {
                #[allow(clippy::cast_possible_truncation)]
                let clock = |name| dom::member(notice, name).as_f64().map(|at| words::clock(UnixMicros(at as i64)));
                let text = dom::text(notice, "text").unwrap_or_default();
                let text = match clock("ended") {
                    Some(ended) => format!("{text} (no longer since {ended})"),
                    None => text,
                };
                Some((clock("at")?, text))
            };
            let lines: Vec<(String, String)> = found.iter().rev().take(SHOWN).filter_map(line).collect();
            if self.signals.notices.with_untracked(|known| *known != lines) {
                self.signals.notices.set(lines);
            }
            if let Some(word) = dom::text(tick, "word").filter(|word| !word.is_empty()) {
                self.word.set_text_content(Some(&word));
                let standing = dom::member(tick, "standing");
                let silent = dom::member(&standing, "silent").is_truthy();
                self.still.set(is_still(&standing));
                let _ = self.word.class_list().toggle_with_force("silent", silent);
            }
            if let Some(at) = dom::member(tick, "diagnosed_at").as_f64() {
                self.newest.set(self.newest.get().max(at));
            }
            if dom::member(tick, "ended").is_truthy() {
                self.ended.set(true);
                self.signals.live.set(false);
                self.signals.ended.set(true);
                self.signals.paused.set(false);
                self.signals.said.set("The job has ended; this is its last diagnosis.".to_owned());
                if let Some(events) = self.events.borrow().as_ref() {
                    events.end();
                }
            }
            self.look();
        }

        /// Asks for the page as it is now, if it is another one than shown.
        fn look(self: &Rc<Self>) {
            let paused = self.signals.paused.get_untracked();
            if !self.ended.get() {
                self.say(Link::Open);
            }
            if paused || self.asking.get() || self.newest.get() <= self.shown.get() {
                return;
            }
            self.asking.set(true);
            let here = self.clone();
            let wanted = self.newest.get();
            dom::send("GET", &format!("/runs/{}", self.id), move |answer| {
                here.asking.set(false);
                if !answer.ok() || here.signals.paused.get_untracked() {
                    return;
                }
                let page =
                    DomParser::new().and_then(|parser| parser.parse_from_string(&answer.body, SupportedType::TextHtml));
                if let Ok(page) = page {
                    here.shown.set(wanted);
                    exchange(&page);
                    // What came meanwhile.
                    here.look();
                }
            });
        }
    }

    /// As [`rankscope_model::RunStanding::is_still`].
    fn is_still(standing: &JsValue) -> bool {
        let silent = dom::items(&dom::member(standing, "silent"));
        let nodes = dom::member(standing, "nodes").as_f64().unwrap_or(f64::INFINITY);
        let are_all = u32::try_from(silent.len()).is_ok_and(|count| f64::from(count) >= nodes);
        silent.first().is_some_and(|first| dom::text(first, "node").is_none() || are_all)
    }

    fn exchange(page: &Document) {
        let document = dom::document();
        for part in PARTS {
            let (Ok(Some(old)), Ok(new)) = (document.query_selector(part), page.query_selector(part)) else { continue };
            match new {
                Some(new) if !is_in_use(&old) => renew(&old, &new),
                _ => {}
            }
        }
        fill(&document, page);
        // A part that was not there before has its place in the new page's order.
        for part in PARTS.into_iter().chain(["#timeline"]) {
            let (Ok(None), Ok(Some(new))) = (document.query_selector(part), page.query_selector(part)) else {
                continue;
            };
            let before = new.previous_element_sibling().and_then(|sibling| place_of(&document, &sibling));
            if let Some(before) = before {
                let _ = before.after_with_node_1(&new);
            }
        }
        timeline(&document, page);
        title(&document, page);
    }

    /// The first timeline of a run goes into the place that was kept for it: there its lens has come to life already.
    fn fill(document: &Document, page: &Document) -> Option<()> {
        let place = document.query_selector("#timeline[hidden]").ok()??;
        let come = page.query_selector("#timeline:not([hidden])").ok()??;
        let (lens, figure) = (place.query_selector(".lens").ok()??, come.query_selector(".lens .figure").ok()??);
        let _ = lens.prepend_with_node_1(&figure);
        let island = place.first_element_child()?;
        let mut is_before = true;
        let mut next = come.first_element_child();
        while let Some(part) = next {
            next = part.next_element_sibling();
            if part.query_selector(".lens").is_ok_and(|lens| lens.is_some()) || part.class_list().contains("lens") {
                is_before = false;
            } else if is_before {
                let _ = island.before_with_node_1(&part);
            } else {
                let _ = place.append_with_node_1(&part);
            }
        }
        let _ = place.set_attribute("aria-labelledby", "timeline-title");
        let _ = place.remove_attribute("hidden");
        is_filled(&lens);
        Some(())
    }

    fn is_filled(lens: &Element) {
        if let Ok(event) = Event::new("filled") {
            let _ = lens.dispatch_event(&event);
        }
    }

    /// Where the same part stands in the page that is shown.
    fn place_of(document: &Document, part: &Element) -> Option<Element> {
        let selector = match part.id() {
            id if id.is_empty() && part.class_list().contains("cause") => "main .cause".to_owned(),
            id if id.is_empty() => return None,
            id => format!("#{id}"),
        };
        document.query_selector(&selector).ok().flatten()
    }

    /// Somebody is in it, or has marked text of it.
    fn is_in_use(part: &Element) -> bool {
        let document = dom::document();
        let has_focus = document.active_element().is_some_and(|active| part.contains(Some(&active)));
        let selection = window().get_selection().ok().flatten();
        let has_selection = selection.is_some_and(|selection| {
            !selection.is_collapsed() && selection.anchor_node().is_some_and(|node| part.contains(Some(&node)))
        });
        has_focus || has_selection
    }

    /// Exchanges the inside, and opens again what was open.
    fn renew(old: &Element, new: &Element) {
        if old.inner_html() == new.inner_html() {
            return;
        }
        let open: Vec<bool> =
            dom::find_all(old, "details").iter().map(|details| details.has_attribute("open")).collect();
        old.set_class_name(&new.class_name());
        old.set_inner_html(&new.inner_html());
        for (details, open) in dom::find_all(old, "details").iter().zip(open) {
            if open {
                let _ = details.set_attribute("open", "");
            }
        }
        for button in dom::find_all(old, "button[data-copy]") {
            let _ = button.remove_attribute("hidden");
        }
    }

    /// The timeline under its lens: the drawings, unless it is zoomed into.
    fn timeline(document: &Document, page: &Document) {
        let figure = |of: &Document| of.query_selector("#timeline .figure").ok().flatten();
        let (Some(old), Some(new)) = (figure(document), figure(page)) else { return };
        let reset = document.query_selector("#timeline [data-zoom=reset]").ok().flatten();
        if reset.is_some_and(|reset| !reset.has_attribute("disabled")) {
            return;
        }
        for name in ["data-version", "data-axis", "data-unit", "data-accused"] {
            if let Some(value) = new.get_attribute(name) {
                let _ = old.set_attribute(name, &value);
            }
        }
        for (old, new) in dom::find_all(&old, ".drawing").iter().zip(dom::find_all(&new, ".drawing")) {
            if old.inner_html() != new.inner_html() {
                old.set_inner_html(&new.inner_html());
            }
        }
        if let Ok(event) = Event::new("renewed") {
            let _ = old.dispatch_event(&event);
        }
        if let Ok(Some(lens)) = document.query_selector("#timeline .lens") {
            is_filled(&lens);
        }
        let table = |of: &Document| of.query_selector("#timeline .exact").ok().flatten();
        if let (Some(old), Some(new)) = (table(document), table(page))
            && !is_in_use(&old)
        {
            old.set_inner_html(&new.inner_html());
        }
    }

    fn title(document: &Document, page: &Document) {
        if document.title() != page.title() {
            document.set_title(&page.title());
        }
    }
}
