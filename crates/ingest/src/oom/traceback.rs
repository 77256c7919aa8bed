//! The Python stack in front of an out-of-memory message: plain, behind prefixes, interleaved, or drawn by rich.
//!
//! Keeps the latest stack of every writer, bounded, until a message asks for it. Knows no message.

use crate::lines::Line;
use rankscope_model::{Frame, OomEvent};

/// Writers whose stacks may be open at once.
const MAX_WRITERS: usize = 64;
/// Frames gathered of one stack; beyond it the middle is lost, because both ends tell more.
const MAX_GATHERED: usize = 256;
/// Frames at the outer end that are kept of a deeper stack.
const OUTER: usize = 16;
/// Lines of a writer between its last frame and the message: source with marks, or a box with its variables.
const MAX_QUIET: u32 = 40;
/// The same behind the line that names the exception.
const MAX_BEHIND: u32 = 6;
/// Bytes kept of a file's or a function's name.
const MAX_NAME: usize = 300;

/// Who wrote a line: what its prefixes say, and the process id that Ray prints.
type Writer = ((Option<u32>, Option<u32>), Option<u32>);

/// A stack that was handed out: it belongs to the message that names it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StackId(u64);

/// The latest stack of each writer.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    open: Vec<Stack>,
    count: u64,
}

#[derive(Debug, Default)]
struct Stack {
    writer: Writer,
    id: u64,
    /// Outermost first, as printed.
    frames: Vec<Frame>,
    /// Heads seen in a row: as many processes write into one another.
    heads: usize,
    /// Frames that such processes printed once more.
    repeats: usize,
    /// Messages that took the stack.
    given: usize,
    /// Lines since the last frame.
    quiet: u32,
    /// The line that names the exception was seen.
    ended: bool,
    /// The beginning of a frame that a box broke in two.
    broken: Option<String>,
}

impl Stacks {
    /// Takes a line; `true` if it is the head or a frame of a traceback, and so nothing else.
    pub(super) fn line(&mut self, line: &Line<'_>) -> bool {
        let body = line.body;
        if is_head(body) {
            self.head(writer(line));
            return true;
        }
        if let Some(frame) = plain_frame(body) {
            let writer = writer(line);
            // Frames without a head of their own (Ray prints such) begin anew behind an exception.
            if self.open.iter().any(|stack| stack.writer == writer && stack.ended) {
                self.renew(writer);
            }
            self.stack(writer).push(frame);
            return true;
        }
        if self.open.is_empty() {
            return false;
        }
        let writer = writer(line);
        let Some(index) = self.open.iter().position(|stack| stack.writer == writer) else { return false };
        let Some(stack) = self.open.get_mut(index) else { return false };
        if stack.boxed(body) {
            return true;
        }
        if !stack.lives_on(body) {
            self.open.remove(index);
        }
        false
    }

    /// The stack behind a message that begins on `line`, innermost frame first.
    pub(super) fn of(&self, line: &Line<'_>) -> Option<(StackId, Vec<Frame>)> {
        let writer = writer(line);
        let stack = self.open.iter().find(|stack| stack.writer == writer && !stack.frames.is_empty())?;
        let mut frames = stack.frames.clone();
        if frames.len() > OomEvent::MAX_FRAMES {
            frames.drain(OUTER..frames.len().saturating_sub(OomEvent::MAX_FRAMES - OUTER));
        }
        frames.reverse();
        Some((StackId(stack.id), frames))
    }

    /// A message has taken the stack; what comes behind it is another failure, unless several processes printed it.
    pub(super) fn taken(&mut self, id: StackId) {
        self.open.retain_mut(|stack| {
            let printed = stack.repeats.checked_div(stack.frames.len()).unwrap_or(stack.repeats).saturating_add(1);
            stack.given = stack.given.saturating_add(usize::from(stack.id == id.0));
            stack.given < printed
        });
    }

    fn head(&mut self, writer: Writer) {
        // A second head in the middle of a stack is another process that writes into the same pipe.
        let goes_on = |stack: &Stack| stack.writer == writer && stack.heads > 0 && !stack.ended && stack.quiet <= 2;
        if !self.open.iter().any(goes_on) {
            self.renew(writer);
        }
        let stack = self.stack(writer);
        stack.heads = stack.heads.saturating_add(1).min(MAX_WRITERS);
        stack.quiet = 0;
    }

