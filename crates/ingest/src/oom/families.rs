//! The texts of running out of memory, one grammar after another, over a message joined into one line.
//!
//! Every part of a grammar is optional except the words that make it one, because messages are pasted cut. Knows no
//! line and no prefix.

use rankscope_model::{Bytes, GIB, KIB, MIB, OtherProcess};
use regex::{Captures, Regex};
use std::sync::LazyLock;

/// What a message says.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Message {
    pub(super) family: String,
    pub(super) device: Option<u32>,
    pub(super) tried: Option<Bytes>,
    pub(super) total: Option<Bytes>,
    pub(super) free: Option<Bytes>,
    pub(super) this_process: Option<Bytes>,
    pub(super) allocated: Option<Bytes>,
    pub(super) reserved: Option<Bytes>,
    pub(super) reserved_unallocated: Option<Bytes>,
    pub(super) others: Vec<OtherProcess>,
    pub(super) host_memory: bool,
}

impl Message {
    fn of(family: &str) -> Self {
        Self { family: family.to_owned(), ..Self::default() }
    }

    fn host(family: &str) -> Self {
        Self { host_memory: true, ..Self::of(family) }
    }

    pub(super) fn sizes(&self) -> [Option<Bytes>; 7] {
        [self.tried, self.total, self.free, self.this_process, self.allocated, self.reserved, self.reserved_unallocated]
    }

    /// In a container the process does not know its own PID on the host, and lists itself as `Process N` with the rest.
    /// It is the one row that can hold what this process says it reserved, if there is only one such row.
    fn claim_own_process(&mut self) {
        let (Some(allocated), Some(cached), None) = (self.allocated, self.reserved_unallocated, self.this_process)
        else {
            return;
        };
        let reserved = allocated.saturating_add(cached);
        let mut able =
            self.others.iter().enumerate().filter(|(_, other)| {
                other.used >= reserved && other.used.saturating_sub(reserved) <= MAX_BESIDE_ALLOCATOR
            });
        if let (Some((index, _)), None) = (able.next(), able.next()) {
            self.this_process = Some(self.others.remove(index).used);
        }
    }

    /// How much it says, to choose between two ways of joining lines.
    pub(super) fn facts(&self) -> usize {
        let sizes = self.sizes().iter().flatten().count();
        sizes.saturating_add(usize::from(self.device.is_some())).saturating_add(self.others.len())
    }

    /// Whether `other` says nothing that this one does not say.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let within = |mine: Option<Bytes>, theirs: Option<Bytes>| theirs.is_none() || mine == theirs;
        self.family == other.family
            && (other.device.is_none() || other.device == self.device)
            && self.sizes().into_iter().zip(other.sizes()).all(|(mine, theirs)| within(mine, theirs))
            && (other.others.is_empty() || other.others == self.others)
    }
}

/// A pattern that is compiled once. All of them are compiled by a test, so `None` does not happen.
struct Pattern(LazyLock<Option<Regex>>);

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: Pattern = Pattern(LazyLock::new(|| Regex::new(&$text.replace("SIZE", SIZE)).ok()));
    };
}

impl Pattern {
    fn find<'t>(&self, text: &'t str) -> Option<Captures<'t>> {
        self.0.as_ref()?.captures(text)
    }

    fn is_in(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(text))
    }

    fn size(&self, text: &str) -> Option<Bytes> {
        first_group(&self.find(text)?).and_then(size)
    }

    fn number<T: std::str::FromStr>(&self, text: &str) -> Option<T> {
        first_group(&self.find(text)?)?.parse().ok()
    }
}

/// The first group that took part; patterns with alternatives have one per form.
fn first_group<'t>(captures: &Captures<'t>) -> Option<&'t str> {
    captures.iter().skip(1).flatten().next().map(|m| m.as_str())
}

fn group<'t>(captures: &Captures<'t>, index: usize) -> Option<&'t str> {
    captures.get(index).map(|m| m.as_str())
}

