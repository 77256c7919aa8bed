//! Out-of-memory messages: of PyTorch since 0.3 on CUDA, HIP, XPU and MPS, of NCCL, cuBLAS, cuDNN, TensorFlow, XLA,
//! Paddle and vLLM, and of host memory, which is flagged.
//!
//! `OomEvent::family` is one of:
//!
//! | family | written by |
//! |---|---|
//! | `F0` | PyTorch before 1.0: `cuda runtime error (2) : out of memory` |
//! | `F1` | 1.0 - 1.3: `… cached)` |
//! | `F2` | 1.4 - 1.9: `… reserved in total by PyTorch)` |
//! | `F3` | 1.10 - 2.0: with a hint about `max_split_size_mb` or an `allowed` clause |
//! | `F4` | 2.1: `total capacty` |
//! | `F5` | 2.2 - 2.4: `total capacity of` |
//! | `F6` | 2.4 - 2.9: private pools, or the class `torch.OutOfMemoryError` |
//! | `F7` | 2.10 and later: `PYTORCH_ALLOC_CONF` |
//! | `hip_F…`, `xpu_F…` | the same on other devices |
//! | `cuda_allocator` | one of these, cut before anything that tells which |
//! | `cuda_runtime`, `cuda_driver` | raw failures outside the caching allocator |
//! | `nccl`, `cublas`, `cudnn` | libraries |
//! | `mps`, `tensorflow_bfc`, `tensorflow_oom`, `xla`, `xla_tpu`, `xla_tpu_scratch`, `paddle`, `vllm_cache`, `vllm_startup` | other programs |
//! | `cpu_allocator`, `linux_oom_killer`, `slurm_oom`, `container_oom`, `python_memory_error`, `os_enomem` | host memory |
//! | `sigkill` | torchrun: a process was killed by signal 9, as the kernel does when host memory runs out |
//!
//! Knows no cause: a message says how full the device was, not why.

mod families;
mod traceback;

use crate::context::{ReadContext, ReadError};
use crate::lines::{Label, Line, RankFrom, Trust, counted};
use crate::rank_name::{rank_before, rank_from_name};
use crate::sniff::TextEncoding;
use crate::text;
use families::{Message, Parsed};
use rankscope_model::{Bytes, Evidence, Frame, OomEvent, Provenance, Rank};
use std::collections::BTreeMap;
use std::io::BufRead;
use traceback::{StackId, Stacks};

/// Reads text and keeps its out-of-memory messages. Text without any gives an empty result, not an error.
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    text::read_with(
        input,
        TextEncoding::Utf8,
        ctx,
        text::Readers { tables: false, steps: false, ooms: true, story: false },
    )
}

/// Lines that may belong to one message: 600 characters wrapped at 40 columns.
const MAX_BLOCK_LINES: usize = 16;
/// Bytes of one message looked at.
const MAX_BLOCK_BYTES: usize = 16 << 10;
/// Writers whose messages may be open at once.
const MAX_OPEN: usize = 64;
/// Different messages of one rank and family that later ones are compared with.
const MAX_COMPARED: usize = 8;
/// Lines between a `Stats:` block and the failure it belongs to.
const MAX_STATS_GAP: u64 = 64;

/// A rank, where known, and a family.
type Writer = (Option<u32>, String);

/// Gathers messages line by line.
pub(crate) struct OomReader<'c> {
    ctx: &'c ReadContext<'c>,
    file_rank: Option<Rank>,
    open: Vec<Block>,
    found: Vec<Found>,
    /// What was found of each rank and family, with its position, to count a repeated message once.
    seen: BTreeMap<Writer, Vec<(Message, usize)>>,
    previous: String,
    stacks: Stacks,
    stats: Stats,
    /// Whole blocks of these, in the order of the file.
    accounts: Vec<Stats>,
    harmless: u64,
    dropped: u64,
}

/// Lines of one writer that may be one message.
struct Block {
    label: Label,
    at: Provenance,
    lines: Vec<Piece>,
    bytes: usize,
    /// The rank that the text in front of the message names.
    rank: Option<Rank>,
    /// The stack in front of it.
    stack: Option<(StackId, Vec<Frame>)>,
}

