//! Small helpers over the browser's objects. Only for islands that live as long as their page: listeners are never
//! taken off.

use js_sys::{JSON, Number, Reflect};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{Document, DomParser, Element, Event, EventTarget, HtmlElement, SupportedType, XmlHttpRequest};

/// The page. Islands run in a window, so there always is one.
pub fn document() -> Document {
    leptos::prelude::document()
}

/// Calls `handle` for each `event` at `target`, for as long as the page lives.
pub fn on<E: JsCast + 'static>(target: &EventTarget, event: &str, mut handle: impl FnMut(E) + 'static) {
    let listener = Closure::<dyn FnMut(Event)>::new(move |event: Event| handle(event.unchecked_into()));
    let _ = target.add_event_listener_with_callback(event, listener.as_ref().unchecked_ref());
    listener.forget();
}

/// First match below `root`, as the type that it must have.
pub fn find<T: JsCast>(root: &Element, selector: &str) -> Option<T> {
    root.query_selector(selector).ok().flatten().and_then(|element| element.dyn_into().ok())
}

/// Every match below `root`.
pub fn find_all(root: &Element, selector: &str) -> Vec<HtmlElement> {
    let Ok(list) = root.query_selector_all(selector) else { return Vec::new() };
    (0..list.length()).filter_map(|n| list.item(n)).filter_map(|node| node.dyn_into().ok()).collect()
}

/// A new element with a class and text.
pub fn element(tag: &str, class: &str, text: &str) -> Option<HtmlElement> {
    let element: HtmlElement = document().create_element(tag).ok()?.dyn_into().ok()?;
    if !class.is_empty() {
        element.set_class_name(class);
    }
    if !text.is_empty() {
        element.set_text_content(Some(text));
    }
    Some(element)
}

/// A `data-` or other attribute as a number.
pub fn number(element: &Element, attribute: &str) -> Option<f64> {
    parsed(&element.get_attribute(attribute)?)
}

/// A text as a number, by the browser: Rust's own reading and printing of floats is a tenth of the bundle.
pub fn parsed(text: &str) -> Option<f64> {
    let text = text.trim();
    let number = (!text.is_empty()).then(|| JsValue::from_str(text).unchecked_into_f64())?;
    number.is_finite().then_some(number)
}

/// A number as text, by the browser.
pub fn printed(number: f64) -> String {
    Number::from(number).to_string_with_radix(10).map(String::from).unwrap_or_default()
}

/// A member of a JSON object.
pub fn member(object: &JsValue, key: &str) -> JsValue {
    Reflect::get(object, &JsValue::from_str(key)).unwrap_or(JsValue::UNDEFINED)
}

/// A text member of a JSON object.
pub fn text(object: &JsValue, key: &str) -> Option<String> {
    member(object, key).as_string()
}

/// The members of a JSON array; none for anything else.
pub fn items(value: &JsValue) -> Vec<JsValue> {
    value.dyn_ref::<js_sys::Array>().map(|array| array.iter().collect()).unwrap_or_default()
}

/// An answer of the server: status (0 when it could not be reached) and body.
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The text.
    pub body: String,
}

impl Answer {
    /// 2xx.
    pub fn ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as JSON; `undefined` if it is none.
    pub fn json(&self) -> JsValue {
        JSON::parse(&self.body).unwrap_or(JsValue::UNDEFINED)
    }

    /// Why it failed, for readers: the `detail` (or `title`) of the problem, or what can be said without.
    pub fn problem(&self) -> String {
        let problem = self.json();
        text(&problem, "detail").or_else(|| text(&problem, "title")).unwrap_or_else(|| match self.status {
            0 => "The server could not be reached. Nothing was sent twice; try again.".to_owned(),
            413 => "The files together are larger than the server accepts.".to_owned(),
            status => format!("The server answered {status}. Try again, or look into its log."),
        })
    }
}

/// A prepared request; `done` is called once with the answer.
pub fn request(method: &str, url: &str, done: impl FnOnce(Answer) + 'static) -> Option<XmlHttpRequest> {
    let request = XmlHttpRequest::new().ok()?;
    request.open_with_async(method, url, true).ok()?;
    let _ = request.set_request_header("Accept", "application/json, application/problem+json, image/svg+xml");
    let finished = request.clone();
    let mut done = Some(done);
    // `loadend` comes once, after success, failure and abort alike.
    on::<Event>(&request, "loadend", move |_| {
        if let Some(done) = done.take() {
            let status = finished.status().unwrap_or(0);
            let body = finished.response_text().ok().flatten().unwrap_or_default();
            done(Answer { status, body });
        }
    });
    Some(request)
}

/// Sends a request without a body.
pub fn send(method: &str, url: &str, done: impl FnOnce(Answer) + 'static) {
    if let Some(request) = request(method, url, done) {
        let _ = request.send();
    }
}

/// Exchanges the inside of one part of the page for what the server has of it now.
pub fn renew(url: &str, selector: &'static str) {
    send("GET", url, move |answer| {
        let page = DomParser::new().and_then(|parser| parser.parse_from_string(&answer.body, SupportedType::TextHtml));
        let Some(page) = page.ok().filter(|_| answer.ok()) else { return };
        if let (Ok(Some(old)), Ok(Some(new))) = (document().query_selector(selector), page.query_selector(selector)) {
            old.set_inner_html(&new.inner_html());
        }
    });
}

/// Runs `then` after `ms` milliseconds.
pub fn later(ms: u32, then: impl FnOnce() + 'static) {
    leptos::prelude::set_timeout(then, std::time::Duration::from_millis(u64::from(ms)));
}