    /// Forgets a writer's stack, so that the next one has an id of its own.
    fn renew(&mut self, writer: Writer) {
        self.open.retain(|stack| stack.writer != writer);
    }

    /// The writer's stack, which is moved to the end or made there.
    fn stack(&mut self, writer: Writer) -> &mut Stack {
        let stack = if let Some(index) = self.open.iter().position(|stack| stack.writer == writer) {
            self.open.remove(index)
        } else {
            if self.open.len() >= MAX_WRITERS {
                self.open.remove(0);
            }
            self.count = self.count.saturating_add(1);
            Stack { writer, id: self.count, ..Stack::default() }
        };
        let last = self.open.len();
        self.open.push(stack);
        // Just pushed.
        #[allow(clippy::indexing_slicing)]
        &mut self.open[last]
    }
}

impl Stack {
    fn push(&mut self, frame: Frame) {
        self.quiet = 0;
        self.broken = None;
        let repeats = self.heads >= 2 && self.frames.iter().rev().take(self.heads).any(|before| *before == frame);
        if repeats {
            self.repeats = self.repeats.saturating_add(1);
            return;
        }
        if self.frames.len() >= MAX_GATHERED {
            self.frames.remove(OUTER);
        }
        self.frames.push(frame);
    }

    /// A line inside rich's box.
    fn boxed(&mut self, body: &str) -> bool {
        let Some(inner) = inside_box(body).filter(|_| !self.ended) else { return false };
        let joined = self.broken.take().map(|start| [format!("{start} {inner}"), format!("{start}{inner}")]);
        let frame = joined.iter().flatten().find_map(|text| boxed_frame(text)).or_else(|| boxed_frame(inner));
        if let Some(frame) = frame {
            self.push(frame);
            return true;
        }
        let is_path = inner.starts_with(['/', '~', '<']) || inner.get(1..3) == Some(":\\");
        if is_path && inner.len() <= MAX_NAME {
            self.broken = Some(inner.to_owned());
        }
        false
    }

    /// Notes a line that is no frame; `false` if the stack is over.
    fn lives_on(&mut self, body: &str) -> bool {
        self.quiet = self.quiet.saturating_add(1);
        if self.ended {
            return self.quiet <= MAX_BEHIND;
        }
        match exception(body) {
            Some(name) if may_be_memory(name) || super::families::is_trigger(body) => {
                self.ended = true;
                self.quiet = 0;
                true
            }
            Some(_) => false,
            None => self.quiet <= MAX_QUIET,
        }
    }
}

fn writer(line: &Line<'_>) -> Writer {
    let pid = line.text.starts_with('(').then(|| {
        let (_, rest) = line.text.get(..line.text.len().min(160))?.split_once("pid=")?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    });
    (line.label.writer(), pid.flatten())
}

/// `Traceback (most recent call last):`, also behind `traceback :` of torchrun's summary or inside rich's border.
fn is_head(body: &str) -> bool {
    const HEAD: &str = "Traceback (most recent call last)";
    body.contains(HEAD)
}

/// `File "train.py", line 12, in main`; `File ~/train.py:12, in main(args)` of `IPython`.
fn plain_frame(body: &str) -> Option<Frame> {
    let rest = body.strip_prefix("File ")?;
    if let Some(rest) = rest.strip_prefix('"') {
        let (file, rest) = rest.split_once("\", line ")?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let line = rest.get(..end)?.parse().ok()?;
        let function = rest.get(end..)?.strip_prefix(", in ").unwrap_or_default();
        return Some(frame(file, line, function));
    }
    let (place, function) = rest.split_once(", in ")?;
    let (file, line) = place.rsplit_once(':')?;
    let function = function.split_once('(').map_or(function, |(name, _)| name);
    Some(frame(file, line.parse().ok()?, function))
}

/// What stands between the borders of rich's box.
fn inside_box(body: &str) -> Option<&str> {
    let inner = body.strip_prefix('│')?;
    Some(inner.trim_end().trim_end_matches('│').trim())
}