/// A line of a block.
struct Piece {
    /// Without prefixes; a blank in front is kept as one blank.
    body: String,
    /// Characters of the whole line, to tell where a terminal broke it.
    width: usize,
}

impl Piece {
    fn of(line: &Line<'_>) -> Self {
        let body = bounded(line.body);
        let indented = line.text.starts_with(' ') && line.text.trim_start() == line.body;
        let body = if indented { format!(" {body}") } else { body.to_owned() };
        Self { body, width: line.text.chars().count() }
    }
}

struct Found {
    event: OomEvent,
    from: Option<RankFrom>,
}

/// The latest `Stats:` block of TensorFlow's or XLA's allocator.
#[derive(Debug, Clone, Copy, Default)]
struct Stats {
    line: u64,
    limit: Option<Bytes>,
    in_use: Option<Bytes>,
}

impl<'c> OomReader<'c> {
    pub(crate) fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self {
            ctx,
            file_rank: rank_from_name(ctx.name),
            open: Vec::new(),
            found: Vec::new(),
            seen: BTreeMap::new(),
            previous: String::new(),
            stacks: Stacks::default(),
            stats: Stats::default(),
            accounts: Vec::new(),
            harmless: 0,
            dropped: 0,
        }
    }

    /// Takes a line; `true` if it belongs to a message or to the traceback in front of one.
    pub(crate) fn line(&mut self, line: &Line<'_>) -> bool {
        self.note_stats(line);
        if self.stacks.line(line) {
            return true;
        }
        let writer = line.label.writer();
        let open = self.open.iter().position(|block| block.label.writer() == writer);
        let triggers = families::is_trigger(line.body);
        let used = match (open, triggers) {
            (Some(index), true) if families::begins_message(line.body) => {
                self.close(index);
                self.start(line, None);
                true
            }
            (Some(index), _) => self.extend(index, line) && (triggers || families::is_part(line.body)),
            (None, true) => {
                self.start(line, None);
                true
            }
            (None, false) if self.wraps_into(line.body) => {
                let previous = std::mem::take(&mut self.previous);
                self.start(line, Some(previous));
                true
            }
            (None, false) => false,
        };
        // Only the end of a line can be the beginning of a wrapped trigger.
        self.previous.clear();
        if !used && line.body.len() >= 24 {
            let cut = line.body.char_indices().rev().nth(40).map_or(0, |(at, _)| at);
            self.previous.push_str(line.body.get(cut..).unwrap_or_default());
        }
        used
    }

    /// Whether a terminal broke the words that tell a message: `CUDA out of mem` / `ory. Tried …`.
    fn wraps_into(&self, body: &str) -> bool {
        if !families::may_be_broken(&self.previous, body) {
            return false;
        }
        let end = body.char_indices().nth(40).map_or(body.len(), |(at, _)| at);
        let head = body.get(..end).unwrap_or_default();
        families::is_trigger(&format!("{}{head}", self.previous))
            || families::is_trigger(&format!("{} {head}", self.previous))
    }

    fn start(&mut self, line: &Line<'_>, wrapped: Option<String>) {
        if self.open.len() >= MAX_OPEN {
            self.close(0);
        }
        // What a terminal broke is joined without a blank: the width of the first piece does not matter then.
        let mut lines: Vec<Piece> = wrapped.into_iter().map(|body| Piece { body, width: usize::MAX }).collect();
        let before = families::trigger_at(line.body).and_then(|at| line.body.get(..at)).unwrap_or_default();
        self.open.push(Block {
            label: line.label,
            at: line.provenance(self.ctx.artifact),
            rank: rank_before(before),
            stack: self.stacks.of(line),
            bytes: line.body.len(),
            lines: {
                lines.push(Piece::of(line));
                lines
            },
        });
    }

    /// Adds a line to a block, and closes it when it is full. `false` if it had no room.
    fn extend(&mut self, index: usize, line: &Line<'_>) -> bool {
        let Some(block) = self.open.get_mut(index) else { return false };
        block.bytes = block.bytes.saturating_add(line.body.len());
        let fits = block.lines.len() < MAX_BLOCK_LINES && block.bytes <= MAX_BLOCK_BYTES;
        if fits {
            block.lines.push(Piece::of(line));
        } else {
            self.close(index);
        }
        fits
    }

    fn note_stats(&mut self, line: &Line<'_>) {
        match families::bfc_stat(line.body) {
            // The block lists its limit first.
            Some((true, limit)) => self.stats = Stats { line: line.number, limit: Some(limit), in_use: None },
            Some((false, in_use)) => {
                self.stats.in_use = Some(in_use);
                if self.accounts.len() < self.ctx.limits.max_oom_events {
                    self.accounts.push(self.stats);
                }
            }
            None => {}
        }
    }

    fn close(&mut self, index: usize) {
        let mut block = self.open.remove(index);
        let Parsed { messages, harmless } = parse(&block.lines);
        self.harmless = self.harmless.saturating_add(harmless);
        for message in messages {
            self.keep(message, &mut block);
        }
    }

    fn keep(&mut self, mut message: Message, block: &mut Block) {
        let named = block.rank.map(|rank| (rank, RankFrom::Text)).or(block.label.rank);
        let named = named.or(self.file_rank.map(|rank| (rank, RankFrom::FileName)));
        let key = (named.map(|(rank, _)| rank.0), message.family.clone());
        // A stack belongs to one message, so that a few lines cannot multiply it.
        let frames = block.stack.take().map_or_else(Vec::new, |(id, frames)| {
            self.stacks.taken(id);
            frames
        });
        let same = self.seen.get(&key).and_then(|seen| seen.iter().find(|(old, _)| old.covers(&message)));
        if let Some((_, index)) = same {
            // Often a message is logged first and printed with its traceback when the program ends.
            if let Some(first) = self.found.get_mut(*index).filter(|first| first.event.frames.is_empty()) {
                first.event.frames = frames;
            }
            return;
        }
        if self.found.len() >= self.ctx.limits.max_oom_events {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let seen = self.seen.entry(key).or_default();
        if seen.len() >= MAX_COMPARED {
            seen.remove(0);
        }
        seen.push((message.clone(), self.found.len()));
        let limit = self.add_stats(&mut message, block);
        self.found.push(Found {
            event: OomEvent {
                at: block.at.clone(),
                family: message.family,
                rank: named.map(|(rank, _)| rank),
                device: message.device,
                tried: message.tried,
                total: message.total,
                limit,
                free: message.free,
                this_process: message.this_process,
                allocated: message.allocated,
                reserved: message.reserved,
                reserved_unallocated: message.reserved_unallocated,
                others: message.others,
                host_memory: message.host_memory,
                frames,
            },
            from: named.map(|(_, from)| from),
        });
    }

    /// The allocator's own account, when it stands just before the failure. Gives what it may take.
    fn add_stats(&self, message: &mut Message, block: &Block) -> Option<Bytes> {
        let near = match block.at.place {
            rankscope_model::Place::Line(line) => {
                self.stats.line > 0 && line.checked_sub(self.stats.line).is_some_and(|gap| gap <= MAX_STATS_GAP)
            }
            _ => false,
        };
        if !near || !matches!(message.family.as_str(), "xla" | "tensorflow_oom" | "tensorflow_bfc") {
            return None;
        }
        message.allocated = message.allocated.or(self.stats.in_use);
        self.stats.limit
    }

    /// TensorFlow's allocator says first that it failed, and then what it holds: behind a long list of its chunks, and
    /// before the next failure.
    fn add_later_accounts(events: &mut [OomEvent], accounts: &[Stats]) {
        let line = |event: &OomEvent| match event.at.place {
            rankscope_model::Place::Line(line) => line,
            _ => 0,
        };
        let is_bfc = |event: &OomEvent| event.family == "tensorflow_bfc";
        let lines: Vec<u64> = events.iter().filter(|event| is_bfc(event)).map(line).collect();
        for event in events.iter_mut().filter(|event| is_bfc(event) && event.limit.is_none()) {
            let begin = line(event);
            let next = lines.iter().copied().find(|other| *other > begin).unwrap_or(u64::MAX);
            if let Some(account) = accounts.iter().find(|account| account.line > begin && account.line < next) {
                event.limit = account.limit;
                event.allocated = event.allocated.or(account.in_use);
            }
        }
    }

    /// The events in the order of the file, and what is doubtful about them.
    pub(crate) fn finish(mut self, trust: &Trust) -> (Vec<OomEvent>, Vec<String>) {
        while !self.open.is_empty() {
            self.close(0);
        }
        let mut warnings = Vec::new();
        let mut untrusted = false;
        let mut events = Vec::with_capacity(self.found.len());
        for found in self.found {
            let mut event = found.event;
            if found.from.is_some_and(|from| !trust.accepts(from)) {
                event.rank = self.file_rank;
                untrusted = true;
            }
            events.push(event);
        }
        events.sort_by_key(|event| event.at.place);
        Self::add_later_accounts(&mut events, &self.accounts);
        if untrusted {
            warnings.push(
                "the numbers in front of out-of-memory messages are not global ranks (the same number stands for \
                 several processes, or few lines have one), so those messages are kept without a rank"
                    .to_owned(),
            );
        }
        if self.harmless > 0 {
            warnings.push(format!(
                "{} passed over",
                counted(
                    self.harmless,
                    "allocator message that TensorFlow itself calls not a failure was",
                    "allocator messages that TensorFlow itself calls not a failure were"
                )
            ));
        }
        if self.dropped > 0 {
            warnings.push(format!(
                "{} left out beyond the limit of {}",
                counted(self.dropped, "out-of-memory message was", "out-of-memory messages were"),
                self.ctx.limits.max_oom_events
            ));
        }
        (events, warnings)
    }
}