/// `2.00 GiB`, `0 bytes`, `3.6GB`, `15.11G`. All 1024-based, whatever the unit is called.
const SIZE: &str = r"\d+(?:\.\d+)? ?(?:bytes|[KMGTE]i?B|[KMGT]\b|B\b)";

/// All ones, printed as a size, is the driver's "not available"; printing rounds it.
const NOT_AVAILABLE: Bytes = Bytes(u64::MAX - (1 << 20));

pub(super) fn size(text: &str) -> Option<Bytes> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit.trim() {
        "bytes" | "B" | "" => 1,
        "KiB" | "KB" | "K" => KIB,
        "MiB" | "MB" | "M" => MIB,
        "GiB" | "GB" | "G" => GIB,
        "TiB" | "TB" | "T" => GIB << 10,
        _ => return None,
    };
    Bytes::from_float(number.parse().ok()?, unit).filter(|b| *b < NOT_AVAILABLE)
}

pattern!(
    TRIGGER,
    r"(?i:out.of.memory|resource.?exhausted)|Tried to allocate|OOM when allocating|_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_NOT_INITIALIZED|Failed to CUDA |No available memory for the cache blocks|Free memory on device|(?:can't allocate|not enough) memory: you tried|oom.?kill|MemoryError|cudaErrorMemoryAllocation|Cannot allocate memory|Exceeded (?:job|step) memory limit|Failed to allocate request for|That was not possible\. There are|SIGKILL|exitcode ?: -9|OOMKilled"
);

/// What [`TRIGGER`] finds, in lower case, to tell where a terminal may break it.
const TRIGGERS: [&str; 32] = [
    "out of memory",
    "out_of_memory",
    "out-of-memory",
    "resource exhausted",
    "resource_exhausted",
    "resourceexhausted",
    "tried to allocate",
    "oom when allocating",
    "that was not possible. there are",
    "_status_alloc_failed",
    "cublas_status_not_initialized",
    "cudnn_status_not_initialized",
    "failed to cuda calloc",
    "failed to cuda malloc",
    "failed to cuda host alloc",
    "no available memory for the cache blocks",
    "free memory on device",
    "can't allocate memory: you tried",
    "not enough memory: you tried",
    "oom kill",
    "oom_kill",
    "oom-kill",
    "oomkill",
    "memoryerror",
    "cudaerrormemoryallocation",
    "cannot allocate memory",
    "exceeded job memory limit",
    "exceeded step memory limit",
    "failed to allocate request for",
    "sigkill",
    "exitcode: -9",
    "exitcode : -9",
];

/// Which letters stand side by side in a trigger, perhaps with a blank between: by the first, a bit for the second.
static NEIGHBOURS: LazyLock<[u128; 128]> = LazyLock::new(|| {
    let mut found = [0u128; 128];
    let mut note = |one: u8, other: u8| {
        if let Some(bits) = found.get_mut(usize::from(one)) {
            *bits |= 1u128.checked_shl(other.into()).unwrap_or(0);
        }
    };
    for trigger in TRIGGERS {
        for window in trigger.as_bytes().windows(3) {
            if let [a, b, c] = *window {
                note(a, b);
                note(b, c);
                if b == b' ' {
                    note(a, c);
                }
            }
        }
    }
    found
});

/// Whether a terminal may have broken a trigger between two texts. Two letters tell it of most lines, and spare them the
/// search in what both make together.
pub(super) fn may_be_broken(before: &str, after: &str) -> bool {
    let (Some(one), Some(other)) = (before.bytes().next_back(), after.bytes().next()) else { return false };
    let bits = NEIGHBOURS.get(usize::from(one.to_ascii_lowercase())).copied().unwrap_or(0);
    bits.checked_shr(other.to_ascii_lowercase().into()).is_some_and(|bits| bits & 1 == 1)
}

/// Whether a text could begin a message.
pub(super) fn is_trigger(text: &str) -> bool {
    TRIGGER.is_in(text)
}

/// Whether a text that triggers begins a message of its own, rather than going on with the one before it.
pub(super) fn begins_message(text: &str) -> bool {
    let goes_on = text.contains("Tried to allocate") || text.contains("Failed to CUDA ");
    !goes_on || BEGINS.is_in(text)
}

