//! An event stream of the server that heals by itself and rests while nobody looks.

use crate::islands::dom;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wasm_bindgen::JsValue;
use web_sys::{Event, EventSource, MessageEvent};

/// How the connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Events arrive.
    Open,
    /// It broke off, and is tried again.
    Lost,
    /// The tab is in the background.
    Paused,
}

/// Pause before a stream that the server refused is asked for again; it doubles up to the longest.
const PAUSE_MS: u32 = 1_000;
const LONGEST_MS: u32 = 15_000;
/// State of a stream that the browser does not try again by itself, because its answer was refused.
const CLOSED: u16 = 2;

/// Address of the stream after the event with this id.
type Address = Box<dyn Fn(Option<&str>) -> String>;

/// A stream that is followed for as long as the page lives.
pub struct Events {
    url: Address,
    name: &'static str,
    take: Box<dyn Fn(&JsValue)>,
    say: Box<dyn Fn(Link)>,
    source: RefCell<Option<EventSource>>,
    last: RefCell<Option<String>>,
    pause: Cell<u32>,
    wanted: Cell<bool>,
}

impl Events {
    /// Follows events called `name` at `url`, which is made from the last event's id.
    pub fn follow(
        url: impl Fn(Option<&str>) -> String + 'static,
        name: &'static str,
        take: impl Fn(&JsValue) + 'static,
        say: impl Fn(Link) + 'static,
    ) -> Rc<Self> {
        let events = Rc::new(Self {
            url: Box::new(url),
            name,
            take: Box::new(take),
            say: Box::new(say),
            source: RefCell::default(),
            last: RefCell::default(),
            pause: Cell::new(PAUSE_MS),
            wanted: Cell::new(true),
        });
        let here = events.clone();
        dom::on::<Event>(&dom::document(), "visibilitychange", move |_| here.look());
        events.look();
        events
    }

    /// Ends the stream for good.
    pub fn end(&self) {
        self.wanted.set(false);
        self.close();
    }

    /// Listens while the page is seen.
    fn look(self: &Rc<Self>) {
        if dom::document().hidden() {
            self.close();
            (self.say)(Link::Paused);
        } else if self.source.borrow().is_none() {
            self.open();
        }
    }

    fn close(&self) {
        if let Some(source) = self.source.borrow_mut().take() {
            source.close();
        }
    }

    fn open(self: &Rc<Self>) {
        if !self.wanted.get() {
            return;
        }
        let url = (self.url)(self.last.borrow().as_deref());
        let Ok(source) = EventSource::new(&url) else { return };
        let here = self.clone();
        dom::on::<Event>(&source, "open", move |_| {
            here.pause.set(PAUSE_MS);
            (here.say)(Link::Open);
        });
        let here = self.clone();
        dom::on::<MessageEvent>(&source, self.name, move |event| {
            *here.last.borrow_mut() = Some(event.last_event_id());
            let data = event.data().as_string().and_then(|text| js_sys::JSON::parse(&text).ok());
            if let Some(data) = data {
                (here.take)(&data);
            }
        });
        let (here, failed) = (self.clone(), source.clone());
        dom::on::<Event>(&source, "error", move |_| {
            let is_current = here.source.borrow().as_ref() == Some(&failed);
            if !is_current {
                return;
            }
            (here.say)(Link::Lost);
            if failed.ready_state() == CLOSED {
                here.close();
                let pause = here.pause.get();
                here.pause.set((pause * 2).min(LONGEST_MS));
                let again = here.clone();
                dom::later(pause, move || again.look());
            }
        });
        *self.source.borrow_mut() = Some(source);
    }
}
