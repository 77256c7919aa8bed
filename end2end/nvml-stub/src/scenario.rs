//! What the stub plays, as lines of words and `name=value` pairs; `#` begins a comment:
//!
//! ```text
//! driver version=550.54.15 cuda=12040
//! init code=9                                     (DRIVER_NOT_LOADED; nothing else matters then)
//! memory v2=3                                     (every memory v2 call returns NOT_SUPPORTED)
//! gpu name=A100 total=81920 reserved=600 used=31234 busy=97 display=1 mig=1 code=15
//! gpu total=81920 idle=4 power=400 temperature=61 clock=1980 throttle=4 compute=0 ecc=1
//! slice gpu=0 gi=2 ci=0 total=40192 reserved=10 used=30000
//! process gpu=0 pid=4711 used=31000 list=compute  (MiB; without `used`, the driver does not know it)
//! process gpu=0 pid=4712 used=31000 wave=2000 period=4
//! grow by=10 times=1                              (that many processes appear between counting and reading)
//! proc pid=4711 ppid=1 exe=/usr/bin/python3 started=7000 inside=12 env=RANK=0;WORLD_SIZE=8
//! clock kept=1
//! at s=12 gpu=0 used=45000 over=8 code=15 busy=0 power=90 mig=1
//! at s=12 pid=4711 gpu=0 used=33000 over=8
//! at s=5 process gpu=0 pid=4720 used=450 over=1
//! at s=5 proc pid=4720 env=RANK=1
//! at s=30 gone pid=4711 gpu=0
//! at s=9 xid gpu=3 number=79
//! at s=9 slice gpu=0 gi=1 ci=0 total=19968
//! at s=9 unslice gpu=0
//! at s=20 restart seconds=3
//! ```
//! GPUs are numbered in the order of their lines. Sizes are MiB, power is watts. A GPU or slice with `idle` uses that
//! and what its processes use; otherwise it uses `used`. `wave` swings up and down within `period` seconds, as
//! activations do. With `over`, the new value is reached within that many seconds.
//!
//! `at` lines happen so many seconds after `nvmlInit_v2`; with `clock kept=1` after the first one that any process made
//! (a file beside the library keeps the time). `restart`: the driver goes away for so long, and a caller must initialise
//! anew. `proc` lines are written into a folder `proc` beside the library, laid out as the kernel's, and removed with
//! `gone` (without `gpu`).
//!
//! Unknown words are an error: `nvmlInit_v2` then returns UNKNOWN, so that a typing error in a test does not pass unseen.

use crate::level::Level;
use std::collections::HashMap;
use std::str::FromStr;

/// Everything the stub answers.
#[derive(Debug, Default)]
pub struct Scenario {
    pub init_code: u32,
    pub driver_version: String,
    pub cuda_version: i32,
    /// Returned by every memory v2 call unless zero.
    pub memory_v2_code: u32,
    pub devices: Vec<Device>,
    pub processes: Vec<Process>,
    /// Processes that appear between counting and reading, and how many times this happens.
    pub grow_by: u32,
    pub grow_times: u32,
    /// Time goes on from one initialisation to the next.
    pub clock_kept: bool,
    pub proc: Vec<ProcEntry>,
    /// By ascending time.
    pub events: Vec<(f64, Event)>,
}

/// A GPU, or a slice of one.
#[derive(Debug, Clone, Default)]
pub struct Device {
    pub name: String,
    pub total: u64,
    pub reserved: u64,
    pub used: Level,
    /// Used without any process; `used` is then not looked at.
    pub idle: Option<u64>,
    pub busy: Option<u32>,
    /// Watts.
    pub power: Option<u32>,
    pub temperature: Option<u32>,
    /// MHz.
    pub clock: Option<u32>,
    pub throttle: Option<u64>,
    pub compute_mode: Option<u32>,
    pub ecc: Option<bool>,
    pub display: bool,
    /// `None`: the device does not know MIG.
    pub mig: Option<bool>,
    /// Returned by every call on this device unless zero.
    pub code: u32,
    /// For slices: parent's number, GPU instance, compute instance.
    pub slice: Option<(usize, u32, u32)>,
    /// A slice that was removed.
    pub removed: bool,
}

/// A process on a device or slice.
#[derive(Debug, Clone)]
pub struct Process {
    /// Position in [`Scenario::devices`] of the physical GPU.
    pub gpu: usize,
    pub pid: u32,
    pub used: Option<Level>,
    pub list: List,
    pub slice: Option<(u32, u32)>,
}

/// Which of NVML's lists a process stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    Compute,
    Graphics,
    Mps,
}

/// A process as `/proc` shows it.
#[derive(Debug, Clone)]
pub struct ProcEntry {
    pub pid: u32,
    pub parent: u32,
    pub program: String,
    pub started: u64,
    pub inside: Option<u32>,
    pub environment: Vec<String>,
}

