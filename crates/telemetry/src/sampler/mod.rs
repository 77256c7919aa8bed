//! Samples of this node's GPUs for as long as they are wanted: memory many times a second, health and processes once.
//!
//! One thread owns the driver's handles and turns what it reads into the lines of `rankscope.live/1`, which go to
//! whoever holds the other end of the channel: an agent, or a server on the same machine. Knows neither spool nor HTTP.

mod assembler;
mod known;
mod refusal;
mod session;
mod ticks;

use crate::rank::ProcFs;
use assembler::Assembler;
use rankscope_model::UnixMicros;
use rankscope_model::{LiveLine, LiveRecord};
use session::Ending;
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Deliveries that wait for a slow receiver, about one a second; what does not fit is given up and counted.
const WAITING: usize = 16;

/// Shortest and longest pause before a driver that is not there is looked for again.
const DRIVER_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A session that lasted longer ended for a new reason: the pauses begin anew.
const STEADY: Duration = Duration::from_mins(1);

/// What is sampled, and how often.
#[derive(Debug, Clone)]
pub struct SamplerConfig {
    /// Another library than the system's.
    pub library: Option<PathBuf>,
    /// Where processes are looked up.
    pub proc: ProcFs,
    /// The node's name, as batches carry it.
    pub node: String,
    /// Samples of memory per second.
    pub hz: Hz,
    /// Version of the program that samples, for [`rankscope_model::LiveNode::agent`].
    pub agent: Option<String>,
}

/// Samples per second: 1 to 50.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hz(NonZeroU32);

impl Hz {
    /// Most samples per second: a memory query takes some ten microseconds per device.
    pub const MOST: u32 = 50;

    /// `None` outside 1 to [`Self::MOST`].
    pub fn new(hz: u32) -> Option<Self> {
        NonZeroU32::new(hz).filter(|hz| hz.get() <= Self::MOST).map(Self)
    }

    /// As a number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl Default for Hz {
    fn default() -> Self {
        Self(NonZeroU32::MIN.saturating_add(9))
    }
}

/// What was sampled in about a second.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delivery {
    /// What the receiver was too slow for, before these lines.
    pub lost: Lost,
    /// In order of time.
    pub lines: Vec<Timed>,
}

/// Lines that were given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// How many.
    pub lines: u64,
    /// Figures of memory among them.
    pub samples: u64,
}

/// A line that has no number yet: its receiver counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// When it was read.
    pub t: UnixMicros,
    /// What it says.
    pub record: LiveRecord,
}

impl Timed {
    /// With its place among the lines of its source.
    pub fn numbered(self, seq: u64) -> LiveLine {
        LiveLine { seq, t: self.t, record: self.record }
    }
}

/// A thread that samples. Ends when this is dropped, or with [`Self::stop`].
#[derive(Debug)]
pub struct Sampler {
    /// Its deliveries. Closed once the thread has ended.
    pub deliveries: Receiver<Delivery>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// Starts sampling. A machine without a driver is no error: the lines say so, and the driver is waited for.
pub fn spawn(config: SamplerConfig) -> io::Result<Sampler> {
    let (sender, deliveries) = sync_channel(WAITING);
    let stop = Arc::new(Stop::default());
    let theirs = Arc::clone(&stop);
    let thread = std::thread::Builder::new()
        .name("nvml-sampler".into())
        .spawn(move || sample(&config, &theirs, Outlet { sender, lost: Lost::default() }))?;
    Ok(Sampler { deliveries, stop, thread: Some(thread) })
}

impl Sampler {
    /// Asks the thread to end; what it has read by then is still delivered. Does not wait: the deliveries end when it
    /// has ended.
    pub fn stop(&self) {
        self.stop.ask();
    }

    /// What asks the thread to end, for another thread than the one that receives.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + use<> {
        let stop = Arc::clone(&self.stop);
        move || stop.ask()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            // It ends at its next tick; a receiver that waits for nothing cannot hold it. A panic of its own was shown.
            let _ = thread.join();
        }
    }
}