pattern!(BEGINS, r"(?i:out.of.memory|resource.?exhausted)");

/// Where in `text` the first trigger stands.
pub(super) fn trigger_at(text: &str) -> Option<usize> {
    TRIGGER.0.as_ref()?.find(text).map(|m| m.start())
}

pattern!(
    PART,
    r"allocated by PyTorch|reserved by PyTorch|reserved in total|total capaci?ty|memory in use|already allocated|is free\.|non-PyTorch|allocated memory|_ALLOC_CONF|BufferAssignment"
);

/// Whether a text is a piece of a wrapped message, so that its sizes are not taken for anything else.
pub(super) fn is_part(text: &str) -> bool {
    PART.is_in(text)
}

/// What a joined text is.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) messages: Vec<Message>,
    /// TensorFlow's allocator says of these itself that they are no failure.
    pub(super) harmless: u64,
}

pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    if let Some(message) = mps(text) {
        parsed.messages.push(message);
        return parsed;
    }
    let caching = caching_allocator(text);
    if !caching.is_empty() {
        parsed.messages = caching;
        return parsed;
    }
    if HARMLESS.is_in(text) {
        parsed.harmless = 1;
        return parsed;
    }
    let readers: [fn(&str) -> Option<Message>; 9] = [bfc, tensorflow, tpu, xla, paddle, vllm, nccl, libraries, runtime];
    parsed.messages.extend(readers.iter().find_map(|read| read(text)).or_else(|| host(text)));
    parsed
}

pattern!(HEAD, r"(?:(CUDA|HIP|XPU|NPU|MUSA) out of memory\. ?)?Tried to allocate (?:more than 1EB|(SIZE))");
pattern!(DEVICE, r"\(GPU (\d+);|GPU (\d+) has a total");
pattern!(TOTAL, r"(SIZE) total capacity|total capaci?ty of (SIZE)");
pattern!(FREE, r"(SIZE) free;|of which (SIZE) is free");
pattern!(ALLOCATED, r"(SIZE) already allocated|(SIZE) is allocated by PyTorch");
pattern!(CACHED, r"(SIZE) cached");
pattern!(RESERVED, r"(SIZE) reserved in total");
pattern!(UNALLOCATED, r"(SIZE) is reserved by PyTorch but unallocated");
pattern!(THIS_PROCESS, r"this process has (SIZE) memory in use");
pattern!(OTHER, r"Process (\d+) has (SIZE) memory in use");

/// Most that a process holds beside PyTorch's allocator: a context, and the buffers of NCCL and other libraries.
const MAX_BESIDE_ALLOCATOR: Bytes = Bytes(8 << 30);
/// Most processes of one message.
const MAX_OTHERS: usize = 1024;

/// PyTorch's caching allocator, `F1` to `F7`, on CUDA, HIP and others (`hip_F6`).
fn caching_allocator(text: &str) -> Vec<Message> {
    let Some(head) = HEAD.0.as_ref() else { return Vec::new() };
    let starts: Vec<usize> = head.find_iter(text).map(|m| m.start()).take(64).collect();
    let mut messages = Vec::with_capacity(starts.len());
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index.saturating_add(1)).copied().unwrap_or(text.len());
        let Some(region) = text.get(*start..end) else { continue };
        let Some(captures) = head.captures(region) else { continue };
        let before = text.get(..*start).unwrap_or_default();
        let mut message = Message {
            family: caching_family(before, region, group(&captures, 1)),
            device: DEVICE.number(region),
            tried: group(&captures, 2).and_then(size),
            total: TOTAL.size(region),
            free: FREE.size(region),
            this_process: THIS_PROCESS.size(region),
            allocated: ALLOCATED.size(region),
            reserved: RESERVED.size(region),
            // "cached" of the oldest form is what is held and unused.
            reserved_unallocated: UNALLOCATED.size(region).or_else(|| CACHED.size(region)),
            others: others(region),
            host_memory: false,
        };
        message.claim_own_process();
        messages.push(message);
    }
    messages
}

