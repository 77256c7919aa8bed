//! The timeline under a lens: read all ranks at one instant, zoom, and follow the end of a run that goes on. The picture
//! stays the server's drawing; this island only asks for another window of it.

use leptos::html::Div;
use leptos::prelude::*;

/// What the crosshair reads at one instant.
#[derive(Debug, Clone, PartialEq, Default)]
struct Reading {
    /// The instant in words, `step 120`.
    at: String,
    /// Subject, value and whether it stands out; the accused first, then by value.
    rows: Vec<(String, String, bool)>,
    /// Subjects beyond those rows, in words.
    rest: String,
}

/// Wraps the timeline's drawings.
#[island]
pub fn TimelineLens(children: Children) -> impl IntoView {
    let root = NodeRef::<Div>::new();
    let reading = RwSignal::new(None::<Reading>);
    let zoomed = RwSignal::new(false);
    let said = RwSignal::new(String::new());
    let live = RwSignal::new(false);
    let can_follow = RwSignal::new(false);
    let following = RwSignal::new(false);
    #[cfg(feature = "hydrate")]
    Effect::new(move |_| {
        if let Some(root) = root.get() {
            browser::begin(&root, browser::Signals { reading, zoomed, said, live, can_follow, following });
        }
    });
    view! {
        <div class="lens" node_ref=root>
            {children()}
            <div class="lens-line" hidden=move || reading.with(Option::is_none)></div>
            <div class="lens-range" hidden></div>
            <div class="lens-tip" hidden=move || reading.with(Option::is_none)>
                {move || reading.with(|reading| reading.as_ref().map_or_else(|| ().into_any(), tip))}
            </div>
            <div class="lens-bar" role="group" aria-label="Zoom" hidden=move || !live.get()>
                <button type="button" class="button small" data-zoom="in" aria-label="Zoom in">"+"</button>
                <button type="button" class="button small" data-zoom="out" aria-label="Zoom out" disabled=move || !zoomed.get()>"\u{2212}"</button>
                <button type="button" class="button small" data-zoom="reset" disabled=move || !zoomed.get()>"Whole run"</button>
                <button type="button" class="button small" data-zoom="follow" aria-pressed=move || following.get().to_string() hidden=move || !can_follow.get()>"Last 5 min"</button>
                <span class="dim">"Drag to zoom. Keys: arrows, +, \u{2212}, 0"</span>
            </div>
            <p class="said" class:quiet=move || said.with(String::is_empty) role="status">{move || said.get()}</p>
        </div>
    }
}

fn tip(reading: &Reading) -> AnyView {
    let rows = reading
        .rows
        .iter()
        .map(|(name, value, accused)| {
            view! { <li class:hot=*accused><span>{name.clone()}</span><span class="num">{value.clone()}</span></li> }
        })
        .collect_view();
    view! {
        <p>{reading.at.clone()}</p>
        <ul>{rows}</ul>
        <p class="dim">{reading.rest.clone()}</p>
    }
    .into_any()
}

#[cfg(feature = "hydrate")]
mod browser {
    use super::Reading;
    use crate::islands::dom;
    use crate::words;
    use leptos::prelude::*;
    use rankscope_model::{Bytes, Rank, Subject, UnixMicros};
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use wasm_bindgen::{JsCast, JsValue};
    use web_sys::{Element, Event, HtmlElement, KeyboardEvent, MouseEvent, PointerEvent};

    /// Points per subject that the crosshair reads from, within the window that is shown.
    const POINTS: u32 = 1_000;
    /// A line that ended so far from the crosshair, as part of the window, has nothing to say there.
    const BESIDE: f64 = 0.01;
    /// Rows of the reading; more would not fit beside the pointer.
    const ROWS: usize = 8;
    /// The end of a run that is followed, in seconds, and how often it is asked for.
    const FOLLOWED: u32 = 300;
    const FOLLOW_MS: u32 = 2_000;
    /// A drag shorter than this is a click.
    const DRAG_PX: f64 = 8.0;

    #[derive(Clone, Copy)]
    pub struct Signals {
        pub reading: RwSignal<Option<Reading>>,
        pub zoomed: RwSignal<bool>,
        pub said: RwSignal<String>,
        pub live: RwSignal<bool>,
        pub can_follow: RwSignal<bool>,
        pub following: RwSignal<bool>,
    }

    /// One subject's values.
    struct Line {
        name: String,
        accused: bool,
        x: Vec<f64>,
        y: Vec<f64>,
    }

