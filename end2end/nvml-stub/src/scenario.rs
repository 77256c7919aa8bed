//! What the stub plays, as lines of words and `name=value` pairs:
//!
//! ```text
//! driver version=550.54.15 cuda=12040
//! init code=9                                     (DRIVER_NOT_LOADED; nothing else matters then)
//! memory v2=3                                     (every memory v2 call returns NOT_SUPPORTED)
//! gpu name=A100 total=81920 reserved=600 used=31234 busy=97 display=1 mig=1 code=15
//! slice gpu=0 gi=2 ci=0 total=40192 reserved=10 used=30000
//! process gpu=0 pid=4711 used=31000 list=compute  (MiB; without `used`, the driver does not know it)
//! grow by=10 times=1                              (that many processes appear between counting and reading)
//! ```
//! GPUs are numbered in the order of their lines. Sizes are MiB. Unknown words are an error: `nvmlInit_v2` then returns
//! UNKNOWN, so that a typing error in a test does not pass unseen.

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
}

/// A GPU, or a slice of one.
#[derive(Debug, Default)]
pub struct Device {
    pub name: String,
    pub total: u64,
    pub reserved: u64,
    pub used: u64,
    pub busy: Option<u32>,
    pub display: bool,
    /// `None`: the device does not know MIG.
    pub mig: Option<bool>,
    /// Returned by every call on this device unless zero.
    pub code: u32,
    /// For slices: parent's number, GPU instance, compute instance.
    pub slice: Option<(usize, u32, u32)>,
}

/// A process on a device or slice.
#[derive(Debug, Clone)]
pub struct Process {
    /// Position in [`Scenario::devices`] of the physical GPU.
    pub gpu: usize,
    pub pid: u32,
    pub used: Option<u64>,
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

const MIB: u64 = 1 << 20;

impl Scenario {
    /// `None` when a line is not understood.
    pub fn parse(text: &str) -> Option<Self> {
        let mut scenario = Self { cuda_version: 12_040, driver_version: "550.54.15".into(), ..Self::default() };
        let mut slices = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            let kind = words.next()?;
            let mut pairs: HashMap<&str, &str> = words.map(|word| word.split_once('=')).collect::<Option<_>>()?;
            match kind {
                "driver" => {
                    scenario.driver_version = take(&mut pairs, "version")??;
                    scenario.cuda_version = take(&mut pairs, "cuda")??;
                }
                "init" => scenario.init_code = take(&mut pairs, "code")??,
                "memory" => scenario.memory_v2_code = take(&mut pairs, "v2")??,
                "gpu" => scenario.devices.push(Device::parse(&mut pairs)?),
                "slice" => {
                    let place = (take(&mut pairs, "gpu")??, take(&mut pairs, "gi")??, take(&mut pairs, "ci")??);
                    slices.push(Device { slice: Some(place), ..Device::parse(&mut pairs)? });
                }
                "process" => scenario.processes.push(Process::parse(&mut pairs)?),
                "grow" => {
                    scenario.grow_by = take(&mut pairs, "by")??;
                    scenario.grow_times = take(&mut pairs, "times")??;
                }
                _ => return None,
            }
            if !pairs.is_empty() {
                return None;
            }
        }
        scenario.devices.append(&mut slices);
        Some(scenario)
    }

    /// Number of physical GPUs; they stand before the slices.
    pub fn gpus(&self) -> usize {
        self.devices.iter().filter(|device| device.slice.is_none()).count()
    }
}

impl Device {
    fn parse(pairs: &mut HashMap<&str, &str>) -> Option<Self> {
        let mib = |value: Option<u64>| value.unwrap_or_default() * MIB;
        let flag = |value: Option<u8>| value.map(|value| value != 0);
        Some(Self {
            name: pairs.remove("name").unwrap_or("Stub").replace('_', " "),
            total: mib(take(pairs, "total")?),
            reserved: mib(take(pairs, "reserved")?),
            used: mib(take(pairs, "used")?),
            busy: take(pairs, "busy")?,
            display: flag(take(pairs, "display")?).unwrap_or_default(),
            mig: flag(take(pairs, "mig")?),
            code: take(pairs, "code")?.unwrap_or_default(),
            slice: None,
        })
    }
}

impl Process {
    fn parse(pairs: &mut HashMap<&str, &str>) -> Option<Self> {
        let gpu_instance: Option<u32> = take(pairs, "gi")?;
        let compute_instance: Option<u32> = take(pairs, "ci")?;
        let list = match pairs.remove("list").unwrap_or("compute") {
            "compute" => List::Compute,
            "graphics" => List::Graphics,
            "mps" => List::Mps,
            _ => return None,
        };
        Some(Self {
            gpu: take(pairs, "gpu")??,
            pid: take(pairs, "pid")??,
            used: take(pairs, "used")?.map(|mib: u64| mib * MIB),
            list,
            slice: gpu_instance.zip(compute_instance),
        })
    }
}

/// The value of `name`: `None` when it is not what it should be, `Some(None)` when it is absent.
#[allow(clippy::option_option)]
fn take<T: FromStr>(pairs: &mut HashMap<&str, &str>, name: &str) -> Option<Option<T>> {
    match pairs.remove(name) {
        None => Some(None),
        Some(value) => value.parse().ok().map(Some),
    }
}
