//! Creating and revoking links without leaving the page.

use leptos::html::Div;
use leptos::prelude::*;

/// Wraps the share box's forms.
#[island]
pub fn ShareBox(children: Children) -> impl IntoView {
    let root = NodeRef::<Div>::new();
    let said = RwSignal::new(String::new());
    #[cfg(feature = "hydrate")]
    Effect::new(move |_| {
        if let Some(root) = root.get() {
            browser::wire(&root, said);
        }
    });
    view! {
        <div class="share-box" node_ref=root>
            {children()}
            <p class="said" class:quiet=move || said.with(String::is_empty) role="status">{move || said.get()}</p>
        </div>
    }
}

#[cfg(feature = "hydrate")]
mod browser {
    use crate::islands::dom;
    use crate::words;
    use leptos::prelude::*;
    use rankscope_model::UnixMicros;
    use wasm_bindgen::{JsCast, JsValue};
    use web_sys::{Element, Event, HtmlElement, HtmlFormElement, HtmlInputElement, HtmlSelectElement};

    pub fn wire(root: &HtmlElement, said: RwSignal<String>) {
        let root: Element = root.clone().unchecked_into();
        let inside = root.clone();
        dom::on::<Event>(&root, "submit", move |event| {
            let Some(form) = event.target().and_then(|target| target.dyn_into::<HtmlFormElement>().ok()) else {
                return;
            };
            let Some(api) = form.get_attribute("data-api") else { return };
            event.prevent_default();
            if form.class_list().contains("revoke") {
                revoke(form, &api, said);
            } else {
                create(&inside, &form, &api, said);
            }
        });
    }

    fn create(root: &Element, form: &HtmlFormElement, api: &str, said: RwSignal<String>) {
        let seconds = dom::find::<HtmlSelectElement>(form, "select").map(|select| select.value()).unwrap_or_default();
        // The choices are the server's own numbers; anything else means a link that never ends.
        let seconds = seconds.parse::<u64>().map_or_else(|_| "null".to_owned(), |seconds| seconds.to_string());
        let field = |name: &str| dom::find::<HtmlInputElement>(form, &format!("input[name={name}]"));
        let ticked = |name: &str| field(name).is_some_and(|field| field.checked());
        let password = field("password").map(|field| field.value()).filter(|password| !password.is_empty());
        // A JSON text as the browser writes it.
        let password = password.and_then(|password| js_sys::JSON::stringify(&JsValue::from_str(&password)).ok());
        let password = password.and_then(|text| text.as_string()).unwrap_or_else(|| "null".to_owned());
        let (masked, raw_files) = (ticked("masked"), ticked("raw_files"));
        let root = root.clone();
        let asked = dom::request("POST", api, move |answer| {
            let address = dom::text(&answer.json(), "url");
            match (answer.ok(), address) {
                (true, Some(address)) => {
                    show(&root, &answer.json(), &absolute(&address));
                    said.set("Link created. It is shown only now.".to_owned());
                }
                _ => said.set(answer.problem()),
            }
        });
        if let Some(request) = asked {
            let _ = request.set_request_header("Content-Type", "application/json");
            let body = format!(
                "{{\"expires_in\":{seconds},\"password\":{password},\"masked\":{masked},\"raw_files\":{raw_files}}}"
            );
            let _ = request.send_with_opt_str(Some(&body));
            said.set("Creating the link".to_owned());
        }
    }

    fn absolute(address: &str) -> String {
        if address.starts_with('/') {
            format!("{}{address}", window().location().origin().unwrap_or_default())
        } else {
            address.to_owned()
        }
    }

    /// The new link with its copy button, and a line in the list from which it can be revoked.
    fn show(root: &Element, share: &JsValue, address: &str) -> Option<()> {
        let place: HtmlElement = dom::find(root, ".new-links")?;
        place.set_text_content(None);
        let block = dom::element("div", "new-link", "")?;
        let label = dom::element("label", "", "New link, shown only now")?;
        let _ = label.set_attribute("for", "new-link");
        let row = dom::element("div", "row", "")?;
        let field: HtmlInputElement = dom::element("input", "", "")?.dyn_into().ok()?;
        field.set_id("new-link");
        field.set_read_only(true);
        field.set_value(address);
        let copy = dom::element("button", "copy", "Copy link")?;
        let _ = copy.set_attribute("type", "button");
        let _ = copy.set_attribute("data-copy", address);
        let _ = row.append_with_node_2(&field, &copy);
        let _ = block.append_with_node_2(&label, &row);
        let _ = place.append_child(&block);
        field.select();

        let id = dom::text(share, "id")?;
        let list: HtmlElement = dom::find(root, ".shares")?;
        let line = dom::element("li", "", "")?;
        let text = dom::element("span", "", "")?;
        let number = |key| dom::member(share, key).as_f64();
        #[allow(clippy::cast_possible_truncation)] // microseconds of this age are exact in a double
        let ends = number("expires_at")
            .map_or_else(|| "never ends".to_owned(), |at| format!("ends {}", words::time(UnixMicros(at as i64))));
        let facts = format!(" diagnosis {}, {ends} ", dom::printed(number("version").unwrap_or(1.0)));
        let (state, facts) = (dom::element("span", "share-state", "open")?, dom::element("span", "", &facts)?);
        let made = dom::element("span", "dim", "made just now")?;
        let _ = text.append_with_node_3(&state, &facts, &made);
        let form = dom::element("form", "revoke", "")?;
        let _ = form.set_attribute("method", "post");
        let _ = form.set_attribute("data-api", &format!("/api/v1/shares/{id}"));
        let button = dom::element("button", "button small", "Revoke")?;
        let _ = button.set_attribute("type", "submit");
        let _ = form.append_child(&button);
        let _ = line.append_with_node_2(&text, &form);
        list.prepend_with_node_1(&line).ok()
    }

    fn revoke(form: HtmlFormElement, api: &str, said: RwSignal<String>) {
        dom::send("DELETE", api, move |answer| {
            // Gone already is as good as revoked.
            if !(answer.ok() || answer.status == 404) {
                said.set(answer.problem());
                return;
            }
            if let Some(line) = form.closest("li").ok().flatten() {
                let _ = line.class_list().add_1("over");
                if let Some(state) = dom::find::<HtmlElement>(&line, ".share-state") {
                    state.set_text_content(Some("revoked"));
                }
            }
            form.remove();
            said.set("Link revoked. Whoever opens it is told that it has ended.".to_owned());
        });
    }
}
