//! Sampling from one opening of the driver to the moment at which it must be opened anew.
//!
//! What costs the driver's lock is spread over the ticks: the processes of one device at a time. Throughput counters of
//! the bus are never asked for, and nothing here creates a context.

use super::assembler::{Assembler, Listing};
use super::known::KnownProcesses;
use super::refusal::Refusal;
use super::ticks::Ticks;
use super::{Outlet, SamplerConfig, Stop, now};
use crate::devices::{self, Found};
use crate::memory::{self, MemoryMeaning};
use crate::nvml::{Nvml, NvmlState};
use crate::process_list::{self, Listed, Lists};
use crate::reading::place;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, ComputeMode, TemperatureSensor};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::{Device, EventSet};
use rankscope_model::{Bytes, Subject};
use rankscope_model::{LiveDevice, LiveDeviceHealth, LiveStateKind};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Seconds between two looks at what identifies the devices.
const SURVEY_SECONDS: u64 = 5;

/// While a device is lost, the driver is opened anew this often: only that brings it back.
const RENEW: Duration = Duration::from_secs(30);

/// The processes are listed so seldom that the driver's lock is held for at most this share of the time by it.
const LOCK_SHARE: u32 = 20;
/// But not less often than this.
const SLOWEST_LIST: Duration = Duration::from_secs(30);
/// Lists of graphics and MPS processes are read with every so many lists of compute processes: they seldom change, and
/// each costs as much.
const FULL_LIST_EVERY: u64 = 10;

/// Longest process name asked of the driver, in bytes.
const NAME_BYTES: usize = 256;

/// Reasons for a held clock, in the bits of NVML's mask and the driver's words.
const THROTTLE: [(u64, &str); 9] = [
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
];

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was asked to.
    Stopped,
    /// There is no driver, or it went away.
    NoDriver,
    /// The driver is to be opened anew at once.
    Renew,
}

/// Opens the driver and samples.
pub fn run(config: &SamplerConfig, assembler: &mut Assembler, stop: &Stop, outlet: &mut Outlet) -> Ending {
    match NvmlState::open(config.library.as_deref()) {
        NvmlState::Ready(nvml) => {
            assembler.driver_ready(now());
            let mut session = Session::new(&nvml, config);
            session.survey(assembler);
            session.sample(assembler, stop, outlet)
        }
        state => {
            assembler.driver_gone(now(), &format!("{state}."));
            Ending::NoDriver
        }
    }
}

/// A device, and what was learned about it.
struct Card<'nvml> {
    found: Found<'nvml>,
    health: Option<HealthCalls>,
    /// Why it did not answer last.
    refusal: Option<Refusal>,
}

struct Session<'nvml> {
    nvml: &'nvml Nvml,
    meaning: MemoryMeaning,
    cards: Vec<Card<'nvml>>,
    ticks: Ticks,
    began: Instant,
    known: KnownProcesses,
    lists: Lister,
    events: Option<EventSet<'nvml>>,
    /// Kept between ticks.
    values: Vec<Result<Bytes, Refusal>>,
}

impl<'nvml> Session<'nvml> {
    fn new(nvml: &'nvml Nvml, config: &SamplerConfig) -> Self {
        let began = Instant::now();
        Self {
            nvml,
            meaning: MemoryMeaning::WithoutReserve,
            cards: Vec::new(),
            ticks: Ticks::new(began, config.hz.get()),
            began,
            known: KnownProcesses::new(config.proc.clone()),
            lists: Lister::new(began),
            events: None,
            values: Vec::new(),
        }
    }

    fn sample(&mut self, assembler: &mut Assembler, stop: &Stop, outlet: &mut Outlet) -> Ending {
        let mut second = None;
        loop {
            if stop.wait_until(self.ticks.deadline()) {
                return Ending::Stopped;
            }
            let new_second = second != Some(self.ticks.second());
            if new_second {
                second = Some(self.ticks.second());
                if outlet.deliver(assembler).is_break() {
                    return Ending::Stopped;
                }
                if self.ticks.second() > 0 && self.ticks.second().is_multiple_of(SURVEY_SECONDS) {
                    self.survey(assembler);
                }
            }
            if self.memory(assembler, new_second).is_err() {
                return Ending::NoDriver;
            }
            self.processes(assembler, new_second);
            if new_second {
                self.health(assembler);
                self.xids(assembler);
                if assembler.any_lost() && self.began.elapsed() > RENEW {
                    return Ending::Renew;
                }
            }
            self.ticks.advance(Instant::now());
        }
    }

