//! One island for all copy buttons of a page: shows them, and copies what a button's `data-copy` holds.

use leptos::prelude::*;

/// Stands once in each page.
#[island]
pub fn CopyButtons() -> impl IntoView {
    let said = RwSignal::new("");
    #[cfg(feature = "hydrate")]
    browser::wire(said);
    view! { <span class="visually-hidden" role="status">{move || said.get()}</span> }
}

#[cfg(feature = "hydrate")]
mod browser {
    use crate::islands::dom;
    use leptos::prelude::*;
    use wasm_bindgen::{JsCast, JsValue};
    use web_sys::{Element, Event, HtmlElement, HtmlTextAreaElement};

    /// How long a button says that it has copied.
    const SAID_MS: u32 = 1_600;

    pub fn wire(said: RwSignal<&'static str>) {
        let Some(body) = dom::document().body() else { return };
        for button in dom::find_all(&body, "button[data-copy]") {
            let _ = button.remove_attribute("hidden");
        }
        dom::on::<Event>(&body, "click", move |event| {
            let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
            let button = target.and_then(|target| target.closest("button[data-copy]").ok().flatten());
            let Some(button) = button.and_then(|button| button.dyn_into::<HtmlElement>().ok()) else { return };
            let Some(text) = button.get_attribute("data-copy") else { return };
            copy(&text, button, said);
        });
    }

    fn copy(text: &str, button: HtmlElement, said: RwSignal<&'static str>) {
        let navigator = window().navigator();
        // Absent on pages served over plain HTTP from another host.
        if dom::member(&navigator, "clipboard").is_undefined() {
            let worked = copy_by_selection(text);
            say(&button, said, worked);
            return;
        }
        let written = navigator.clipboard().write_text(text);
        leptos::task::spawn_local(async move {
            let worked = wasm_bindgen_futures::JsFuture::from(written).await.is_ok();
            say(&button, said, worked);
        });
    }

    /// The older way: select the text in a field out of sight, and let the page copy its selection.
    fn copy_by_selection(text: &str) -> bool {
        let document = dom::document();
        let Some(field) = dom::element("textarea", "visually-hidden", "") else { return false };
        let Ok(field) = field.dyn_into::<HtmlTextAreaElement>() else { return false };
        field.set_value(text);
        let Some(body) = document.body() else { return false };
        if body.append_child(&field).is_err() {
            return false;
        }
        field.select();
        let worked = dom::member(&document, "execCommand")
            .dyn_into::<js_sys::Function>()
            .and_then(|command| command.call1(&document, &JsValue::from_str("copy")))
            .is_ok_and(|worked| worked.is_truthy());
        field.remove();
        worked
    }

    fn say(button: &HtmlElement, said: RwSignal<&'static str>, worked: bool) {
        let word = if worked { "Copied" } else { "Select and copy by hand" };
        said.set(word);
        // A second click within the time must not keep "Copied" as the button's own word.
        let own = button.get_attribute("data-word").or_else(|| button.text_content()).unwrap_or_default();
        let _ = button.set_attribute("data-word", &own);
        button.set_text_content(Some(word));
        let _ = button.class_list().add_1("said");
        let button = button.clone();
        dom::later(SAID_MS, move || {
            button.set_text_content(Some(&own));
            let _ = button.class_list().remove_1("said");
            said.set("");
        });
    }
}
