//! Series from a Prometheus-compatible server (Thanos, Mimir, VictoriaMetrics) as the source of a run: asks only the
//! addresses that the operator allowed, and keeps the answer byte for byte as a file of the run.
//!
//! Where to look first: [`address`] for who may be asked, [`selector`] for what may be asked, [`moment`] for when,
//! [`ask`] for the request and its bounds. Knows no route; what an answer means is `rankscope_ingest::query_range`.

pub mod address;
mod ask;
pub mod moment;
pub mod selector;

use crate::{
    errors::{Problem, ProblemKind, Result},
    intake::{Received, Spool, Upload},
    limits::size,
    store::{Store, now},
};
use address::Source;
use ask::{Asked, Failure, Query};
use moment::Span;
use rankscope_ingest::{Limits, ReadContext, query_range};
use rankscope_model::{ArtifactId, Bytes};
use selector::Selector;
use std::{
    io::BufReader,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// Requests to such servers at the same time, of all visitors together.
const AT_ONCE: usize = 2;
/// Prometheus refuses more than 11 000 points a series; some room is left for the rounding of the ends.
const MAX_POINTS: i64 = 10_000;
/// Finest step that is chosen by itself, in seconds: exporters take a value every 15 or 30.
const FINEST: i64 = 10;
/// Points of the query that only tells capacities.
const CAPACITY_POINTS: i64 = 10;
/// Longest range, in seconds.
const MOST_SECONDS: i64 = 31 * 86_400;

/// Used memory of a card, as the exporters that are read name it.
const USED: [&str; 2] = ["DCGM_FI_DEV_FB_USED", "nvidia_smi_memory_used_bytes"];
/// What tells the capacity of a card, once an hour is enough.
const CAPACITY: [&str; 6] = [
    "DCGM_FI_DEV_FB_TOTAL",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_RESERVED",
    "nvidia_smi_memory_total_bytes",
    "nvidia_smi_memory_free_bytes",
    "nvidia_smi_memory_reserved_bytes",
];

/// How long and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// For both queries together.
    pub within: Duration,
    /// Bytes of both answers together.
    pub max_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { within: Duration::from_secs(45), max_bytes: 256 << 20 }
    }
}

/// The servers that may be asked.
#[derive(Debug)]
pub struct Sources {
    allowed: Vec<Source>,
    bounds: Bounds,
    turns: Arc<Semaphore>,
}

/// What somebody asks for, as it was written.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Address of the server.
    pub server: String,
    /// Label matchers, with or without braces; empty for all GPUs.
    pub selector: String,
    /// See [`moment::parse`]; empty for an hour before `to`.
    pub from: String,
    /// Empty for now.
    pub to: String,
    /// Seconds between readings; empty for as fine as the range allows.
    pub step: String,
}

impl Sources {
    /// Only these.
    pub fn new(allowed: Vec<Source>) -> Self {
        Self::with_bounds(allowed, Bounds::default())
    }