/// `/workspace/train.py:12 in main`.
fn boxed_frame(inner: &str) -> Option<Frame> {
    let (place, function) = inner.rsplit_once(" in ")?;
    let (file, line) = place.rsplit_once(':')?;
    let is_path = file.contains(['/', '\\', '<']) || file.contains(".py");
    let is_name = !function.is_empty() && function.chars().all(|c| c.is_alphanumeric() || "_.<>".contains(c));
    let is_place = line.bytes().all(|b| b.is_ascii_digit()) && !file.starts_with(['❱', ' ']);
    (is_path && is_name && is_place).then(|| Some(frame(file, line.parse().ok()?, function)))?
}

fn frame(file: &str, line: u32, function: &str) -> Frame {
    Frame { function: bounded(function.trim()).to_owned(), file: bounded(file).to_owned(), line }
}

/// The end of a long path tells more than its beginning.
fn bounded(name: &str) -> &str {
    let over = name.len().saturating_sub(MAX_NAME);
    let from = (over..name.len()).find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    if over == 0 { name } else { name.get(from..).unwrap_or(name) }
}

/// The class in a line that ends a traceback: `torch.OutOfMemoryError: …`, `KeyboardInterrupt`.
fn exception(body: &str) -> Option<&str> {
    let end = body.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(body.len());
    let (name, rest) = body.split_at_checked(end)?;
    let last = name.rsplit('.').next()?;
    let is_class = ["Error", "Exception", "Interrupt", "Exit"].iter().any(|end| last.ends_with(end));
    (is_class && last.starts_with(|c: char| c.is_ascii_uppercase()) && (rest.is_empty() || rest.starts_with(':')))
        .then_some(name)
}