    /// Values, as far as they were asked for.
    enum Values {
        NotAsked,
        Asked,
        Here(Vec<Line>),
    }

    /// Where the drawing's plot stands and what it shows, in the drawing's own units.
    #[derive(Clone, Copy)]
    struct Plot {
        left: f64,
        right: f64,
        top: f64,
        bottom: f64,
        x_min: f64,
        x_max: f64,
    }

    struct Lens {
        root: HtmlElement,
        chart: HtmlElement,
        line: HtmlElement,
        range: HtmlElement,
        tip: HtmlElement,
        signals: Signals,
        values: RefCell<Values>,
        /// The drawings of the whole run, to come back to.
        whole: RefCell<Vec<(HtmlElement, String)>>,
        /// The whole run's window.
        full: Cell<(f64, f64)>,
        /// The window that is shown or on its way.
        window: RefCell<(f64, f64)>,
        /// Where the crosshair stands.
        at: RefCell<Option<f64>>,
        /// Where a drag began, in page pixels.
        drag: RefCell<Option<f64>>,
        /// The next step of following is on its way.
        stepping: Cell<bool>,
    }

    /// Wires the lens now, or once there is something to look at: the timeline of a run that has just begun comes later, and
    /// begins with one instant.
    pub fn begin(root: &HtmlElement, signals: Signals) {
        if wire(root, signals).is_some() {
            return;
        }
        let (here, is_wired) = (root.clone(), Cell::new(false));
        dom::on::<Event>(root, "filled", move |_| {
            if !is_wired.get() {
                is_wired.set(wire(&here, signals).is_some());
            }
        });
    }

    fn wire(root: &HtmlElement, signals: Signals) -> Option<()> {
        let chart: HtmlElement = dom::find(root, ".figure")?;
        let lens = Lens {
            root: root.clone(),
            line: dom::find(root, ".lens-line")?,
            range: dom::find(root, ".lens-range")?,
            tip: dom::find(root, ".lens-tip")?,
            whole: RefCell::new(pictures(&chart)),
            chart,
            signals,
            values: RefCell::new(Values::NotAsked),
            full: Cell::default(),
            window: RefCell::default(),
            at: RefCell::default(),
            drag: RefCell::default(),
            stepping: Cell::default(),
        };
        let plot = lens.plot()?;
        lens.full.set((plot.x_min, plot.x_max));
        *lens.window.borrow_mut() = lens.full.get();
        // A single instant has nothing to read along or to zoom into.
        if plot.x_max <= plot.x_min {
            return None;
        }
        let lens = Rc::new(lens);
        let _ = lens.chart.set_attribute("tabindex", "0");
        let _ = lens.chart.set_attribute("role", "group");
        let _ = lens.chart.set_attribute("aria-label", "Timeline. Arrow keys read the values at an instant.");
        signals.live.set(true);
        wire_pointer(&lens);
        wire_keys(&lens);
        let renewed = lens.clone();
        dom::on::<Event>(&lens.chart, "renewed", move |_| renewed.renew());
        if is_live() && lens.attribute("data-axis") == "time" {
            signals.can_follow.set(true);
            let seen = lens.clone();
            dom::on::<Event>(&dom::document(), "visibilitychange", move |_| seen.step());
        }
        let buttons = lens.clone();
        dom::on::<MouseEvent>(&lens.root, "click", move |event| {
            let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
            let action = target.and_then(|target| target.get_attribute("data-zoom"));
            match action.as_deref() {
                Some("in") => buttons.zoom_by(0.5),
                Some("out") => buttons.zoom_by(2.0),
                Some("reset") => buttons.reset(),
                Some("follow") if signals.following.get_untracked() => buttons.reset(),
                Some("follow") => {
                    signals.following.set(true);
                    signals.said.set("The last five minutes, moving along".to_owned());
                    buttons.step();
                }
                _ => {}
            }
        });
        Some(())
    }

    /// The page follows a run that goes on.
    fn is_live() -> bool {
        dom::document().query_selector("[data-run]").ok().flatten().is_some()
            && dom::document().query_selector(".live-run[data-ended]").ok().flatten().is_none()
    }

    /// Somebody has stopped the page.
    fn is_paused() -> bool {
        dom::document().query_selector("[data-pause][aria-pressed=true]").ok().flatten().is_some()
    }

    fn pictures(chart: &HtmlElement) -> Vec<(HtmlElement, String)> {
        let with_picture = |drawing: HtmlElement| {
            let picture = drawing.inner_html();
            (drawing, picture)
        };
        dom::find_all(chart, ".drawing").into_iter().map(with_picture).collect()
    }