/// Something that happens at a moment.
#[derive(Debug, Clone)]
pub enum Event {
    Device { gpu: usize, change: Box<DeviceChange> },
    Level { gpu: Option<usize>, pid: u32, to: u64, over: f64 },
    Appears(Process),
    Gone { gpu: Option<usize>, pid: u32 },
    Proc(ProcEntry),
    Xid { gpu: usize, number: u64 },
    Slice(Box<Device>),
    Unslice { gpu: usize },
    Restart { seconds: f64 },
}

/// What becomes of a device; what is absent stays.
#[derive(Debug, Clone)]
pub struct DeviceChange {
    pub used: Option<(u64, f64)>,
    pub idle: Option<u64>,
    pub busy: Option<u32>,
    pub power: Option<u32>,
    pub temperature: Option<u32>,
    pub clock: Option<u32>,
    pub throttle: Option<u64>,
    pub mig: Option<bool>,
    pub code: Option<u32>,
}

const MIB: u64 = 1 << 20;

type Pairs<'a> = HashMap<&'a str, &'a str>;

impl Scenario {
    /// `None` when a line is not understood.
    pub fn parse(text: &str) -> Option<Self> {
        let mut scenario = Self { cuda_version: 12_040, driver_version: "550.54.15".into(), ..Self::default() };
        let mut slices = Vec::new();
        for line in text.lines().map(without_comment).filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace().peekable();
            let kind = words.next()?;
            if kind == "at" {
                let seconds = words.next()?.strip_prefix("s=")?.parse().ok()?;
                let kind = words.next_if(|word| !word.contains('='));
                let mut pairs = words.map(|word| word.split_once('=')).collect::<Option<Pairs>>()?;
                scenario.events.push((seconds, Event::parse(kind, &mut pairs)?));
                if !pairs.is_empty() {
                    return None;
                }
                continue;
            }
            let mut pairs = words.map(|word| word.split_once('=')).collect::<Option<Pairs>>()?;
            match kind {
                "driver" => {
                    scenario.driver_version = take(&mut pairs, "version")??;
                    scenario.cuda_version = take(&mut pairs, "cuda")??;
                }
                "init" => scenario.init_code = take(&mut pairs, "code")??,
                "memory" => scenario.memory_v2_code = take(&mut pairs, "v2")??,
                "gpu" => scenario.devices.push(Device::parse(&mut pairs)?),
                "slice" => slices.push(Device::parse_slice(&mut pairs)?),
                "process" => scenario.processes.push(Process::parse(&mut pairs)?),
                "grow" => {
                    scenario.grow_by = take(&mut pairs, "by")??;
                    scenario.grow_times = take(&mut pairs, "times")??;
                }
                "proc" => scenario.proc.push(ProcEntry::parse(&mut pairs)?),
                "clock" => scenario.clock_kept = take::<u8>(&mut pairs, "kept")?? != 0,
                _ => return None,
            }
            if !pairs.is_empty() {
                return None;
            }
        }
        scenario.devices.append(&mut slices);
        scenario.events.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Some(scenario)
    }

    /// Number of physical GPUs; they stand before the slices.
    pub fn gpus(&self) -> usize {
        self.devices.iter().filter(|device| device.slice.is_none()).count()
    }

    /// Bytes that a device uses at `now`, its reserve left out.
    pub fn used(&self, device: &Device, number: usize, now: f64) -> u64 {
        let Some(idle) = device.idle else { return device.used.at(now) };
        let is_there = |process: &&Process| match device.slice {
            Some((gpu, gpu_instance, compute_instance)) => {
                process.gpu == gpu && process.slice == Some((gpu_instance, compute_instance))
            }
            None => process.gpu == number,
        };
        let processes = self.processes.iter().filter(is_there);
        idle + processes.filter_map(|process| process.used).map(|used| used.at(now)).sum::<u64>()
    }
}

fn without_comment(line: &str) -> &str {
    line.split_once('#').map_or(line, |(line, _)| line).trim()
}

impl Device {
    fn parse(pairs: &mut Pairs<'_>) -> Option<Self> {
        let mib = |value: Option<u64>| value.unwrap_or_default() * MIB;
        let flag = |value: Option<u8>| value.map(|value| value != 0);
        Some(Self {
            name: pairs.remove("name").unwrap_or("Stub").replace('_', " "),
            total: mib(take(pairs, "total")?),
            reserved: mib(take(pairs, "reserved")?),
            used: Level::steady(mib(take(pairs, "used")?)),
            idle: take(pairs, "idle")?.map(|mib: u64| mib * MIB),
            busy: take(pairs, "busy")?,
            power: take(pairs, "power")?,
            temperature: take(pairs, "temperature")?,
            clock: take(pairs, "clock")?,
            throttle: take(pairs, "throttle")?,
            compute_mode: take(pairs, "compute")?,
            ecc: flag(take(pairs, "ecc")?),
            display: flag(take(pairs, "display")?).unwrap_or_default(),
            mig: flag(take(pairs, "mig")?),
            code: take(pairs, "code")?.unwrap_or_default(),
            slice: None,
            removed: false,
        })
    }