fn others(region: &str) -> Vec<OtherProcess> {
    let Some(other) = OTHER.0.as_ref() else { return Vec::new() };
    let read = |c: Captures<'_>| Some(OtherProcess { pid: group(&c, 1)?.parse().ok()?, used: size(group(&c, 2)?)? });
    other.captures_iter(region).take(MAX_OTHERS).filter_map(read).collect()
}

/// Which release wrote it, by the words that changed: see the table in the module above.
fn caching_family(before: &str, region: &str, backend: Option<&str>) -> String {
    let has = |words: &str| region.contains(words);
    let number = if has("total capacity;") || has("already allocated;") {
        if has(" cached") {
            1
        } else if has("If reserved memory is >>") || has(" allowed;") {
            3
        } else {
            2
        }
    } else if has("capacty") {
        4
    } else if has("PYTORCH_ALLOC_CONF") {
        7
    } else if has("private pools") || before.ends_with("torch.OutOfMemoryError: ") {
        6
    } else if has("total capacity of") || has("GPU") {
        5
    } else {
        return "cuda_allocator".to_owned();
    };
    match backend {
        Some("CUDA") | None => format!("F{number}"),
        Some(other) => format!("{}_F{number}", other.to_ascii_lowercase()),
    }
}

pattern!(
    MPS,
    r"MPS backend out of memory(?: \(MPS allocated: (SIZE), other allocations: (SIZE), max allowed: (SIZE)\))?"
);
pattern!(MPS_TRIED, r"Tried to allocate (SIZE)");

fn mps(text: &str) -> Option<Message> {
    let captures = MPS.find(text)?;
    Some(Message { tried: MPS_TRIED.size(text), allocated: group(&captures, 1).and_then(size), ..Message::of("mps") })
}

pattern!(HARMLESS, r"Allocator \([^)]{1,40}\) ran out of memory trying to allocate .{0,200}not a failure");
pattern!(BFC, r"Allocator \(([^)]{1,40})\) ran out of memory trying to allocate (SIZE)(?: ?\(rounded to (\d+)\))?");
pattern!(GPU_OF_ALLOCATOR, r"GPU[_:](\d+)");

fn bfc(text: &str) -> Option<Message> {
    let captures = BFC.find(text)?;
    let allocator = group(&captures, 1)?;
    Some(Message {
        device: GPU_OF_ALLOCATOR.number(allocator),
        tried: group(&captures, 3).or(group(&captures, 2)).and_then(size),
        host_memory: allocator.eq_ignore_ascii_case("cpu"),
        ..Message::of("tensorflow_bfc")
    })
}

pattern!(
    TENSORFLOW,
    r"OOM when allocating tensor with shape\[[\d,? ]*\](?: and type \w+)?(?: on (\S+))?(?: by allocator (\S+))?"
);

fn tensorflow(text: &str) -> Option<Message> {
    let captures = TENSORFLOW.find(text)?;
    let place = group(&captures, 1).unwrap_or_default();
    Some(Message {
        device: GPU_OF_ALLOCATOR.number(place).or_else(|| GPU_OF_ALLOCATOR.number(group(&captures, 2)?)),
        host_memory: place.contains("CPU:") || group(&captures, 2).is_some_and(|a| a.eq_ignore_ascii_case("cpu")),
        ..Message::of("tensorflow_oom")
    })
}

pattern!(TPU, r"Ran out of memory in memory space (\w+)(?:\. Used (SIZE) of (SIZE))?");

fn tpu(text: &str) -> Option<Message> {
    let captures = TPU.find(text)?;
    // Other spaces (smem, vmem) are on the chip and say nothing about device memory.
    if group(&captures, 1) != Some("hbm") {
        return Some(Message::of("xla_tpu_scratch"));
    }
    Some(Message {
        tried: group(&captures, 2).and_then(size),
        total: group(&captures, 3).and_then(size),
        ..Message::of("xla_tpu")
    })
}