    fn wire_pointer(lens: &Rc<Lens>) {
        let here = lens.clone();
        dom::on::<PointerEvent>(&lens.chart, "pointermove", move |event| {
            let x = f64::from(event.client_x());
            here.point_at(x);
            here.drag_to(x);
        });
        let here = lens.clone();
        dom::on::<PointerEvent>(&lens.chart, "pointerdown", move |event| {
            // A finger reads; it zooms with the buttons, so that it can still scroll the page.
            if event.pointer_type() == "mouse" && event.button() == 0 {
                event.prevent_default();
                let _ = here.chart.set_pointer_capture(event.pointer_id());
                *here.drag.borrow_mut() = Some(f64::from(event.client_x()));
                let _ = here.chart.focus();
            } else {
                here.point_at(f64::from(event.client_x()));
            }
        });
        let here = lens.clone();
        dom::on::<PointerEvent>(&lens.chart, "pointerup", move |event| here.drop_at(f64::from(event.client_x())));
        let here = lens.clone();
        dom::on::<PointerEvent>(&lens.chart, "pointercancel", move |_| here.end_drag());
        let here = lens.clone();
        dom::on::<PointerEvent>(&lens.chart, "pointerleave", move |event| {
            if event.pointer_type() == "mouse" {
                here.hide();
            }
        });
        let here = lens.clone();
        dom::on::<Event>(&lens.chart, "blur", move |_| here.hide());
    }

    fn wire_keys(lens: &Rc<Lens>) {
        let here = lens.clone();
        dom::on::<KeyboardEvent>(&lens.chart, "keydown", move |event| {
            if event.ctrl_key() || event.meta_key() || event.alt_key() {
                return;
            }
            let step = if event.shift_key() { 0.1 } else { 0.01 };
            match event.key().as_str() {
                "ArrowLeft" => here.move_by(-step),
                "ArrowRight" => here.move_by(step),
                "+" | "=" => here.zoom_by(0.5),
                "-" | "\u{2212}" => here.zoom_by(2.0),
                "0" => here.reset(),
                "Escape" => here.hide(),
                _ => return,
            }
            event.prevent_default();
        });
    }

    impl Lens {
        fn attribute(&self, name: &str) -> String {
            self.chart.get_attribute(name).unwrap_or_default()
        }

        /// The drawing that is shown: the others have no size.
        fn drawing(&self) -> Option<HtmlElement> {
            let whole = self.whole.borrow();
            let mut drawings = whole.iter().map(|(drawing, _)| drawing);
            drawings
                .find(|drawing| drawing.offset_width() > 0)
                .or_else(|| whole.first().map(|(drawing, _)| drawing))
                .cloned()
        }

        fn svg(&self) -> Option<Element> {
            dom::find(self.drawing()?.as_ref(), "svg")
        }

        fn plot(&self) -> Option<Plot> {
            let svg = self.svg()?;
            let number = |name| dom::number(&svg, name);
            Some(Plot {
                left: number("data-plot-left")?,
                right: number("data-plot-right")?,
                top: number("data-plot-top")?,
                bottom: number("data-plot-bottom")?,
                x_min: number("data-x-min")?,
                x_max: number("data-x-max")?,
            })
        }

        /// Pixels per unit of the drawing, and the drawing's left and top edge within the lens.
        fn scale(&self) -> Option<(f64, f64, f64)> {
            let svg = self.svg()?;
            let (shown, lens) = (svg.get_bounding_client_rect(), self.root.get_bounding_client_rect());
            let width = drawn_width(&svg)?;
            (width > 0.0 && shown.width() > 0.0)
                .then(|| (shown.width() / width, shown.left() - lens.left(), shown.top() - lens.top()))
        }

        /// The x value under a page position, if that is within the plot.
        fn value_at(&self, client_x: f64) -> Option<f64> {
            let (plot, (scale, left, _)) = (self.plot()?, self.scale()?);
            let at = (client_x - self.root.get_bounding_client_rect().left() - left) / scale;
            let share = (at - plot.left) / (plot.right - plot.left);
            (-0.02..=1.02).contains(&share).then(|| plot.x_min + share.clamp(0.0, 1.0) * (plot.x_max - plot.x_min))
        }

        fn point_at(self: &Rc<Self>, client_x: f64) {
            match self.value_at(client_x) {
                Some(x) => self.read(x),
                None => self.hide(),
            }
        }