    fn parse_slice(pairs: &mut Pairs<'_>) -> Option<Self> {
        let place = (take(pairs, "gpu")??, take(pairs, "gi")??, take(pairs, "ci")??);
        Some(Self { slice: Some(place), ..Self::parse(pairs)? })
    }
}

impl Process {
    fn parse(pairs: &mut Pairs<'_>) -> Option<Self> {
        let gpu_instance: Option<u32> = take(pairs, "gi")?;
        let compute_instance: Option<u32> = take(pairs, "ci")?;
        let list = match pairs.remove("list").unwrap_or("compute") {
            "compute" => List::Compute,
            "graphics" => List::Graphics,
            "mps" => List::Mps,
            _ => return None,
        };
        let wave: u64 = take(pairs, "wave")?.unwrap_or_default();
        let period: f64 = take(pairs, "period")?.unwrap_or(1.0);
        Some(Self {
            gpu: take(pairs, "gpu")??,
            pid: take(pairs, "pid")??,
            used: take(pairs, "used")?.map(|mib: u64| Level::steady(mib * MIB).with_wave(wave * MIB, period)),
            list,
            slice: gpu_instance.zip(compute_instance),
        })
    }
}

impl ProcEntry {
    fn parse(pairs: &mut Pairs<'_>) -> Option<Self> {
        Some(Self {
            pid: take(pairs, "pid")??,
            parent: take(pairs, "ppid")?.unwrap_or(1),
            program: pairs.remove("exe").unwrap_or("/usr/bin/python3").to_owned(),
            started: take(pairs, "started")?.unwrap_or(1000),
            inside: take(pairs, "inside")?,
            environment: pairs.remove("env").unwrap_or_default().split(';').map(str::to_owned).collect(),
        })
    }
}

impl Event {
    fn parse(kind: Option<&str>, pairs: &mut Pairs<'_>) -> Option<Self> {
        let over = |pairs: &mut Pairs<'_>| Some(take(pairs, "over")?.unwrap_or_default());
        Some(match kind {
            None if pairs.contains_key("pid") => Self::Level {
                gpu: take(pairs, "gpu")?,
                pid: take(pairs, "pid")??,
                to: take::<u64>(pairs, "used")?? * MIB,
                over: over(pairs)?,
            },
            None => Self::Device { gpu: take(pairs, "gpu")??, change: Box::new(DeviceChange::parse(pairs)?) },
            Some("process") => {
                let over: f64 = over(pairs)?;
                let process = Process::parse(pairs)?;
                Self::Appears(Process { used: process.used.map(|used| used.growing(over)), ..process })
            }
            Some("gone") => Self::Gone { gpu: take(pairs, "gpu")?, pid: take(pairs, "pid")?? },
            Some("proc") => Self::Proc(ProcEntry::parse(pairs)?),
            Some("xid") => Self::Xid { gpu: take(pairs, "gpu")??, number: take(pairs, "number")?? },
            Some("slice") => Self::Slice(Box::new(Device::parse_slice(pairs)?)),
            Some("unslice") => Self::Unslice { gpu: take(pairs, "gpu")?? },
            Some("restart") => Self::Restart { seconds: take(pairs, "seconds")?? },
            Some(_) => return None,
        })
    }
}

impl DeviceChange {
    fn parse(pairs: &mut Pairs<'_>) -> Option<Self> {
        let over: f64 = take(pairs, "over")?.unwrap_or_default();
        Some(Self {
            used: take(pairs, "used")?.map(|mib: u64| (mib * MIB, over)),
            idle: take(pairs, "idle")?.map(|mib: u64| mib * MIB),
            busy: take(pairs, "busy")?,
            power: take(pairs, "power")?,
            temperature: take(pairs, "temperature")?,
            clock: take(pairs, "clock")?,
            throttle: take(pairs, "throttle")?,
            mig: take(pairs, "mig")?.map(|value: u8| value != 0),
            code: take(pairs, "code")?,
        })
    }
}

/// The value of `name`: `None` when it is not what it should be, `Some(None)` when it is absent.
#[allow(clippy::option_option)]
fn take<T: FromStr>(pairs: &mut Pairs<'_>, name: &str) -> Option<Option<T>> {
    match pairs.remove(name) {
        None => Some(None),
        Some(value) => value.parse().ok().map(Some),
    }
}