pattern!(
    XLA,
    r"(?i:resource.?exhausted):?.{0,80}?(?i:out ?of memory) (?:while )?(?:trying to allocate|allocating) (\d+) bytes"
);
pattern!(XLA_REQUEST, r"Failed to allocate request for (SIZE)(?: \((\d+)B\))?(?: on device ordinal (\d+))?");

pattern!(XLA_BUFFER, r"Attempting to allocate (SIZE)\. That was not possible\. There are (SIZE) free");

fn xla(text: &str) -> Option<Message> {
    if let Some(captures) = XLA_BUFFER.find(text) {
        return Some(Message {
            tried: group(&captures, 1).and_then(size),
            free: group(&captures, 2).and_then(size),
            ..Message::of("xla")
        });
    }
    if let Some(captures) = XLA_REQUEST.find(text) {
        return Some(Message {
            tried: group(&captures, 2).or(group(&captures, 1)).and_then(size),
            device: group(&captures, 3).and_then(|n| n.parse().ok()),
            ..Message::of("xla")
        });
    }
    let tried = XLA.size(text);
    tried.is_some().then(|| Message { tried, ..Message::of("xla") })
}

pattern!(
    PADDLE,
    r"Out of memory error on GPU (\d+)\. Cannot allocate (SIZE) memory on GPU \d+, (?:(SIZE) memory has been allocated and )?available memory is only (SIZE)"
);

fn paddle(text: &str) -> Option<Message> {
    let captures = PADDLE.find(text)?;
    let at = |index| group(&captures, index).and_then(size);
    Some(Message {
        device: group(&captures, 1)?.parse().ok(),
        tried: at(2),
        allocated: at(3),
        free: at(4),
        ..Message::of("paddle")
    })
}

pattern!(
    VLLM_STARTUP,
    r"Free memory on device(?: cuda:(\d+))? \(([\d.]+)/([\d.]+) GiB\) on startup is less than desired GPU memory utilization \([\d.]+, ([\d.]+) GiB\)"
);

fn vllm(text: &str) -> Option<Message> {
    if text.contains("No available memory for the cache blocks") {
        return Some(Message::of("vllm_cache"));
    }
    let captures = VLLM_STARTUP.find(text)?;
    let gib = |index| Bytes::from_float(group(&captures, index)?.parse().ok()?, GIB);
    Some(Message {
        device: group(&captures, 1).and_then(|n| n.parse().ok()),
        free: gib(2),
        total: gib(3),
        tried: gib(4),
        ..Message::of("vllm_startup")
    })
}

pattern!(NCCL, r"NCCL WARN Cuda failure (?:\d+ )?'out of memory'|Failed to CUDA (?:calloc|malloc|host alloc)");
pattern!(NCCL_DEVICE, r":\d+:\d+ \[(\d+)\]");
pattern!(NCCL_TRIED, r"Failed to CUDA (?:calloc|malloc|host alloc)\w* (\d+) bytes");

fn nccl(text: &str) -> Option<Message> {
    NCCL.is_in(text).then(|| Message {
        device: NCCL_DEVICE.number(text),
        tried: NCCL_TRIED.number(text).map(Bytes),
        ..Message::of("nccl")
    })
}

pattern!(LIBRARY, r"(CUBLAS|CUDNN)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)");

fn libraries(text: &str) -> Option<Message> {
    Some(Message::of(&LIBRARY.find(text).and_then(|c| group(&c, 1).map(str::to_ascii_lowercase))?))
}

pattern!(DRIVER, r"(?:failed to allocate SIZE \((\d+) bytes\) from device: )?CUDA_ERROR_OUT_OF_MEMORY");
pattern!(F0, r"cuda runtime error \(2\) ?: out of memory|error=2 ?: out of memory");
pattern!(
    RUNTIME,
    r"(?:CUDA|HIP) error:? ?(?:\d+:? )?out of memory|cuda failed with error 2 out of memory|cudaErrorMemoryAllocation|hipErrorOutOfMemory|(?i:error|exception): ?(?:CUDA|HIP) out of memory"
);