/// Whether an exception of this class may be about memory, or about a library that ran out of it.
fn may_be_memory(name: &str) -> bool {
    ["Runtime", "Memory", "Backend", "Accelerator", "Exhausted", "NCCL", "Cuda", "CUDA", "Internal", "Dist"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use super::*;

    const OOM: &str = "CUDA out of memory. Tried to allocate 2.00 MiB (GPU 1; 8.00 GiB total capacity; 6.00 GiB already allocated; 1.00 MiB free; 7.00 GiB reserved in total by PyTorch)";

    fn stack(frames: &[Frame]) -> Vec<String> {
        frames.iter().map(|f| format!("{}:{} {}", f.file, f.line, f.function)).collect()
    }

    #[test]
    fn a_plain_traceback_is_read_innermost_first() {
        let text = format!(
            "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    main()\n  File \"train.py\", line 5, in main\n    torch.load(path)\n    ^^^^^^^^^^^^^^^^\nRuntimeError: {OOM}\n"
        );
        let (events, _) = events(&text);
        assert_eq!(stack(&events[0].frames), ["train.py:5 main", "train.py:9 <module>"]);
    }

    #[test]
    fn writers_are_kept_apart_by_their_prefix() {
        let text = format!(
            "[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n[rank1]:   File \"b.py\", line 1, in g\n[rank0]:   File \"a.py\", line 1, in f\n[rank1]: RuntimeError: {OOM}\n[rank0]: RuntimeError: {}\n",
            OOM.replace("GPU 1", "GPU 0")
        );
        let (events, _) = events(&text);
        let seen: Vec<_> = events.iter().map(|e| (e.rank.map(|r| r.0), stack(&e.frames))).collect();
        assert_eq!(seen, [(Some(1), vec!["b.py:1 g".to_owned()]), (Some(0), vec!["a.py:1 f".to_owned()])]);
        let ray = format!(
            "(Actor pid=7) Traceback (most recent call last):\n(Actor pid=8) Traceback (most recent call last):\n(Actor pid=7)   File \"a.py\", line 1, in f\n(Actor pid=8)   File \"b.py\", line 1, in g\n(Actor pid=8) RuntimeError: {OOM}\n"
        );
        assert_eq!(stack(&super::super::tests::events(&ray).0[0].frames), ["b.py:1 g"]);
    }

    #[test]
    fn interleaved_without_prefixes_the_same_stack_is_read_once() {
        let head = "Traceback (most recent call last):\n";
        let outer = "  File \"train.py\", line 9, in <module>\n";
        let inner = "  File \"train.py\", line 5, in main\n";
        let text = format!("{head}{head}{outer}    main()\n{outer}    main()\n{inner}{inner}RuntimeError: {OOM}\n");
        let text = format!("{text}RuntimeError: {}\n", OOM.replace("GPU 1", "GPU 0"));
        let (found, _) = events(&text);
        assert_eq!(found.len(), 2);
        for event in &found {
            assert_eq!(stack(&event.frames), ["train.py:5 main", "train.py:9 <module>"]);
        }
        // One process that calls itself keeps every call.
        let text = format!("{head}{outer}{inner}{inner}RuntimeError: {OOM}\n");
        assert_eq!(events(&text).0[0].frames.len(), 3);
    }

    #[test]
    fn a_box_drawn_by_rich_is_read_too() {
        let text = format!(
            "╭───────────── Traceback (most recent call last) ─────────────╮\n│ /workspace/train.py:13 in <module>                          │\n│                                                             │\n│   10                                                        │\n│ ❱ 13     train(\"x:1 in y\")                                  │\n│ /opt/conda/lib/python3.10/site-packages/torch/nn/module.py:1501 in │\n│ _call_impl                                                  │\n│ ❱ 1501     return forward_call(*args)                       │\n╰─────────────────────────────────────────────────────────────╯\nOutOfMemoryError: {OOM}\n"
        );
        assert_eq!(
            stack(&events(&text).0[0].frames),
            [
                "/opt/conda/lib/python3.10/site-packages/torch/nn/module.py:1501 _call_impl",
                "/workspace/train.py:13 <module>"
            ]
        );
    }

    #[test]
    fn another_failure_does_not_lend_its_stack() {
        let head = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\n";
        let (found, _) = events(&format!("{head}KeyError: 'x'\nstep 4\nRuntimeError: {OOM}\n"));
        assert!(found[0].frames.is_empty());
        let (found, _) = events(&format!("{head}RuntimeError: {OOM}\nRuntimeError: {}\n", OOM.replace('1', "2")));
        assert_eq!(found.iter().map(|e| e.frames.len()).collect::<Vec<_>>(), [1, 0]);
        let gap = "waiting\n".repeat(50);
        let (found, _) = events(&format!("{head}{gap}RuntimeError: {OOM}\n"));
        assert!(found[0].frames.is_empty());
    }

    #[test]
    fn chained_and_library_failures_keep_the_stack_that_failed() {
        let text = format!(
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"b.py\", line 2, in g\nRuntimeError: {OOM}\n"
        );
        assert_eq!(stack(&events(&text).0[0].frames), ["b.py:2 g"]);
        let nccl = "[rank3]:Traceback (most recent call last):\n[rank3]:  File \"train.py\", line 60, in save\n[rank3]:    dist.barrier()\n[rank3]:torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled cuda error\n[rank3]:ncclUnhandledCudaError: Call to CUDA function failed.\n[rank3]:Last error:\n[rank3]:Failed to CUDA calloc 8388608 bytes\n";
        let (found, _) = events(nccl);
        assert_eq!((found[0].family.as_str(), stack(&found[0].frames)), ("nccl", vec!["train.py:60 save".to_owned()]));
    }

    #[test]
    fn a_message_that_was_logged_first_gets_the_stack_of_its_repeat() {
        let text = format!(
            "ERROR: {OOM}\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\nRuntimeError: {OOM}\n"
        );
        let (found, _) = events(&text);
        assert_eq!((found.len(), found[0].frames.len()), (1, 1));
    }

    #[test]
    fn source_that_speaks_of_memory_does_not_hide_the_stack() {
        let text = format!(
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    if \"out of memory\" in str(e):\n  File \"b.py\", line 2, in g\n    x = y\nRuntimeError: {OOM}\n"
        );
        assert_eq!(stack(&events(&text).0[0].frames), ["b.py:2 g", "a.py:1 f"]);
    }

    #[test]
    fn deep_stacks_are_bounded_at_both_ends() {
        let frames: Vec<String> = (0..1000).map(|n| format!("  File \"a.py\", line {n}, in f{n}\n")).collect();
        let frames = frames.concat();
        let (found, _) = events(&format!("Traceback (most recent call last):\n{frames}RuntimeError: {OOM}\n"));
        let frames = &found[0].frames;
        assert_eq!(frames.len(), OomEvent::MAX_FRAMES);
        assert_eq!((frames[0].line, frames[63].line), (999, 0));
    }

    #[test]
    fn frames_of_notebooks() {
        assert_eq!(plain_frame("File ~/x/train.py:12, in main(args, *rest)"), Some(frame("~/x/train.py", 12, "main")));
        assert_eq!(plain_frame("File not found: a.txt, in b"), None);
    }
}