/// Joins the lines as a log wraps them (at blanks) and as a terminal does (anywhere), and takes what says more.
fn parse(lines: &[Piece]) -> Parsed {
    let facts = |parsed: &Parsed| parsed.messages.iter().map(|m| m.facts().saturating_add(1)).sum::<usize>();
    let spaced = families::parse(&collapsed(lines.iter().flat_map(|piece| [piece.body.as_str(), " "])));
    if lines.len() == 1 {
        return spaced;
    }
    // A line as wide as the terminal goes on without a blank; a narrower one had one at its end.
    let width = lines.iter().map(|piece| piece.width).filter(|w| *w != usize::MAX).take(3).max().unwrap_or(0);
    let tight = lines.iter().flat_map(|p| [p.body.as_str(), if p.width < width { " " } else { "" }]);
    let tight = families::parse(&collapsed(tight));
    if facts(&tight) > facts(&spaced) { tight } else { spaced }
}

/// The pieces one after another, every run of blanks as one.
fn collapsed<'p>(pieces: impl Iterator<Item = &'p str>) -> String {
    let mut out = String::new();
    for c in pieces.flat_map(str::chars) {
        if !c.is_whitespace() {
            out.push(c);
        } else if !out.is_empty() && !out.ends_with(' ') {
            out.push(' ');
        }
    }
    out.truncate(out.trim_end().len());
    out
}