fn sample(config: &SamplerConfig, stop: &Stop, mut outlet: Outlet) {
    let mut assembler = Assembler::new(config);
    let mut pause = DRIVER_PAUSES.0;
    while !stop.asked() {
        let began = Instant::now();
        let ending = session::run(config, &mut assembler, stop, &mut outlet);
        if outlet.deliver(&mut assembler).is_break() {
            return;
        }
        if began.elapsed() > STEADY {
            pause = DRIVER_PAUSES.0;
        }
        match ending {
            Ending::Stopped => return,
            Ending::Renew => {}
            Ending::NoDriver => {
                if stop.wait_until(Instant::now() + pause) {
                    return;
                }
                pause = (pause * 2).min(DRIVER_PAUSES.1);
            }
        }
    }
}

/// Now, as lines have it.
fn now() -> UnixMicros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Tells the thread to end, also while it sleeps.
#[derive(Debug, Default)]
struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn ask(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn asked(&self) -> bool {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps; true when it was asked to end.
    fn wait_until(&self, deadline: Instant) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        while !*asked {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            asked = self.changed.wait_timeout(asked, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *asked
    }
}

/// Where the lines go. Never waits: the ticks must not.
struct Outlet {
    sender: SyncSender<Delivery>,
    lost: Lost,
}

impl Outlet {
    /// Hands over what was assembled. Breaks when nobody receives any more.
    fn deliver(&mut self, assembler: &mut Assembler) -> std::ops::ControlFlow<()> {
        let lines = assembler.take();
        if lines.is_empty() {
            return std::ops::ControlFlow::Continue(());
        }
        match self.sender.try_send(Delivery { lost: self.lost, lines }) {
            Ok(()) => self.lost = Lost::default(),
            Err(TrySendError::Full(delivery)) => {
                self.lost.lines += delivery.lines.len() as u64;
                self.lost.samples += delivery.lines.iter().map(|line| figures(&line.record)).sum::<u64>();
                // States and devices among the lines must not be missing for good.
                assembler.say_all_again();
            }
            Err(TrySendError::Disconnected(_)) => return std::ops::ControlFlow::Break(()),
        }
        std::ops::ControlFlow::Continue(())
    }
}

/// Figures of memory in a line.
pub fn figures(record: &LiveRecord) -> u64 {
    match record {
        LiveRecord::Memory(memory) => memory.figures(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_per_second_have_bounds() {
        assert_eq!(Hz::default().get(), 10);
        assert_eq!(Hz::new(50).map(Hz::get), Some(50));
        assert_eq!((Hz::new(0), Hz::new(51)), (None, None));
    }

    #[test]
    fn a_sleeper_is_woken() {
        let stop = Arc::new(Stop::default());
        let theirs = Arc::clone(&stop);
        let sleeper = std::thread::spawn(move || theirs.wait_until(Instant::now() + Duration::from_mins(1)));
        stop.ask();
        assert!(sleeper.join().unwrap());
        assert!(!Stop::default().wait_until(Instant::now()));
    }

    #[test]
    fn what_a_slow_receiver_misses_is_counted_and_the_devices_are_said_again() {
        let config = SamplerConfig {
            library: None,
            proc: ProcFs::at("/nonexistent"),
            node: "n".into(),
            hz: Hz::default(),
            agent: None,
        };
        let mut assembler = Assembler::new(&config);
        let (sender, deliveries) = sync_channel(1);
        let mut outlet = Outlet { sender, lost: Lost::default() };
        for second in 0..3 {
            assembler.driver_gone(UnixMicros(second), &format!("no driver ({second})"));
            assert!(outlet.deliver(&mut assembler).is_continue());
        }
        assert_eq!(deliveries.recv().unwrap().lost, Lost::default());
        assembler.driver_gone(UnixMicros(4), "no driver (2)");
        assert!(outlet.deliver(&mut assembler).is_continue());
        let after = deliveries.recv().unwrap();
        assert!(after.lost.lines >= 2, "{after:?}");
        assert!(after.lines.iter().any(|line| matches!(line.record, LiveRecord::Node(_))), "{after:?}");
        assert!(after.lines.iter().any(|line| matches!(line.record, LiveRecord::State(_))), "{after:?}");
        drop(deliveries);
        assembler.driver_gone(UnixMicros(5), "gone");
        assert!(outlet.deliver(&mut assembler).is_break());
    }
}