        fn move_by(self: &Rc<Self>, share: f64) {
            let (from, to) = *self.window.borrow();
            let x = self.at.borrow().unwrap_or(if share > 0.0 { from } else { to });
            self.read((x + share * (to - from)).clamp(from, to));
            let spoken = self.signals.reading.with_untracked(|reading| {
                reading.as_ref().map(|reading| {
                    let rows = reading.rows.iter().take(3).map(|(name, value, _)| format!("{name} {value}"));
                    format!("{}: {}", reading.at, rows.collect::<Vec<_>>().join(", "))
                })
            });
            self.signals.said.set(spoken.unwrap_or_default());
        }

        /// Puts the crosshair at `x` and reads every subject there.
        fn read(self: &Rc<Self>, x: f64) {
            *self.at.borrow_mut() = Some(x);
            self.ask_values();
            let values = self.values.borrow();
            let Values::Here(lines) = &*values else { return };
            let reading = self.reading(lines, x);
            self.signals.reading.set(Some(reading));
            drop(values);
            self.place(x);
        }

        fn reading(&self, lines: &[Line], x: f64) -> Reading {
            let bytes = self.attribute("data-unit") == "bytes";
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let words_of =
                |value: f64| if bytes { Bytes(value as u64).to_string() } else { words::grouped(value as u64) };
            let (from, to) = *self.window.borrow();
            let beside = (to - from) * BESIDE;
            let mut rows: Vec<(&str, f64, bool)> = lines
                .iter()
                .filter_map(|line| line.nearest(x, beside).map(|value| (line.name.as_str(), value, line.accused)))
                .collect();
            rows.sort_by(|a, b| b.2.cmp(&a.2).then(b.1.total_cmp(&a.1)));
            let rest = rows.get(ROWS..).unwrap_or_default();
            let rest = match (rest.first(), rest.last()) {
                (Some(highest), Some(lowest)) => {
                    format!("{} more, {} to {}", rest.len(), words_of(lowest.1), words_of(highest.1))
                }
                _ => String::new(),
            };
            let rows = rows.into_iter().take(ROWS);
            Reading {
                at: self.instant(x),
                rows: rows.map(|(name, value, accused)| (name.to_owned(), words_of(value), accused)).collect(),
                rest,
            }
        }

        fn instant(&self, x: f64) -> String {
            #[allow(clippy::cast_possible_truncation)]
            let x = x.round() as i64;
            match self.attribute("data-axis").as_str() {
                "time" => words::clock(UnixMicros(x)),
                "since start" => words::since_start(x),
                axis => format!("{axis} {x}"),
            }
        }

        /// Moves line and reading to `x`, the reading to the side that has room.
        fn place(&self, x: f64) {
            let (Some(plot), Some((scale, left, top))) = (self.plot(), self.scale()) else { return };
            let share = (x - plot.x_min) / (plot.x_max - plot.x_min);
            let at = left + scale * (plot.left + share * (plot.right - plot.left));
            style(
                &self.line,
                &[("left", at), ("top", top + scale * plot.top), ("height", scale * (plot.bottom - plot.top))],
            );
            let width = f64::from(self.tip.offset_width());
            let room = f64::from(self.root.offset_width());
            let beside = if at + 12.0 + width <= room { at + 12.0 } else { (at - 12.0 - width).max(0.0) };
            style(&self.tip, &[("left", beside), ("top", top + scale * plot.top + 4.0)]);
        }

        fn hide(&self) {
            *self.at.borrow_mut() = None;
            if self.signals.reading.with_untracked(Option::is_some) {
                self.signals.reading.set(None);
            }
        }

        fn drag_to(&self, client_x: f64) {
            let Some(from) = *self.drag.borrow() else { return };
            let (Some(plot), Some((scale, _, top))) = (self.plot(), self.scale()) else { return };
            let edge = self.root.get_bounding_client_rect().left();
            let (low, high) = (from.min(client_x) - edge, from.max(client_x) - edge);
            if high - low < DRAG_PX {
                return;
            }
            let _ = self.range.remove_attribute("hidden");
            style(
                &self.range,
                &[
                    ("left", low),
                    ("width", high - low),
                    ("top", top + scale * plot.top),
                    ("height", scale * (plot.bottom - plot.top)),
                ],
            );
        }

        fn end_drag(&self) {
            *self.drag.borrow_mut() = None;
            let _ = self.range.set_attribute("hidden", "");
        }