    /// Looks for devices and slices, and at what identifies them. Handles are taken anew where something changed.
    fn survey(&mut self, assembler: &mut Assembler) {
        let mut warnings = Vec::new();
        let found = devices::find(self.nvml, &mut warnings);
        // A device that cannot be opened is a state of its own, said with its memory.
        warnings.clear();
        let handles: Vec<_> = found.iter().map(|device| device.handle.as_ref()).collect();
        let (meaning, memories) = memory::read(self.nvml, &handles);
        if meaning == MemoryMeaning::WithReserve {
            warnings
                .push("Used memory counts the driver's own reserve in: this driver lacks the newer call.".to_owned());
        }
        let known: BTreeMap<Subject, LiveDevice> =
            assembler.devices().map(|known| (known.subject, known.clone())).collect();
        let devices: Vec<LiveDevice> = found
            .iter()
            .zip(&memories)
            .map(|(device, memory)| match (&device.handle, known.get(&device.subject)) {
                // What was known of a device that is lost stays true.
                (handle, Some(known)) if handle.is_none() || memory.is_err() => known.clone(),
                _ => identity(device, memory.as_ref().ok()),
            })
            .collect();
        let driver = self.nvml.wrapper.sys_driver_version().ok();
        let changed = assembler.node(now(), devices, driver, self.nvml.cuda_version(), warnings);
        self.meaning = meaning;
        if changed || self.cards.is_empty() {
            self.lists.forget();
            self.cards = found
                .into_iter()
                .map(|found| {
                    let is_gpu = matches!(found.subject, Subject::Device(_));
                    Card { health: is_gpu.then(HealthCalls::all), refusal: None, found }
                })
                .collect();
            self.events = self.register();
        }
    }

    /// One sample. An error when the driver is gone.
    fn memory(&mut self, assembler: &mut Assembler, new_second: bool) -> Result<(), ()> {
        let (t, at) = (now(), Instant::now());
        self.values.clear();
        let mut without_driver = None;
        for card in &mut self.cards {
            // A device that is out is asked once a second only.
            if let Some(refusal) = card.refusal.as_ref().filter(|_| !new_second) {
                self.values.push(Err(refusal.clone()));
                continue;
            }
            let read = match &card.found.handle {
                Some(handle) => memory::read_as(self.meaning, self.nvml, handle),
                None => Err(NvmlError::GpuLost),
            };
            let value = read.map(|memory| memory.used).map_err(|error| Refusal::from(&error));
            card.refusal = value.as_ref().err().filter(|refusal| !matches!(refusal, Refusal::Other(_))).cloned();
            if let Err(Refusal::NoDriver(words)) = &value {
                without_driver = Some(words.clone());
            }
            self.values.push(value);
        }
        if let Some(words) = without_driver {
            assembler.driver_gone(t, &format!("NVML: the NVIDIA driver went away ({words})."));
            return Err(());
        }
        assembler.memory(t, at, &self.values);
        Ok(())
    }

    fn health(&mut self, assembler: &mut Assembler) {
        let t = now();
        let mut devices = Vec::with_capacity(self.cards.len());
        for card in &mut self.cards {
            let (Some(calls), Some(handle), None) = (&mut card.health, &card.found.handle, &card.refusal) else {
                continue;
            };
            let subject = card.found.subject;
            let (health, refused) = calls.read(subject, handle);
            devices.push(health);
            for kind in [LiveStateKind::NotSupported, LiveStateKind::NoPermission] {
                let figures: Vec<&str> = refused.iter().filter(|(_, of)| *of == kind).map(|(name, _)| *name).collect();
                if !figures.is_empty() {
                    assembler.not_told(t, subject, kind, &figures);
                }
            }
        }
        assembler.health(t, devices);
    }

