//! What a line of an agent may hold. The agents of this project stay far below; whoever sends more is told which field it
//! is and how much it may be, before anything of it is kept. A figure that cannot be right is no matter of size: it is
//! left out later, by `plausible`. Knows no state.

use super::batch::{Batch, BatchError, Lines};
use rankscope_model::{
    LiveDevice, LiveLine, LiveMemory, LiveNode, LiveProcess, LiveProcesses, LiveRecord, LiveState, Subject,
};

/// Devices of one node, slices included.
const MAX_DEVICES: usize = 512;
/// Highest index of a device, and of an instance within it.
const MAX_INDEX: u32 = 1023;
/// Samples of one line of memory: some minutes at the highest rate.
const MAX_SAMPLES: usize = 16_384;
/// Time that a line of memory may span, in microseconds.
const MAX_SPAN: u32 = 3_600_000_000;
/// Processes of one list.
const MAX_PROCESSES: usize = 4096;
/// Bytes of a name: of a host, a driver, a card, a program.
const MAX_NAME: usize = 256;
/// Bytes of a job's key: an address and a port, or two names of a launcher.
const MAX_JOB: usize = 512;
/// Bytes of a sentence, and of a list of visible devices.
const MAX_SENTENCE: usize = 4096;
/// Sentences of a node, and reasons for which a clock is held down.
const MAX_SENTENCES: usize = 256;
/// Bytes of one line of a probe.
const MAX_PROBE_LINE: usize = 512 << 10;

/// Refuses a batch of which a line holds more than any sender has to say.
pub fn check(batch: &Batch) -> Result<(), BatchError> {
    match &batch.lines {
        Lines::Agent(lines) => lines.iter().try_for_each(line),
        Lines::Probe(lines) => lines.iter().try_for_each(|(seq, text)| {
            let what = || format!("The line with seq {seq}");
            at_most(&what, text.len(), MAX_PROBE_LINE, "bytes")
        }),
    }
    .map_err(BatchError::Invalid)
}

type Checked = Result<(), String>;

fn line(line: &LiveLine) -> Checked {
    let found = match &line.record {
        LiveRecord::Node(found) => node(found),
        LiveRecord::Memory(found) => memory(found),
        LiveRecord::Health(found) => at_most(&|| "devices".into(), found.devices.len(), MAX_DEVICES, "entries")
            .and_then(|()| {
                found.devices.iter().try_for_each(|device| {
                    subject(device.subject)?;
                    at_most(&|| "throttle".into(), device.throttle.len(), MAX_SENTENCES, "entries")?;
                    device.throttle.iter().try_for_each(|word| text("throttle", word, MAX_NAME))
                })
            }),
        LiveRecord::Processes(found) => processes(found),
        LiveRecord::State(LiveState { subject: of, detail, .. }) => {
            of.map_or(Ok(()), subject).and_then(|()| text("detail", detail, MAX_SENTENCE))
        }
        LiveRecord::Dropped(dropped) if dropped.first > dropped.last => {
            Err(format!("first is {} and last is {}", dropped.first, dropped.last))
        }
        LiveRecord::Dropped(_) | LiveRecord::End | LiveRecord::Unknown => Ok(()),
    };
    found.map_err(|why| format!("In the line with seq {}: {why}.", line.seq))
}

fn node(node: &LiveNode) -> Checked {
    at_most(&|| "devices".into(), node.devices.len(), MAX_DEVICES, "entries")?;
    at_most(&|| "warnings".into(), node.warnings.len(), MAX_SENTENCES, "entries")?;
    text("host", &node.host, MAX_NAME)?;
    let names = [
        ("agent", &node.agent),
        ("driver_version", &node.driver_version),
        ("cuda_version", &node.cuda_version),
        ("boot_id", &node.boot_id),
    ];
    names.into_iter().try_for_each(|(name, value)| optional(name, value.as_deref(), MAX_NAME))?;
    node.warnings.iter().try_for_each(|warning| text("warnings", warning, MAX_SENTENCE))?;
    node.devices.iter().try_for_each(device)
}

fn device(device: &LiveDevice) -> Checked {
    subject(device.subject)?;
    let names = [
        ("uuid", &device.uuid),
        ("bus_id", &device.bus_id),
        ("name", &device.name),
        ("compute_mode", &device.compute_mode),
    ];
    names.into_iter().try_for_each(|(name, value)| optional(name, value.as_deref(), MAX_NAME))
}

fn memory(memory: &LiveMemory) -> Checked {
    at_most(&|| "devices".into(), memory.devices.len(), MAX_DEVICES, "entries")?;
    at_most(&|| "dt_us".into(), memory.dt_us.len(), MAX_SAMPLES, "entries")?;
    if !memory.dt_us.is_sorted() {
        return Err("dt_us falls".to_owned());
    }
    if let Some(last) = memory.dt_us.last().filter(|last| **last > MAX_SPAN) {
        return Err(format!("dt_us reaches {last}; at most {MAX_SPAN}"));
    }
    memory.devices.iter().try_for_each(|column| {
        subject(column.subject)?;
        if column.used.len() != memory.dt_us.len() {
            let (used, times) = (column.used.len(), memory.dt_us.len());
            return Err(format!("used of {} has {used} entries, and dt_us {times}; both need as many", column.subject));
        }
        Ok(())
    })
}

fn processes(list: &LiveProcesses) -> Checked {
    at_most(&|| "processes".into(), list.processes.len(), MAX_PROCESSES, "entries")?;
    list.processes.iter().try_for_each(process)
}

fn process(process: &LiveProcess) -> Checked {
    subject(process.subject)?;
    optional("kind", process.kind.as_deref(), MAX_NAME)?;
    optional("name", process.name.as_deref(), MAX_NAME)?;
    let Some(rank) = &process.rank else { return Ok(()) };
    optional("job", rank.job.as_deref(), MAX_JOB)?;
    optional("visible_devices", rank.visible_devices.as_deref(), MAX_SENTENCE)
}

fn subject(subject: Subject) -> Checked {
    let parts = match subject {
        Subject::Device(device) => [("device", device), ("device", 0), ("device", 0)],
        Subject::MigSlice { device, gpu_instance, compute_instance } => {
            [("device", device), ("gpu_instance", gpu_instance), ("compute_instance", compute_instance)]
        }
        Subject::Rank(_) => return Err("the subject is a rank; at most cards and their slices are".to_owned()),
    };
    match parts.into_iter().find(|(_, index)| *index > MAX_INDEX) {
        Some((name, index)) => Err(format!("{name} is {index}; at most {MAX_INDEX}")),
        None => Ok(()),
    }
}

fn optional(name: &str, value: Option<&str>, most: usize) -> Checked {
    value.map_or(Ok(()), |value| text(name, value, most))
}

fn text(name: &str, value: &str, most: usize) -> Checked {
    at_most(&|| name.to_owned(), value.len(), most, "bytes")
}

fn at_most(what: &dyn Fn() -> String, count: usize, most: usize, unit: &str) -> Checked {
    if count > most { Err(format!("{} has {count} {unit}; at most {most}", what())) } else { Ok(()) }
}
