//! Keeps the nodes of `/live` moving: listens to the server's events and changes what they say, at most once per frame.
//! A tab in the background does not listen; a lost connection shows and heals.

use leptos::html::Div;
use leptos::prelude::*;

/// Wraps the nodes.
#[island]
pub fn LiveNodes(children: Children) -> impl IntoView {
    let root = NodeRef::<Div>::new();
    #[cfg(feature = "hydrate")]
    Effect::new(move |_| {
        if let Some(root) = root.get() {
            browser::wire(&root);
        }
    });
    view! { <div class="live-nodes" node_ref=root>{children()}</div> }
}

#[cfg(feature = "hydrate")]
mod browser {
    use crate::islands::dom;
    use crate::islands::events::{Events, Link};
    use crate::live::heat;
    use rankscope_model::Bytes;
    use std::cell::{Cell, RefCell};
    use std::collections::{BTreeMap, BTreeSet};
    use std::rc::Rc;
    use wasm_bindgen::{JsCast, JsValue};
    use web_sys::{Element, HtmlElement, Node};

    /// What waits for the next frame, by node: markup, and figures that are newer than it.
    type Waiting = BTreeMap<String, (Option<String>, Option<JsValue>)>;

    struct Nodes {
        root: HtmlElement,
        list: HtmlElement,
        waiting: RefCell<Waiting>,
        frame_asked: Cell<bool>,
    }

    pub fn wire(root: &HtmlElement) -> Option<()> {
        let list: HtmlElement = dom::find(root, "[data-nodes]")?;
        let since = list.get_attribute("data-since").unwrap_or_default();
        let nodes =
            Rc::new(Nodes { root: root.clone(), list, waiting: RefCell::default(), frame_asked: Cell::new(false) });
        let (here, said) = (nodes.clone(), nodes);
        Events::follow(
            move |last| {
                let since = last.unwrap_or(&since);
                format!("/api/v1/live/events?since={since}")
            },
            "nodes",
            move |event| here.take(event),
            move |link| said.say(link),
        );
        Some(())
    }

    impl Nodes {
        fn say(&self, link: Link) {
            let Some(line) = dom::find::<HtmlElement>(&self.root, "[data-link]") else { return };
            let (words, class) = match link {
                Link::Open => ("Live: figures move as they arrive.", "live-link on"),
                Link::Lost => {
                    ("Connection lost. Trying again; the figures below are the last ones known.", "live-link off")
                }
                Link::Paused => ("Paused while this tab is in the background.", "live-link"),
            };
            if line.text_content().as_deref() != Some(words) {
                line.set_text_content(Some(words));
                line.set_class_name(class);
            }
        }

        /// Keeps the newest of each node for the next frame.
        fn take(self: &Rc<Self>, event: &JsValue) {
            let mut waiting = self.waiting.borrow_mut();
            for changed in dom::items(event) {
                let Some(node) = dom::text(&changed, "node") else { continue };
                let entry = waiting.entry(node).or_default();
                if dom::member(&changed, "gone").is_truthy() {
                    *entry = (None, None);
                    continue;
                }
                match dom::text(&changed, "html") {
                    Some(html) => *entry = (Some(html), None),
                    None => entry.1 = Some(changed),
                }
            }
            drop(waiting);
            if !self.frame_asked.replace(true) {
                let here = self.clone();
                leptos::prelude::request_animation_frame(move || {
                    here.frame_asked.set(false);
                    here.draw();
                });
            }
        }

        fn draw(&self) {
            let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
            if waiting.is_empty() {
                return;
            }
            let mut cards: BTreeMap<String, HtmlElement> = dom::find_all(&self.list, "[data-node]")
                .into_iter()
                .filter_map(|card| Some((card.get_attribute("data-node")?, card)))
                .collect();
            for (node, (html, figures)) in waiting {
                // Neither markup nor figures: it is no more.
                if html.is_none() && figures.is_none() {
                    if let Some(card) = cards.remove(&node) {
                        card.remove();
                    }
                    continue;
                }
                if let Some(card) = html.and_then(|html| element_of(&html)) {
                    if let Some(old) = cards.get(&node) {
                        let _ = old.replace_with_with_node_1(&card);
                    } else {
                        let next = cards.range(node.clone()..).next().map(|(_, card)| Node::from(card.clone()));
                        let _ = self.list.insert_before(&card, next.as_ref());
                    }
                    cards.insert(node.clone(), card);
                }
                if let (Some(card), Some(figures)) = (cards.get(&node), figures) {
                    show(card, &figures);
                }
            }
            self.sum(cards.len());
        }