    /// Lists the processes of as many devices as there are for this tick.
    fn processes(&mut self, assembler: &mut Assembler, new_second: bool) {
        if new_second && self.lists.is_due(Instant::now()) {
            self.known.begin();
            self.lists.begin(self.cards.len());
        }
        let share = self.cards.len().div_ceil(self.ticks.per_second());
        for _ in 0..share {
            let Some(index) = self.lists.next() else { return };
            let Some(card) = self.cards.get(index) else { continue };
            if let Some(handle) = card.found.handle.as_ref().filter(|_| card.refusal.is_none()) {
                self.lists.read(self.nvml, card.found.subject, handle);
            } else {
                self.lists.listing.lacking = true;
            }
            if self.lists.is_complete() {
                let rows: Vec<_> = self
                    .lists
                    .complete()
                    .into_iter()
                    .map(|((subject, pid), listed)| {
                        let mut known = self.known.get(pid).clone();
                        if known.name.is_none() {
                            // Of another namespace, or gone: the driver may know.
                            known.name = self
                                .nvml
                                .wrapper
                                .sys_process_name(pid, NAME_BYTES)
                                .ok()
                                .and_then(|name| program(&name));
                        }
                        (subject, listed, known)
                    })
                    .collect();
                assembler.processes(now(), self.lists.listing, &rows);
            }
        }
    }

    /// Where the driver reports Xids, the set that they arrive in. Lost devices cannot be registered.
    fn register(&self) -> Option<EventSet<'nvml>> {
        let library = self.nvml.wrapper.lib();
        // Without it, dropping a set would panic.
        library.nvmlEventSetFree.as_ref().ok()?;
        // The wrapper's own function gives the set up with the first device that refuses.
        let register = library.nvmlDeviceRegisterEvents.as_ref().ok()?;
        let set = self.nvml.wrapper.create_event_set().ok()?;
        let mut any = false;
        for card in self.cards.iter().filter(|card| matches!(card.found.subject, Subject::Device(_))) {
            let Some(handle) = &card.found.handle else { continue };
            // SAFETY: both handles are of this library and alive.
            let code = unsafe { register(handle.handle(), EventTypes::CRITICAL_XID_ERROR.bits(), set.handle()) };
            match nvml_try(code) {
                Ok(()) => any = true,
                // As NVML says, the set is then in no defined state.
                Err(NvmlError::Unknown) => return None,
                Err(_) => {}
            }
        }
        any.then_some(set)
    }

    fn xids(&self, assembler: &mut Assembler) {
        let Some(events) = &self.events else { return };
        // Bounded: a device in trouble can report without end.
        for _ in 0..self.cards.len().max(8) {
            let Ok(event) = events.wait(0) else { return };
            // SAFETY: the handle is only compared.
            let handle = unsafe { event.device.handle() };
            let is_it = |card: &&Card<'_>| {
                // SAFETY: as above.
                card.found.handle.as_ref().is_some_and(|own| unsafe { own.handle() } == handle)
            };
            let number = match event.event_data {
                Some(XidError::Value(number)) => Some(number),
                _ => None,
            };
            assembler.xid(now(), self.cards.iter().find(is_it).map(|card| card.found.subject), number);
        }
    }
}

/// The processes of all devices, gathered one device at a time.
struct Lister {
    pending: VecDeque<usize>,
    gathered: BTreeMap<(Subject, u32), Listed>,
    listing: Listing,
    lists: Lists,
    /// Graphics and MPS processes of the last full list.
    others: BTreeMap<(Subject, u32), Listed>,
    rounds: u64,
    began: Instant,
    due: Instant,
    /// How long the calls of this round took.
    spent: Duration,
}

impl Lister {
    fn new(now: Instant) -> Self {
        Self {
            pending: VecDeque::new(),
            gathered: BTreeMap::new(),
            listing: Listing::default(),
            lists: Lists::All,
            others: BTreeMap::new(),
            rounds: 0,
            began: now,
            due: now,
            spent: Duration::ZERO,
        }
    }

    /// The devices are others now.
    fn forget(&mut self) {
        self.pending.clear();
        self.others.clear();
        self.rounds = 0;
    }

    /// To the nearest second: asked at full seconds only.
    fn is_due(&self, now: Instant) -> bool {
        self.pending.is_empty() && now + Duration::from_millis(500) >= self.due
    }