    /// The same with other bounds.
    pub fn with_bounds(allowed: Vec<Source>, bounds: Bounds) -> Self {
        Self { allowed, bounds, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The addresses, for a form.
    pub fn names(&self) -> Vec<String> {
        self.allowed.iter().map(ToString::to_string).collect()
    }

    /// Asks, and gives the answer as a file on its way into a run, with a title that says what it is.
    pub async fn bring(&self, wish: &Wish, store: &Store) -> Result<Upload> {
        let source = self.source(&wish.server)?;
        let selector: Selector = wish.selector.parse().map_err(Problem::invalid)?;
        let span = Span::parse(&wish.from, &wish.to, now().0).map_err(Problem::invalid)?;
        if span.seconds() > MOST_SECONDS {
            let days = MOST_SECONDS / 86_400;
            return Err(Problem::invalid(format!(
                "The range is longer than {days} days. Ask for the time of one run."
            )));
        }
        let step = step_of(&wish.step, span)?;
        let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() else {
            let detail = "Other visitors are reading from a Prometheus server right now. Try again in a minute.";
            return Err(Problem::new(ProblemKind::TooBusy, detail).retry_after(Duration::from_secs(30)));
        };
        let file = self.download(source.clone(), selector.clone(), span, step, store, turn).await?;
        let title = format!("GPU memory from {}, {span}", source.host());
        Ok(Upload { title: Some(title), files: vec![file], ..Upload::default() })
    }

    /// The address if it is on the list. What is asked is always built from the list's own words.
    fn source(&self, wanted: &str) -> Result<Source> {
        if let Some(found) = self.allowed.iter().find_map(|allowed| allowed.under(wanted.trim())) {
            return Ok(found);
        }
        let detail = if self.allowed.is_empty() {
            "This server asks no Prometheus. Its operator can allow one with --prometheus URL.".to_owned()
        } else {
            format!(
                "{:?} is not an address that the operator allowed. Allowed are: {}. Others can be added with \
                 --prometheus URL.",
                wanted.chars().take(200).collect::<String>(),
                self.names().join(", ")
            )
        };
        Err(Problem::new(ProblemKind::SourceNotAllowed, detail))
    }

    async fn download(
        &self,
        source: Source,
        selector: Selector,
        span: Span,
        step: i64,
        store: &Store,
        turn: tokio::sync::OwnedSemaphorePermit,
    ) -> Result<Received> {
        let mut spool = Spool::new(store)?;
        let bounds = self.bounds;
        let address = source.to_string();
        let asked = tokio::task::spawn_blocking(move || -> std::result::Result<Spool, Failure> {
            let _turn = turn;
            let ends = Instant::now() + bounds.within;
            let mut asked = Asked::new(&source, ends, bounds.max_bytes);
            asked.range(&Query { names: &USED, selector: &selector, span, step }, &mut spool)?;
            // A multiple of the step, so that its readings are among those of the first.
            let coarse = (span.seconds() / CAPACITY_POINTS / step).max(1) * step;
            asked.range(&Query { names: &CAPACITY, selector: &selector, span, step: coarse }, &mut spool)?;
            let file = spool.written().map_err(Failure::Disk)?;
            // A run of nothing helps nobody: say why before there is one.
            let limits = Limits::default();
            let ctx = ReadContext { artifact: ArtifactId(0), name: "prometheus.json", limits: &limits };
            match query_range::read(&mut BufReader::new(file), &ctx) {
                Ok(_) => Ok(spool),
                Err(error) => Err(Failure::NoSeries(error.to_string())),
            }
        })
        .await
        .map_err(Problem::internal)?;
        match asked {
            Ok(spool) => spool.finish("prometheus.json".to_owned()).await,
            Err(Failure::Disk(error)) => Err(Problem::from(crate::store::StoreError::Io(error))),
            Err(failure) => {
                let detail = format!("{address} gave no series: {}", failure.words(bounds));
                Err(Problem::new(ProblemKind::SourceFailed, detail))
            }
        }
    }
}

/// Seconds between readings.
fn step_of(text: &str, span: Span) -> Result<i64> {
    let least = (span.seconds() + MAX_POINTS - 1) / MAX_POINTS;
    let text = text.trim().trim_end_matches('s').trim_end();
    if text.is_empty() {
        return Ok(least.max(FINEST));
    }
    let asked = text.parse::<i64>().ok().filter(|step| (1..=86_400).contains(step));
    let asked = asked.ok_or_else(|| Problem::invalid("The step is a whole number of seconds from 1 to 86400."))?;
    if asked < least {
        return Err(Problem::invalid(format!(
            "A step of {asked} s over this range is more than the 11000 points a series that Prometheus gives. Take {least} s \
             or more, or a shorter range."
        )));
    }
    Ok(asked)
}

/// For sentences.
fn bytes(bytes: u64) -> String {
    size(Bytes(bytes).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(seconds: i64) -> Span {
        Span::parse("0", &seconds.to_string(), 0).unwrap()
    }

    #[test]
    fn the_step_keeps_the_points_under_what_prometheus_gives() {
        for seconds in [60, 3600, 86_400, 7 * 86_400, MOST_SECONDS] {
            let step = step_of("", span(seconds)).unwrap();
            assert!(step >= FINEST && seconds / step < 11_000, "{seconds}: {step}");
        }
        assert_eq!(step_of("", span(3600)).unwrap(), 10);
        assert_eq!(step_of(" 30s ", span(3600)).unwrap(), 30);
        for wrong in ["0", "-1", "x", "1e9", "99999999"] {
            assert!(step_of(wrong, span(3600)).is_err(), "{wrong}");
        }
        let refused = step_of("1", span(86_400)).unwrap_err();
        assert!(refused.detail().contains("9 s or more"), "{}", refused.detail());
    }

    #[test]
    fn who_is_not_on_the_list_is_refused_with_the_list() {
        let sources = Sources::new(vec!["http://prom.example:9090".parse().unwrap()]);
        let refused = sources.source("http://169.254.169.254/").unwrap_err();
        assert_eq!(refused.kind(), ProblemKind::SourceNotAllowed);
        assert!(refused.detail().contains("http://prom.example:9090"), "{}", refused.detail());
        assert!(Sources::new(vec![]).source("http://prom.example:9090").is_err());
    }
}