        fn drop_at(self: &Rc<Self>, client_x: f64) {
            let from = *self.drag.borrow();
            self.end_drag();
            let Some(from) = from.filter(|from| (client_x - from).abs() >= DRAG_PX) else { return };
            let (low, high) = *self.window.borrow();
            let a = self.value_at(from.min(client_x)).unwrap_or(low);
            let b = self.value_at(from.max(client_x)).unwrap_or(high);
            self.show(a, b);
        }

        /// Zooms around the crosshair, or around the middle.
        fn zoom_by(self: &Rc<Self>, factor: f64) {
            let (from, to) = *self.window.borrow();
            let middle = self.at.borrow().unwrap_or(f64::midpoint(from, to));
            let share = if to > from { (middle - from) / (to - from) } else { 0.5 };
            let width = (to - from) * factor;
            let full = self.full.get();
            if width >= full.1 - full.0 {
                self.reset();
                return;
            }
            let start = (middle - share * width).clamp(full.0, full.1 - width);
            self.show(start, start + width);
        }

        /// The whole run was drawn anew, because it goes on.
        fn renew(&self) {
            *self.whole.borrow_mut() = pictures(&self.chart);
            let Some(plot) = self.plot() else { return };
            self.full.set((plot.x_min, plot.x_max));
            *self.window.borrow_mut() = self.full.get();
            *self.values.borrow_mut() = Values::NotAsked;
            self.hide();
        }

        fn reset(&self) {
            for (drawing, picture) in self.whole.borrow().iter() {
                drawing.set_inner_html(picture);
            }
            *self.window.borrow_mut() = self.full.get();
            *self.values.borrow_mut() = Values::NotAsked;
            self.signals.following.set(false);
            self.signals.zoomed.set(false);
            self.hide();
            self.signals.said.set("Whole run".to_owned());
        }

        /// One step of following: the end of the run as it is now. Rests while the page is hidden or paused.
        fn step(self: &Rc<Self>) {
            let following = self.signals.following;
            if self.stepping.get() || !following.get_untracked() || dom::document().hidden() {
                return;
            }
            let (Some(drawing), Some(width)) = (self.drawing(), self.svg().as_ref().and_then(drawn_width)) else {
                return;
            };
            self.stepping.set(true);
            let here = self.clone();
            let next = move || {
                dom::later(FOLLOW_MS, move || {
                    here.stepping.set(false);
                    here.step();
                });
            };
            if is_paused() {
                next();
                return;
            }
            let here = self.clone();
            let root = self.attribute("data-root");
            let width = dom::printed(width);
            let url = format!("{root}/charts/timeline.svg?last={FOLLOWED}&width={width}&theme=page");
            dom::send("GET", &url, move |answer| {
                if following.get_untracked() && answer.ok() && answer.body.trim_start().starts_with("<svg") {
                    drawing.set_inner_html(&answer.body);
                    if let Some(plot) = here.plot() {
                        *here.window.borrow_mut() = (plot.x_min, plot.x_max);
                        let full = here.full.get();
                        here.full.set((full.0, full.1.max(plot.x_max)));
                    }
                    *here.values.borrow_mut() = Values::NotAsked;
                    here.signals.zoomed.set(true);
                    let at = *here.at.borrow();
                    match at {
                        Some(x) => here.read(x),
                        None => here.hide(),
                    }
                }
                // Its last five minutes stay.
                if !is_live() {
                    following.set(false);
                }
                next();
            });
        }

        /// Asks the server for another window of the same drawing.
        fn show(self: &Rc<Self>, from: f64, to: f64) {
            let (from, to) = (from.floor(), to.ceil());
            self.signals.following.set(false);
            if to - from < 1.0 {
                return;
            }
            let Some(drawing) = self.drawing() else { return };
            let Some(width) = self.svg().as_ref().and_then(drawn_width) else { return };
            let url = format!(
                "{}/charts/timeline.svg?from={}&to={}&width={}&theme=page&version={}",
                self.attribute("data-root"),
                dom::printed(from),
                dom::printed(to),
                dom::printed(width),
                self.attribute("data-version")
            );
            *self.window.borrow_mut() = (from, to);
            let here = self.clone();
            dom::send("GET", &url, move |answer| {
                // A newer wish has overtaken this one.
                if *here.window.borrow() != (from, to) {
                    return;
                }
                if !answer.ok() || !answer.body.trim_start().starts_with("<svg") {
                    here.signals.said.set(answer.problem());
                    return;
                }
                drawing.set_inner_html(&answer.body);
                *here.values.borrow_mut() = Values::NotAsked;
                here.hide();
                here.signals.zoomed.set(true);
                here.signals.said.set(format!("{} to {}", here.instant(from), here.instant(to)));
            });
        }