fn runtime(text: &str) -> Option<Message> {
    if let Some(captures) = DRIVER.find(text) {
        return Some(Message { tried: group(&captures, 1).and_then(size), ..Message::of("cuda_driver") });
    }
    if F0.is_in(text) {
        return Some(Message::of("F0"));
    }
    RUNTIME.is_in(text).then(|| Message::of("cuda_runtime"))
}

pattern!(CPU_ALLOCATOR, r"(?:can't allocate|not enough) memory: you tried to allocate (\d+) bytes");
pattern!(KILLER, r"Out of memory: Kill(?:ed)? process (\d+)");
pattern!(KILLED_RSS, r"anon-rss:(\d+)kB");
pattern!(SLURM, r"oom.?kill event|oom-kill:|Exceeded (?:job|step) memory limit");
pattern!(CONTAINER, r"\bOOMKilled\b");
pattern!(SIGKILL, r"Signal 9 \(SIGKILL\) received|exitcode ?: -9\b");
pattern!(PYTHON, r"(?:^|[ .:])MemoryError(?:$|:)");
pattern!(PYTHON_TRIED, r"MemoryError: Unable to allocate (SIZE)");
pattern!(OS, r"(?:OSError|RuntimeError|Errno 12)[^\n]{0,80}Cannot allocate memory");

/// Host memory: not VRAM, but often taken for it.
fn host(text: &str) -> Option<Message> {
    if let Some(tried) = CPU_ALLOCATOR.number(text) {
        return Some(Message { tried: Some(Bytes(tried)), ..Message::host("cpu_allocator") });
    }
    if KILLER.is_in(text) {
        let rss: Option<u64> = KILLED_RSS.number(text);
        let this_process = rss.and_then(|kib| kib.checked_mul(KIB)).map(Bytes);
        return Some(Message { this_process, ..Message::host("linux_oom_killer") });
    }
    if SLURM.is_in(text) {
        return Some(Message::host("slurm_oom"));
    }
    if CONTAINER.is_in(text) {
        return Some(Message::host("container_oom"));
    }
    // Killed from outside; on a training node that is nearly always the kernel, for want of host memory.
    if SIGKILL.is_in(text) {
        return Some(Message::host("sigkill"));
    }
    if PYTHON.is_in(text) {
        return Some(Message { tried: PYTHON_TRIED.size(text), ..Message::host("python_memory_error") });
    }
    OS.is_in(text).then(|| Message::host("os_enomem"))
}

pattern!(STATS_LIMIT, r"(?:^|[ \]])Limit: {1,40}(\d+)$");
pattern!(STATS_IN_USE, r"(?:^|[ \]])InUse: {1,40}(\d+)$");