    fn begin(&mut self, devices: usize) {
        // With MPS, ranks stand in a list of their own, which is then as important as the first.
        let has_mps = self.others.values().any(|listed| listed.kind == "M+C");
        let full = has_mps || self.rounds.is_multiple_of(FULL_LIST_EVERY);
        self.lists = if full { Lists::All } else { Lists::Compute };
        self.rounds += 1;
        self.pending = (0..devices).collect();
        self.gathered.clear();
        self.listing = Listing::default();
        self.spent = Duration::ZERO;
        self.began = Instant::now();
    }

    fn next(&mut self) -> Option<usize> {
        self.pending.pop_front()
    }

    fn read(&mut self, nvml: &Nvml, subject: Subject, handle: &Device<'_>) {
        let asked = Instant::now();
        let (processes, failure) = process_list::read(nvml, handle, self.lists);
        self.spent += asked.elapsed();
        self.listing.answered |= failure.is_none() || !processes.is_empty();
        self.listing.lacking |= failure.is_some();
        for process in processes {
            // The parent of slices lists their processes too; both ways they are the slice's.
            self.gathered.entry((place(subject, process.slice), process.pid)).or_insert(process);
        }
    }

    fn is_complete(&self) -> bool {
        self.pending.is_empty()
    }

    /// All processes, and when they are listed next.
    fn complete(&mut self) -> BTreeMap<(Subject, u32), Listed> {
        self.due = self.began + (self.spent * LOCK_SHARE).clamp(Duration::from_secs(1), SLOWEST_LIST);
        let mut gathered = std::mem::take(&mut self.gathered);
        if self.lists == Lists::All {
            self.others = gathered
                .iter()
                .filter(|(_, listed)| listed.kind != "C")
                .map(|(key, listed)| (*key, listed.clone()))
                .collect();
        } else {
            for (key, other) in &self.others {
                gathered.entry(*key).and_modify(|listed| listed.kind = other.kind).or_insert_with(|| other.clone());
            }
        }
        gathered
    }
}

/// Which figures of health a device has: those that it refused are not asked for again.
#[allow(clippy::struct_excessive_bools)] // independent of each other, and named as what they are
struct HealthCalls {
    utilization: bool,
    power: bool,
    temperature: bool,
    sm_clock: bool,
    throttle: bool,
}

type Refused = Vec<(&'static str, LiveStateKind)>;

impl HealthCalls {
    fn all() -> Self {
        Self { utilization: true, power: true, temperature: true, sm_clock: true, throttle: true }
    }

    /// The figures, and those that were refused for the first time.
    fn read(&mut self, subject: Subject, device: &Device<'_>) -> (LiveDeviceHealth, Refused) {
        let mut refused = Refused::new();
        let utilization = ask(&mut self.utilization, "utilisation", &mut refused, || device.utilization_rates());
        let health = LiveDeviceHealth {
            subject,
            utilization_percent: utilization
                .and_then(|rates| u8::try_from(rates.gpu).ok())
                .filter(|percent| *percent <= 100),
            power_mw: ask(&mut self.power, "power", &mut refused, || device.power_usage()),
            temperature_c: ask(&mut self.temperature, "temperature", &mut refused, || {
                device.temperature(TemperatureSensor::Gpu)
            }),
            sm_clock_mhz: ask(&mut self.sm_clock, "SM clock", &mut refused, || device.clock_info(Clock::SM)),
            throttle: ask(&mut self.throttle, "throttle reasons", &mut refused, || device.current_throttle_reasons())
                .map_or_else(Vec::new, |reasons| throttle_words(reasons.bits())),
        };
        (health, refused)
    }
}

fn ask<T>(
    asked: &mut bool,
    name: &'static str,
    refused: &mut Refused,
    call: impl FnOnce() -> Result<T, NvmlError>,
) -> Option<T> {
    if !*asked {
        return None;
    }
    match call() {
        Ok(value) => Some(value),
        Err(error) => {
            let refusal = Refusal::from(&error);
            if matches!(refusal, Refusal::NotSupported | Refusal::NoPermission) {
                *asked = false;
                refused.push((name, refusal.state()));
            }
            None
        }
    }
}

fn throttle_words(bits: u64) -> Vec<String> {
    THROTTLE.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, word)| (*word).to_owned()).collect()
}