        fn ask_values(self: &Rc<Self>) {
            if !matches!(*self.values.borrow(), Values::NotAsked) {
                return;
            }
            *self.values.borrow_mut() = Values::Asked;
            let here = self.clone();
            let (root, version) = (self.attribute("data-root"), self.attribute("data-version"));
            let window = *self.window.borrow();
            // Of a part all that can be drawn of it is read; of the whole the reduced course.
            let part = if self.signals.zoomed.get_untracked() {
                format!("&from={}&to={}", dom::printed(window.0.floor()), dom::printed(window.1.ceil()))
            } else {
                String::new()
            };
            dom::send("GET", &format!("{root}/series?points={POINTS}&version={version}{part}"), move |answer| {
                if *here.window.borrow() != window {
                    *here.values.borrow_mut() = Values::NotAsked;
                    let at = *here.at.borrow();
                    if let Some(x) = at {
                        here.read(x);
                    }
                    return;
                }
                if !answer.ok() {
                    here.signals.said.set(answer.problem());
                    *here.values.borrow_mut() = Values::NotAsked;
                    return;
                }
                let accused = here.attribute("data-accused");
                let accused: Vec<&str> = accused.split('|').collect();
                let lines = dom::items(&dom::member(&answer.json(), "columns"));
                let lines = lines.iter().filter_map(|line| Line::of(line, &accused)).collect();
                *here.values.borrow_mut() = Values::Here(lines);
                let at = *here.at.borrow();
                if let Some(x) = at {
                    here.read(x);
                }
            });
        }
    }

    impl Line {
        fn of(line: &JsValue, accused: &[&str]) -> Option<Self> {
            let name = subject(&dom::member(line, "subject"))?;
            let numbers = |key| -> Vec<f64> {
                dom::items(&dom::member(line, key)).iter().map(|n| n.as_f64().unwrap_or(f64::NAN)).collect()
            };
            let accused = accused.contains(&name.as_str());
            Some(Self { x: numbers("x"), y: numbers("y"), name, accused })
        }

        /// The value at the sample nearest to `x`; none where the line has ended: beyond its ends by more than `beside` and
        /// by more than its samples are apart.
        fn nearest(&self, x: f64, beside: f64) -> Option<f64> {
            let (first, last) = (self.x.first()?, self.x.last()?);
            let apart = if self.x.len() > 1 { (last - first) / (self.x.len() - 1) as f64 } else { f64::INFINITY };
            let reach = beside.max(apart);
            if x < first - reach || x > last + reach {
                return None;
            }
            let after = self.x.partition_point(|&at| at < x);
            let distance = |n: usize| self.x.get(n).map(|at| (at - x).abs());
            let n = match (after.checked_sub(1), self.x.get(after)) {
                (Some(before), Some(_)) => {
                    if distance(before) <= distance(after) {
                        before
                    } else {
                        after
                    }
                }
                (Some(before), None) => before,
                (None, _) => after,
            };
            self.y.get(n).copied().filter(|y| y.is_finite())
        }
    }

    /// A subject's words from its JSON; the same as the model's.
    fn subject(json: &JsValue) -> Option<String> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let number = |object: &JsValue, key| dom::member(object, key).as_f64().map(|n| n as u32);
        let slice = dom::member(json, "mig_slice");
        let subject = if let Some(rank) = number(json, "rank") {
            Subject::Rank(Rank(rank))
        } else if let Some(device) = number(json, "device") {
            Subject::Device(device)
        } else {
            Subject::MigSlice {
                device: number(&slice, "device")?,
                gpu_instance: number(&slice, "gpu_instance")?,
                compute_instance: number(&slice, "compute_instance")?,
            }
        };
        Some(subject.to_string())
    }

    /// The width that a drawing was made for.
    fn drawn_width(svg: &Element) -> Option<f64> {
        let view_box = svg.get_attribute("viewBox")?;
        dom::parsed(view_box.split([' ', ',']).filter(|part| !part.is_empty()).nth(2)?)
    }

    fn style(element: &HtmlElement, pixels: &[(&str, f64)]) {
        for (property, value) in pixels {
            let _ = element.style().set_property(property, &format!("{}px", dom::printed(*value)));
        }
    }
}
