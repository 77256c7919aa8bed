//! A scenario being played: what has happened by now.

use crate::proc_tree;
use crate::scenario::{Device, DeviceChange, Event, Process, Scenario};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// From one initialisation to the next.
pub struct Player {
    /// As it is by now.
    pub scenario: Scenario,
    /// Xids that nobody has fetched yet: device number and code.
    pub xids: VecDeque<(usize, u64)>,
    /// The driver went away; only a new initialisation helps.
    pub dead: bool,
    folder: PathBuf,
    began: SystemTime,
    happened: usize,
}

impl Player {
    /// Begins, or goes on where the kept clock stands. The code that initialisation answers with otherwise.
    pub fn begin(scenario: Scenario, folder: PathBuf) -> Result<Self, u32> {
        if scenario.init_code != 0 {
            return Err(scenario.init_code);
        }
        let began = if scenario.clock_kept { kept_clock(&folder) } else { SystemTime::now() };
        for entry in &scenario.proc {
            proc_tree::write(&folder, entry);
        }
        let mut player = Self { scenario, xids: VecDeque::new(), dead: false, folder, began, happened: 0 };
        let away = player.away_at(player.now());
        player.advance();
        // What happened before is no news for the one who comes now.
        player.xids.clear();
        player.dead = false;
        if away { Err(DRIVER_NOT_LOADED) } else { Ok(player) }
    }

    /// Seconds of the scenario.
    pub fn now(&self) -> f64 {
        self.began.elapsed().unwrap_or_default().as_secs_f64()
    }

    /// Lets happen what is due.
    pub fn advance(&mut self) {
        let now = self.now();
        while let Some((at, event)) = self.scenario.events.get(self.happened).filter(|(at, _)| *at <= now).cloned() {
            self.happened += 1;
            self.happen(at, event);
        }
    }

    fn away_at(&self, now: f64) -> bool {
        self.scenario.events.iter().any(|(at, event)| match event {
            Event::Restart { seconds } => (*at..at + seconds).contains(&now),
            _ => false,
        })
    }

    fn happen(&mut self, at: f64, event: Event) {
        let scenario = &mut self.scenario;
        let is_meant = |process: &Process, gpu: Option<usize>, pid: u32| {
            process.pid == pid && gpu.is_none_or(|gpu| process.gpu == gpu)
        };
        match event {
            Event::Device { gpu, change } => {
                if let Some(device) = scenario.devices.get_mut(gpu) {
                    change_device(device, &change, at);
                }
            }
            Event::Level { gpu, pid, to, over } => {
                for process in scenario.processes.iter_mut().filter(|process| is_meant(process, gpu, pid)) {
                    process.used = process.used.map(|used| used.towards(to, at, over));
                }
            }
            Event::Appears(process) => {
                let used = process.used.map(|used| used.beginning(at));
                scenario.processes.push(Process { used, ..process });
            }
            Event::Gone { gpu, pid } => {
                scenario.processes.retain(|process| !is_meant(process, gpu, pid));
                if gpu.is_none() {
                    proc_tree::remove(&self.folder, pid);
                }
            }
            Event::Proc(entry) => proc_tree::write(&self.folder, &entry),
            Event::Xid { gpu, number } => self.xids.push_back((gpu, number)),
            Event::Slice(slice) => scenario.devices.push(*slice),
            Event::Unslice { gpu } => {
                for device in &mut scenario.devices {
                    device.removed |= device.slice.is_some_and(|(parent, ..)| parent == gpu);
                }
            }
            Event::Restart { .. } => self.dead = true,
        }
    }
}

/// `NVML_ERROR_DRIVER_NOT_LOADED`
const DRIVER_NOT_LOADED: u32 = 9;

fn change_device(device: &mut Device, change: &DeviceChange, at: f64) {
    if let Some((bytes, over)) = change.used {
        device.used = device.used.towards(bytes, at, over);
    }
    device.idle = change.idle.or(device.idle);
    device.busy = change.busy.or(device.busy);
    device.power = change.power.or(device.power);
    device.temperature = change.temperature.or(device.temperature);
    device.clock = change.clock.or(device.clock);
    device.throttle = change.throttle.or(device.throttle);
    device.mig = change.mig.or(device.mig);
    device.code = change.code.unwrap_or(device.code);
}

/// When the first of all processes began, in a file that they share.
fn kept_clock(folder: &std::path::Path) -> SystemTime {
    let file = folder.join("nvml-stub.clock");
    let read = || std::fs::read_to_string(&file).ok()?.trim().parse().ok();
    let kept = read().or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let written = std::fs::OpenOptions::new().write(true).create_new(true).open(&file);
        match written {
            Ok(mut file) => {
                // Should this fail, the next one begins anew, which a test sees.
                let _ = std::io::Write::write_all(&mut file, now.as_micros().to_string().as_bytes());
                u64::try_from(now.as_micros()).ok()
            }
            Err(_) => read(),
        }
    });
    kept.map_or_else(SystemTime::now, |micros: u64| UNIX_EPOCH + Duration::from_micros(micros))
}
