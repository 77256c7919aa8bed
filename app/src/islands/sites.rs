//! Searching and sorting the table of call sites at once. Without it the form and the links ask the server, which
//! answers the same; where the page does not hold all lines, they always do.

use leptos::html::Div;
use leptos::prelude::*;

/// Wraps the search form and the table.
#[island]
pub fn SiteTable(children: Children) -> impl IntoView {
    let root = NodeRef::<Div>::new();
    let said = RwSignal::new(String::new());
    #[cfg(feature = "hydrate")]
    Effect::new(move |_| {
        if let Some(root) = root.get() {
            browser::wire(&root, said);
        }
    });
    view! {
        <div node_ref=root>
            {children()}
            <p class="visually-hidden" role="status">{move || said.get()}</p>
        </div>
    }
}

#[cfg(feature = "hydrate")]
mod browser {
    use crate::islands::dom;
    use crate::words;
    use leptos::prelude::*;
    use wasm_bindgen::JsCast;
    use web_sys::{Element, Event, HtmlElement, HtmlInputElement};

    pub fn wire(root: &HtmlElement, said: RwSignal<String>) {
        let root: Element = root.clone().unchecked_into();
        let Some(table) = dom::find::<Element>(&root, "table.sites[data-whole]") else { return };
        if let Some(field) = dom::find::<HtmlInputElement>(&root, "input[type=search]") {
            let (here, input) = (table.clone(), field.clone());
            dom::on::<Event>(&field, "input", move |_| filter(&here, &input.value(), said));
        }
        let here = table.clone();
        dom::on::<Event>(&table, "click", move |event| {
            let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
            let Some(link) = target.and_then(|target| target.closest("a[data-sort]").ok().flatten()) else { return };
            event.prevent_default();
            sort(&here, &link, said);
        });
    }

    /// In small letters, by the browser, which has the tables of Unicode already.
    fn lower(text: &str) -> String {
        js_sys::JsString::from(text).to_lower_case().into()
    }

    fn filter(table: &Element, query: &str, said: RwSignal<String>) {
        let query = lower(query.trim());
        let mut shown = 0;
        for row in dom::find_all(table, "tbody tr") {
            let holds = lower(&row.text_content().unwrap_or_default()).contains(&query);
            row.set_hidden(!holds);
            shown += usize::from(holds);
        }
        said.set(words::count(shown, "line"));
    }

    fn sort(table: &Element, link: &Element, said: RwSignal<String>) {
        let heads = dom::find_all(table, "thead th");
        let own = link.closest("th").ok().flatten();
        let Some(column) = heads.iter().position(|head| own.as_ref().is_some_and(|own| head.is_same_node(Some(own))))
        else {
            return;
        };
        let by_name = column == 0;
        let rows = dom::find_all(table, "tbody tr");
        let mut keyed: Vec<(bool, f64, String, HtmlElement)> = rows
            .into_iter()
            .map(|row| {
                let cell = row.children().item(u32::try_from(column).unwrap_or(0));
                let number = cell.as_ref().and_then(|cell| dom::number(cell, "data-n")).unwrap_or(0.0);
                let name = lower(&cell.and_then(|cell| cell.text_content()).unwrap_or_default());
                // What only one rank has stays on top of the differences, as the server sorts it.
                let first = column == 1 && row.class_list().contains("hot");
                (first, number, name, row)
            })
            .collect();
        keyed.sort_by(|a, b| if by_name { a.2.cmp(&b.2) } else { b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)) });
        let Some(body) = dom::find::<Element>(table, "tbody") else { return };
        for (.., row) in keyed {
            let _ = body.append_child(&row);
        }
        for head in &heads {
            let _ = head.remove_attribute("aria-sort");
        }
        if let Some(head) = heads.get(column) {
            let _ = head.set_attribute("aria-sort", if by_name { "ascending" } else { "descending" });
        }
        said.set(format!("sorted by {}", link.text_content().unwrap_or_default()));
    }
}