/// What stays as it is while nobody changes the device.
fn identity(device: &Found<'_>, memory: Option<&memory::DeviceMemory>) -> LiveDevice {
    let handle = device.handle.as_ref();
    let mode = |mode| match mode {
        ComputeMode::Default => "Default",
        ComputeMode::ExclusiveThread => "Exclusive_Thread",
        ComputeMode::Prohibited => "Prohibited",
        ComputeMode::ExclusiveProcess => "Exclusive_Process",
    };
    LiveDevice {
        subject: device.subject,
        uuid: handle.and_then(|device| device.uuid().ok()),
        bus_id: handle.and_then(|device| device.pci_info().ok()).map(|pci| pci.bus_id),
        name: handle.and_then(|device| device.name().ok()),
        total: memory.map(|memory| memory.total),
        reserved: memory.and_then(|memory| memory.reserved),
        display_active: handle.and_then(|device| device.is_display_active().ok()),
        mig_enabled: device.mig_enabled,
        compute_mode: handle.and_then(|device| device.compute_mode().ok()).map(|found| mode(found).to_owned()),
        ecc_enabled: handle.and_then(|device| device.is_ecc_enabled().ok()).map(|ecc| ecc.currently_enabled),
    }
}

/// The driver may give a whole command line, in which secrets can stand: only the program's file name is taken.
fn program(name: &str) -> Option<String> {
    let path = name.split_whitespace().next()?;
    path.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(kind: &'static str, pid: u32) -> ((Subject, u32), Listed) {
        ((Subject::Device(0), pid), Listed { pid, kind, used: Some(Bytes(1)), slice: None })
    }

    fn round(lister: &mut Lister, processes: Vec<((Subject, u32), Listed)>) -> Vec<(u32, &'static str)> {
        lister.begin(1);
        lister.next();
        lister.gathered.extend(processes);
        lister.complete().into_values().map(|listed| (listed.pid, listed.kind)).collect()
    }

    #[test]
    fn graphics_processes_are_kept_between_full_lists() {
        let mut lister = Lister::new(Instant::now());
        assert_eq!(round(&mut lister, vec![listed("C", 1), listed("G", 2), listed("C+G", 3)]).len(), 3);
        assert_eq!(lister.lists, Lists::All);
        let next = round(&mut lister, vec![listed("C", 1), listed("C", 3)]);
        assert_eq!(lister.lists, Lists::Compute);
        assert_eq!(next, [(1, "C"), (2, "G"), (3, "C+G")]);
    }

    #[test]
    fn with_mps_every_list_is_full() {
        let mut lister = Lister::new(Instant::now());
        round(&mut lister, vec![listed("M+C", 1)]);
        round(&mut lister, vec![listed("M+C", 1)]);
        assert_eq!(lister.lists, Lists::All);
        round(&mut lister, vec![listed("C", 1)]);
        round(&mut lister, vec![listed("C", 1)]);
        assert_eq!(lister.lists, Lists::Compute);
    }

    #[test]
    fn slow_lists_are_asked_for_less_often() {
        let mut lister = Lister::new(Instant::now());
        let seconds_until_due = |lister: &mut Lister, spent| {
            lister.begin(1);
            lister.next();
            lister.spent = spent;
            lister.complete();
            (0..100).find(|second| lister.is_due(lister.began + Duration::from_secs(*second)))
        };
        assert_eq!(seconds_until_due(&mut lister, Duration::from_millis(1)), Some(1));
        assert_eq!(seconds_until_due(&mut lister, Duration::from_millis(40)), Some(1));
        assert_eq!(seconds_until_due(&mut lister, Duration::from_millis(200)), Some(4));
        assert_eq!(seconds_until_due(&mut lister, Duration::from_secs(10)), Some(30));
        lister.begin(2);
        assert!(!lister.is_due(lister.began + Duration::from_mins(1)), "a round is under way");
    }

    #[test]
    fn reasons_are_words() {
        assert_eq!(throttle_words(0x44), ["sw_power_cap", "hw_thermal_slowdown"]);
        assert!(throttle_words(0).is_empty());
    }

    #[test]
    fn arguments_never_leave_the_node() {
        assert_eq!(program("/usr/bin/python3 train.py --token abc").as_deref(), Some("python3"));
        assert_eq!(program(" "), None);
    }
}
