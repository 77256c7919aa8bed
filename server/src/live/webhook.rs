//! Tells people through a webhook what was found while a job runs: a JSON text with a link, as chat programs take it.
//! Each event once, also over restarts; only to the one address that the operator gave.

use crate::{service::Service, store::LiveEvent};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// Attempts, and the pause before each further one, which doubles.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_secs(2);
/// An attempt is given up after this.
const WITHIN: Duration = Duration::from_secs(10);

/// One address.
#[derive(Debug, Clone)]
pub struct Webhook {
    url: Arc<str>,
    base_url: Arc<str>,
    pause: Duration,
}

impl Webhook {
    /// Posts to `url`; links begin with `base_url`.
    pub fn new(url: &str, base_url: &str) -> Result<Self, String> {
        let uri = url.parse::<axum::http::Uri>().ok();
        let fits = uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
        if !fits {
            // Not quoted: it may hold a secret.
            return Err("this is not an address that begins with http:// or https://".to_owned());
        }
        Ok(Self { url: url.into(), base_url: base_url.trim_end_matches('/').into(), pause: PAUSE })
    }

    /// Sends an event and remembers that it was sent.
    pub async fn tell(self, service: Arc<Service>, event: LiveEvent) {
        let title = service.store.run(&event.run).await.map(|row| row.run.title).unwrap_or_default();
        let body = self.body(&title, &event);
        let mut pause = self.pause;
        for attempt in 1..=ATTEMPTS {
            let (url, body) = (Arc::clone(&self.url), body.clone());
            let sent = tokio::task::spawn_blocking(move || post(&url, &body)).await;
            match sent.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(()) => {
                    if let Err(error) = service.store.event_sent(&event).await {
                        tracing::warn!(%error, "that an event was sent could not be remembered");
                    }
                    return;
                }
                Err(why) => tracing::warn!(why, attempt, run = event.run, "the webhook did not take an event"),
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    fn body(&self, title: &str, event: &LiveEvent) -> String {
        let link = format!("{}/runs/{}", self.base_url, event.run);
        // The three signs that have a meaning in such texts.
        let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let text = format!("{}: {}\n{link}", plain(title), plain(&event.text));
        serde_json::json!({ "text": text }).to_string()
    }
}

/// One attempt. Redirects are not followed: they would lead to another address than the operator gave.
fn post(url: &str, body: &str) -> Result<(), String> {
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(WITHIN))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .build()
        .new_agent();
    let sent = agent.post(url).header("content-type", "application/json").send(body);
    match sent {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(format!("it answered {}", answer.status())),
        // The address may hold a secret, and errors quote it.
        Err(error) => Err(error.to_string().replace(url, "the address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};

    #[test]
    fn the_text_is_plain_and_leads_to_the_run() {
        let webhook = Webhook::new("https://hooks.example/x", "http://scope.example/").unwrap();
        let event = LiveEvent {
            run: "r".into(),
            kind: "imbalance".into(),
            text: "GPU 0 > others <b>".into(),
            ..LiveEvent::default()
        };
        let body: serde_json::Value = serde_json::from_str(&webhook.body("A & B", &event)).unwrap();
        assert_eq!(body["text"], "A &amp; B: GPU 0 &gt; others &lt;b&gt;\nhttp://scope.example/runs/r");
    }

    /// Answers requests one after the other with these statuses; gives what was sent.
    fn receiver(statuses: &'static [u16]) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?secret", listener.local_addr().unwrap());
        let taken = std::thread::spawn(move || {
            let mut bodies = Vec::new();
            for status in statuses {
                let mut reader = BufReader::new(listener.accept().unwrap().0);
                let (mut line, mut length) = (String::new(), 0);
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line).unwrap();
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                bodies.push(String::from_utf8(body).unwrap());
                let elsewhere = "Location: http://127.0.0.1:1/elsewhere\r\n";
                let answer =
                    format!("HTTP/1.1 {status} x\r\n{elsewhere}Content-Length: 0\r\nConnection: close\r\n\r\n");
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            bodies
        });
        (url, taken)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_event_is_tried_again_until_it_is_taken_and_then_never_more() {
        let folder = tempfile::tempdir().unwrap();
        let store = crate::store::Store::open(folder.path()).await.unwrap();
        let service = Arc::new(Service::new(store, crate::limits::Limits::default()));
        let info =
            rankscope_model::RunInfo { id: "r".into(), title: "t".into(), created_at: rankscope_model::UnixMicros(1) };
        let begin = crate::store::LiveStep::Begin { key: "j".into(), started: 1 };
        let text = vec![("a.txt".to_owned(), "words".to_owned())];
        service.keep_live_run("r", Some((info, begin)), text, None).await.unwrap();
        let claim = "{}".to_owned();
        let event = LiveEvent { run: "r".into(), kind: "imbalance".into(), text: "GPU 0".into(), claim };
        assert!(service.store.remember_event(&event).await.unwrap());
        assert!(!service.store.remember_event(&event).await.unwrap(), "once per run");
        assert_eq!(service.store.unsent_events(0).await.unwrap(), std::slice::from_ref(&event));

        let (url, taken) = receiver(&[503, 307, 200]);
        let mut webhook = Webhook::new(&url, "http://scope.example").unwrap();
        webhook.pause = Duration::from_millis(10);
        webhook.tell(Arc::clone(&service), event).await;
        let bodies = taken.join().unwrap();
        assert_eq!(bodies.len(), 3);
        assert!(bodies.iter().all(|body| body == r#"{"text":"t: GPU 0\nhttp://scope.example/runs/r"}"#), "{bodies:?}");
        assert!(service.store.unsent_events(0).await.unwrap().is_empty());
    }

    #[test]
    fn only_http_addresses_are_taken() {
        for wrong in ["", "file:///etc/passwd", "hooks.example/x", "ftp://a/b", "https://"] {
            assert!(Webhook::new(wrong, "http://a").is_err(), "{wrong}");
        }
    }
}