        fn sum(&self, nodes: usize) {
            let count = |selector| dom::find_all(&self.list, selector).len();
            let text = crate::live::sum_words(crate::live::Sum {
                nodes,
                silent: count(".node.stale"),
                cards: count(".gpu"),
                lost: count(".node:not(.stale) .gpu.lost:not(.slice)"),
                out: count(".node:not(.stale) .gpu.hot"),
                found: {
                    let found = dom::find_all(&self.list, ".node:not(.stale) .node-found");
                    found.iter().filter_map(|link| link.get_attribute("href")).collect::<BTreeSet<_>>().len()
                },
            });
            if let Some(sum) = dom::find::<HtmlElement>(&self.root, "[data-sum]") {
                set_text(&sum, &text);
            }
            if let Some(empty) = dom::find::<HtmlElement>(&self.root, "[data-empty]") {
                let _ = empty.toggle_attribute_with_force("hidden", nodes > 0);
            }
        }
    }

    fn element_of(html: &str) -> Option<HtmlElement> {
        let holder = dom::element("div", "", "")?;
        holder.set_inner_html(html);
        holder.first_element_child()?.dyn_into().ok()
    }

    /// Puts figures into a node's rows.
    fn show(card: &HtmlElement, figures: &JsValue) {
        for gpu in dom::items(&dom::member(figures, "gpus")) {
            let Some(key) = dom::text(&gpu, "k") else { continue };
            let Some(row) = dom::find::<HtmlElement>(card, &format!("[data-gpu=\"{key}\"]")) else { continue };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let bytes = |value: &JsValue| value.as_f64().map(|bytes| Bytes(bytes as u64));
            if !row.class_list().contains("lost")
                && let Some(used) = dom::find::<HtmlElement>(&row, "[data-used]")
            {
                set_text(
                    &used,
                    &bytes(&dom::member(&gpu, "u")).map_or_else(|| "not read".to_owned(), |b| b.to_string()),
                );
            }
            let _ = row.class_list().toggle_with_force("hot", dom::member(&gpu, "o").is_truthy());
            if let (Some(strip), Some(signs)) = (dom::find::<Element>(&row, ".heat"), dom::text(&gpu, "h"))
                && strip.get_attribute("data-signs").as_deref() != Some(&signs)
            {
                strip.set_inner_html(&heat::markup(&signs));
                let _ = strip.set_attribute("aria-label", &heat::words(&signs));
                let _ = strip.set_attribute("data-signs", &signs);
            }
            if let Some(busy) = dom::find::<HtmlElement>(&row, "[data-busy]") {
                let number = |name: &str| dom::member(&gpu, name).as_f64().map(dom::printed);
                let parts = [number("x").map(|percent| format!("{percent} %")), number("c").map(|c| format!("{c} °C"))];
                set_text(&busy, &parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
            }
            let sizes = dom::member(&gpu, "p");
            for group in dom::find_all(&row, "[data-pids]") {
                let pids = group.get_attribute("data-pids").unwrap_or_default();
                let sum = pids.split(',').try_fold(0u64, |sum, pid| Some(sum + bytes(&dom::member(&sizes, pid))?.0));
                set_text(&group, &sum.map_or_else(String::new, |sum| Bytes(sum).to_string()));
            }
        }
    }

    /// Only what differs is written: the browser has nothing to do for the rest.
    fn set_text(element: &HtmlElement, text: &str) {
        if element.text_content().as_deref() != Some(text) {
            element.set_text_content(Some(text));
        }
    }
}