fn bounded(body: &str) -> &str {
    match body.char_indices().find(|(at, _)| *at >= MAX_BLOCK_BYTES) {
        Some((at, _)) => body.get(..at).unwrap_or(body),
        None => body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Limits;
    use rankscope_model::{ArtifactId, GIB, Place};

    pub(super) fn events(text: &str) -> (Vec<OomEvent>, Vec<String>) {
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name: "job.log", limits: &limits };
        let evidence = read(&mut text.as_bytes(), &ctx).unwrap();
        (evidence.ooms, evidence.artifacts[0].warnings.clone())
    }

    const MODERN: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 5 has a total capacity of 79.18 GiB of which 29.69 MiB is free. Including non-PyTorch memory, this process has 75.49 GiB memory in use. Process 1204418 has 534.00 MiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";

    #[test]
    fn a_message_in_a_log_keeps_its_line_and_rank() {
        let (events, _) = events(&format!("start\n[rank5]: Traceback\n[rank5]: {MODERN}\n[rank5]: done\n"));
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].rank, events[0].device), (Some(Rank(5)), Some(5)));
        assert_eq!(events[0].at.place, Place::Line(3));
        assert!(events[0].at.quote.contains("Tried to allocate 1.50 GiB"));
    }

    #[test]
    fn wrapped_at_blanks_or_anywhere_it_is_the_same_message() {
        let (whole, _) = events(MODERN);
        let at_blanks =
            MODERN.split(' ').collect::<Vec<_>>().chunks(6).map(|w| w.join(" ")).collect::<Vec<_>>().join("\n");
        let anywhere = |width: usize| {
            MODERN
                .as_bytes()
                .chunks(width)
                .map(|c| String::from_utf8_lossy(c).into_owned())
                .collect::<Vec<_>>()
                .join("\n")
        };
        for text in [at_blanks, anywhere(80), anywhere(79), anywhere(61), anywhere(100)] {
            let (wrapped, _) = events(&text);
            assert_eq!(wrapped.len(), 1, "{text}");
            assert_eq!(
                (wrapped[0].tried, wrapped[0].total, wrapped[0].free),
                (whole[0].tried, whole[0].total, whole[0].free),
                "{text}"
            );
            assert_eq!(wrapped[0].others, whole[0].others);
            assert_eq!(wrapped[0].reserved_unallocated, whole[0].reserved_unallocated);
        }
    }

    #[test]
    fn interleaved_writers_are_kept_apart() {
        let text = "[rank0]: RuntimeError: CUDA out of memory. Tried to allocate\n[rank1]: RuntimeError: CUDA out of memory. Tried to allocate\n[rank0]: 1.00 GiB (GPU 0; 8.00 GiB total capacity;\n[rank1]: 2.00 GiB (GPU 1; 8.00 GiB total capacity;\n";
        let (events, _) = events(text);
        let short: Vec<_> = events.iter().map(|e| (e.rank.map(|r| r.0), e.device, e.tried)).collect();
        assert_eq!(short, [(Some(0), Some(0), Some(Bytes(GIB))), (Some(1), Some(1), Some(Bytes(2 * GIB)))]);
    }

    #[test]
    fn a_message_cut_into_by_another_rank_keeps_to_itself() {
        let text = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to all[rank1]: torch.OutOfMemoryError: \
                    CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.18 GiB of which \
                    29.69 MiB is free.\n";
        let (events, _) = events(text);
        let short: Vec<_> = events.iter().map(|e| (e.rank.map(|r| r.0), e.device, e.tried)).collect();
        assert_eq!(short, [(Some(0), None, None), (Some(1), Some(1), Some(Bytes(2 * GIB)))]);
    }

    #[test]
    fn a_repeat_is_counted_once() {
        let (events, warnings) = events(&format!("[rank1]: {MODERN}\n[rank1]: {MODERN}\n[rank2]: {MODERN}\n"));
        assert_eq!((events.len(), warnings.len()), (2, 0));
    }

    #[test]
    fn an_allocator_account_before_the_failure_is_used() {
        let (events, _) = events(
            "Stats: \nLimit:                      4928097484\nInUse:                      4248542720\n\n[error] failed: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 58982400 bytes.\n",
        );
        assert_eq!((events[0].limit, events[0].allocated), (Some(Bytes(4_928_097_484)), Some(Bytes(4_248_542_720))));
        assert_eq!(events[0].total, None, "what it may take is not what the card has");
    }

    #[test]
    fn an_allocator_account_behind_the_failure_is_that_failures_own() {
        let failure = |size: &str| {
            format!(
                "Allocator (GPU_0_bfc) ran out of memory trying to allocate {size}.  Current allocation summary follows.\n"
            )
        };
        let account = |limit: u64, used: u64| {
            format!("Chunk at 7f00 of size 256\nStats: \nLimit: {limit:>20}\nInUse: {used:>20}\n")
        };
        let text =
            [failure("2.00GiB"), account(100, 90), failure("3.00GiB"), failure("4.00GiB"), account(200, 180)].concat();
        let (events, _) = events(&text);
        let told: Vec<_> = events.iter().map(|event| (event.limit, event.allocated)).collect();
        let of = |limit, used| (Some(Bytes(limit)), Some(Bytes(used)));
        assert_eq!(told.first(), Some(&of(100, 90)), "{events:?}");
        assert_eq!(told.last(), Some(&of(200, 180)));
    }
}