/// A line of the allocator's `Stats:` block: limit, or bytes in use.
pub(super) fn bfc_stat(body: &str) -> Option<(bool, Bytes)> {
    if !body.contains("Limit: ") && !body.contains("InUse: ") {
        return None;
    }
    if let Some(limit) = STATS_LIMIT.number(body) {
        return Some((true, Bytes(limit)));
    }
    STATS_IN_USE.number(body).map(|n| (false, Bytes(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Message {
        assert!(is_trigger(text), "{text}");
        let mut parsed = parse(text);
        assert_eq!(parsed.messages.len(), 1, "{text}: {parsed:?}");
        parsed.messages.remove(0)
    }

    #[test]
    fn every_pattern_compiles() {
        for pattern in [
            &TRIGGER,
            &BEGINS,
            &PART,
            &HEAD,
            &DEVICE,
            &TOTAL,
            &FREE,
            &ALLOCATED,
            &CACHED,
            &RESERVED,
            &UNALLOCATED,
            &THIS_PROCESS,
            &OTHER,
            &MPS,
            &MPS_TRIED,
            &HARMLESS,
            &BFC,
            &GPU_OF_ALLOCATOR,
            &TENSORFLOW,
            &TPU,
            &XLA,
            &XLA_REQUEST,
            &XLA_BUFFER,
            &PADDLE,
            &VLLM_STARTUP,
            &NCCL,
            &NCCL_DEVICE,
            &NCCL_TRIED,
            &LIBRARY,
            &DRIVER,
            &F0,
            &RUNTIME,
            &CPU_ALLOCATOR,
            &KILLER,
            &KILLED_RSS,
            &SLURM,
            &CONTAINER,
            &SIGKILL,
            &PYTHON,
            &PYTHON_TRIED,
            &OS,
            &STATS_LIMIT,
            &STATS_IN_USE,
        ] {
            assert!(pattern.0.is_some());
        }
    }

    #[test]
    fn sizes_are_binary_and_not_available_is_none() {
        assert_eq!(size("1024.00 KiB"), Some(Bytes(MIB)));
        assert_eq!(size("0 bytes"), Some(Bytes(0)));
        assert_eq!(size("2.59GiB"), Bytes::from_float(2.59, GIB));
        assert_eq!(size("17179869184.00 GiB"), None);
        assert_eq!(size("1.2.3 GiB"), None);
    }

    #[test]
    fn releases_are_told_by_their_words() {
        let classic =
            "Tried to allocate 2.00 MiB (GPU 3; 8.00 GiB total capacity; 6.00 GiB already allocated; 1.00 MiB free; ";
        let modern = "Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 MiB is free. Of the allocated memory 6.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated. ";
        let family = |text: &str| one(text).family;
        assert_eq!(family(&format!("CUDA out of memory. {classic}9.00 MiB cached)")), "F1");
        assert_eq!(family(&format!("CUDA out of memory. {classic}7.00 GiB reserved in total by PyTorch)")), "F2");
        assert_eq!(
            family(&format!("CUDA out of memory. {classic}7.50 GiB allowed; 7.00 GiB reserved in total by PyTorch)")),
            "F3"
        );
        assert_eq!(family(&format!("CUDA out of memory. {}", modern.replace("capacity", "capacty"))), "F4");
        assert_eq!(family(&format!("torch.cuda.OutOfMemoryError: CUDA out of memory. {modern}")), "F5");
        assert_eq!(family(&format!("torch.OutOfMemoryError: CUDA out of memory. {modern}")), "F6");
        assert_eq!(
            family(&format!("torch.OutOfMemoryError: HIP out of memory. {modern}PYTORCH_ALLOC_CONF=x")),
            "hip_F7"
        );
        assert_eq!(family("CUDA out of memory. Tried to allocate 2.00 MiB. GPU \0"), "F5");
        assert_eq!(family("CUDA out of memory. Tried to allocate more than 1EB memory"), "cuda_allocator");
    }

    #[test]
    fn all_clauses_are_read() {
        let message = one(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 1 has a total capacity of 23.64 GiB of which 264.00 MiB is free. Process 2086283 has 419.50 MiB memory in use. Including non-PyTorch memory, this process has 8.04 GiB memory in use. Process 2797307 has 14.85 GiB memory in use. 1.05 GiB allowed; Of the allocated memory 7.63 GiB is allocated by PyTorch, with 46.00 MiB allocated in private pools (e.g., CUDA Graphs), and 40.11 MiB is reserved by PyTorch but unallocated.",
        );
        let gib = |n| Bytes::from_float(n, GIB);
        assert_eq!((message.device, message.tried, message.total), (Some(1), Some(Bytes::from_mib(86)), gib(23.64)));
        assert_eq!((message.free, message.this_process), (Some(Bytes::from_mib(264)), gib(8.04)));
        assert_eq!((message.allocated, message.reserved), (gib(7.63), None));
        assert_eq!(message.reserved_unallocated, Bytes::from_float(40.11, MIB));
        assert_eq!(message.others.iter().map(|o| o.pid).collect::<Vec<_>>(), [2_086_283, 2_797_307]);
    }

    #[test]
    fn other_frameworks() {
        let bfc = one(
            "W bfc_allocator.cc:419] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824).  Current allocation summary follows.",
        );
        assert_eq!((bfc.family.as_str(), bfc.device, bfc.tried), ("tensorflow_bfc", Some(0), Some(Bytes(GIB))));
        let tf = one(
            "ResourceExhaustedError: OOM when allocating tensor with shape[16,12] and type float on /job:localhost/replica:0/task:0/device:GPU:2 by allocator GPU_2_bfc",
        );
        assert_eq!((tf.family.as_str(), tf.device), ("tensorflow_oom", Some(2)));
        for front in ["RESOURCE_EXHAUSTED: Error allocating device buffer: ", "RuntimeError: ", ""] {
            let text = format!(
                "{front}Attempting to allocate 1.50G. That was not possible. There are 512.25M free.; (0x0x0_HBM0)"
            );
            let xla = one(&text);
            assert_eq!(
                (xla.family.as_str(), xla.tried, xla.free),
                ("xla", Some(Bytes(3 << 29)), Some(Bytes(537_133_056))),
                "{text}"
            );
        }
        let xla = one("RESOURCE_EXHAUSTED: Failed to allocate request for 176.00MiB (184549376B) on device ordinal 3");
        assert_eq!((xla.device, xla.tried), (Some(3), Some(Bytes(184_549_376))));
        let wrapped = one(
            "Execution of replica 0 failed: Resource exhausted: Out of memory while trying to allocate 5520758552 bytes.",
        );
        assert_eq!(wrapped.tried, Some(Bytes(5_520_758_552)));
        let driver = one("failed to allocate 15.11G (16224000000 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!((driver.family.as_str(), driver.tried), ("cuda_driver", Some(Bytes(16_224_000_000))));
        let nccl = one(
            "node3:62003:65510 [2] include/alloc.h:241 NCCL WARN Cuda failure 2 'out of memory' node3:62003:65510 [2] include/alloc.h:250 NCCL WARN Failed to CUDA calloc 12582912 bytes",
        );
        assert_eq!((nccl.device, nccl.tried), (Some(2), Some(Bytes(12_582_912))));
        assert_eq!(
            one("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`").family,
            "cublas"
        );
        assert_eq!(one("RuntimeError: CUDA error: out of memory").family, "cuda_runtime");
        let harmless = parse(
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.59GiB. The caller indicates that this is not a failure, but",
        );
        assert_eq!((harmless.messages.len(), harmless.harmless), (0, 1));
    }

    #[test]
    fn a_trigger_may_be_broken_anywhere() {
        for trigger in TRIGGERS {
            let upper = trigger.to_ascii_uppercase();
            assert!(trigger.len() > 3);
            for at in 1..trigger.len() {
                for text in [trigger, upper.as_str()] {
                    let (before, after) = text.split_at(at);
                    assert!(may_be_broken(before.trim_end(), after.trim_start()), "{before}|{after}");
                }
            }
        }
        for (before, after) in [("step 12", "loss"), ("", "a"), ("a", ""), ("显", "显"), ("x", "显")] {
            assert!(!may_be_broken(before, after), "{before}|{after}");
        }
    }

    #[test]
    fn host_memory_is_told_apart() {
        let cpu = one(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12 (Cannot allocate memory)",
        );
        assert!(cpu.host_memory);
        assert_eq!(cpu.tried, Some(Bytes(4096)));
        let killed = one("Out of memory: Killed process 123 (python) total-vm:9kB, anon-rss:1024kB, file-rss:0kB");
        assert_eq!((killed.host_memory, killed.this_process), (true, Some(Bytes(MIB))));
        assert!(one("slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch.").host_memory);
        assert!(one("numpy.core._exceptions.MemoryError: Unable to allocate 3.00 GiB for an array").host_memory);
    }

    #[test]
    fn prose_is_no_message() {
        for text in [
            "To avoid running out of memory, lower the batch size.",
            "hint: out of memory errors can be avoided",
            "except torch.cuda.OutOfMemoryError:",
            "if \"out of memory\" in str(e):",
            "RESOURCE_EXHAUSTED: quota exceeded",
        ] {
            assert!(parse(text).messages.is_empty(), "{text}");
        }
    }
}
