//! Training scripts and notebooks, read as a syntax tree.
//!
//! The source is parsed and its flow followed: aliases, simple variables, functions of the file where they are
//! called. Nothing in it is run. What comes out are facts with their lines ([`rankscope_model::ScriptEvidence`]);
//! what they mean for a cause is not decided here.

mod calls;
mod definitions;
mod eval;
mod facts;
mod names;
mod nesting;
mod notebook;
mod scan;
mod source;
mod statements;
mod value;
mod walk;

use crate::context::{ReadContext, ReadError};
use facts::Facts;
use rankscope_model::{ArtifactKind, Bytes, Evidence, Fact, Framework, SamplerUse, ScriptEvidence, Warning};
use ruff_python_ast::PySourceType;
use ruff_python_parser::ParseError;
use ruff_text_size::{Ranged, TextSize};
use source::Source;
use std::io::{BufRead, Read};
use walk::Walker;

/// Largest source that is parsed: the syntax tree of dense source takes about 50 times its size. The longest
/// training script in public repositories has about 300 KiB.
const MAX_SOURCE: usize = 1 << 20;
/// Largest notebook that is opened; its outputs are skipped without being held.
const MAX_NOTEBOOK: u64 = 256 << 20;
/// Stack of the thread that parses and walks. Only what is used is ever backed by memory; [`nesting::MAX_DEPTH`]
/// levels need a small part of it.
const STACK_BYTES: usize = 256 << 20;

/// Reads a Python source, or a notebook where the name or the content says so.
pub fn read(input: &mut dyn BufRead, ctx: &ReadContext<'_>) -> Result<Evidence, ReadError> {
    let mut info = ctx.info(ArtifactKind::PythonScript);
    let (source, is_cut) =
        if is_notebook(ctx.name) { read_notebook(input)? } else { (Source::new(read_text(input)?), false) };
    if let Err(nesting::TooDeep { line, limit }) = nesting::bound(source.text(), nesting::MAX_DEPTH) {
        return Err(ReadError::OverLimit {
            what: format!("the nesting of the source, at line {line},"),
            limit,
            advice: "such depth is made by programs; upload the training script itself".to_owned(),
        });
    }
    let (script, mut warnings) = understand(&source, ctx)?;
    if is_cut {
        warnings.push(format!("the code cells hold more than {}; the rest was left out", Bytes(MAX_SOURCE as u64)));
    }
    warnings.truncate(ctx.limits.max_warnings);
    info.warnings = warnings;
    let script = ScriptEvidence { is_whole: script.is_whole && !is_cut, ..script };
    Ok(Evidence { artifacts: vec![info], scripts: vec![script], ..Evidence::default() })
}

/// Whether a name is that of a notebook, compressed or not.
pub fn is_notebook(name: &str) -> bool {
    let own = name.trim_end_matches(".gz").trim_end_matches(".zst");
    own.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("ipynb"))
}

fn read_text(input: &mut dyn BufRead) -> Result<String, ReadError> {
    let mut bytes = Vec::new();
    let limit = MAX_SOURCE as u64;
    let count = input
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|source| ReadError::Io { offset: bytes.len() as u64, source })?;
    if count as u64 > limit {
        return Err(too_large());
    }
    Ok(decode(&bytes))
}

fn too_large() -> ReadError {
    ReadError::OverLimit {
        what: "the Python source".to_owned(),
        limit: Bytes(MAX_SOURCE as u64).to_string(),
        advice: "upload the training script alone, without generated data in it".to_owned(),
    }
}

/// UTF-8 with or without a mark, UTF-16 with a mark, or an 8-bit encoding whose letters beyond ASCII do not matter.
fn decode(bytes: &[u8]) -> String {
    let utf16 = |rest: &[u8], word: fn([u8; 2]) -> u16| {
        let words = rest
            .chunks_exact(2)
            .map(|pair| word([pair.first().copied().unwrap_or(0), pair.last().copied().unwrap_or(0)]));
        char::decode_utf16(words).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn read_notebook(input: &mut dyn BufRead) -> Result<(Source, bool), ReadError> {
    let mut limited = input.take(MAX_NOTEBOOK);
    match notebook::read(&mut limited, MAX_SOURCE) {
        Ok(notebook) => Ok((notebook.source, notebook.is_cut)),
        Err(_) if limited.limit() == 0 => Err(ReadError::OverLimit {
            what: "the notebook".to_owned(),
            limit: Bytes(MAX_NOTEBOOK).to_string(),
            advice: "clear its outputs and upload it again".to_owned(),
        }),
        Err(error) if error.is_io() => {
            Err(ReadError::Io { offset: MAX_NOTEBOOK.saturating_sub(limited.limit()), source: error.into() })
        }
        Err(error) => Err(ReadError::Malformed {
            offset: MAX_NOTEBOOK.saturating_sub(limited.limit()),
            why: format!("not the JSON of a notebook (line {}, column {})", error.line(), error.column()),
            advice: "export the code as a .py file and upload that".to_owned(),
        }),
    }
}

/// Parses and walks on a thread with room for deep syntax.
fn understand(source: &Source, ctx: &ReadContext<'_>) -> Result<(ScriptEvidence, Vec<Warning>), ReadError> {
    let artifact = ctx.artifact;
    let walked = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("python-script".to_owned()).stack_size(STACK_BYTES);
        thread
            .spawn_scoped(scope, || walk(source, Facts::new(source, artifact)))
            .map(std::thread::ScopedJoinHandle::join)
    });
    match walked {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(ReadError::NotThisFormat {
            why: "the parser failed on this source; this is a defect of Rankscope, please report it with the file"
                .to_owned(),
        }),
        Err(source) => Err(ReadError::Io { offset: 0, source }),
    }
}

fn walk(source: &Source, facts: Facts<'_>) -> (ScriptEvidence, Vec<Warning>) {
    let parsed = ruff_python_parser::parse_unchecked_source(source.text(), PySourceType::Python);
    let mut warnings = syntax_warnings(source, parsed.errors());
    let has_errors = !parsed.errors().is_empty();
    let at = source.place(facts.artifact, TextSize::new(0));
    let mut walker = Walker::new(source, facts);
    walker.run(parsed.suite());
    let is_cut = walker.is_cut || walker.is_spent() || walker.facts.is_full;
    if is_cut {
        warnings.push(
            "the script is too large or calls too deep to be followed to its end; some of it was left out".to_owned(),
        );
    }
    let is_entry = walker.seen.main_guard || walker.seen.runs_on_import || walker.facts.run_a_program();
    finish(&mut walker);
    let frameworks = walker.facts.frameworks.iter().copied().collect();
    let launchers = walker.facts.launchers.iter().copied().collect();
    let facts = walker.facts.into_facts();
    let margins = source.margins(facts.iter().map(|fact| fact.at.place));
    let is_whole = !has_errors && !is_cut;
    let script = ScriptEvidence { at, frameworks, launchers, is_entry, is_whole, facts, margins };
    (script, warnings)
}

/// Names the first place that is no Python 3; the parser went on behind it.
fn syntax_warnings(source: &Source, errors: &[ParseError]) -> Vec<Warning> {
    let Some(first) = errors.first() else { return Vec::new() };
    let line = source.line(first.range().start());
    let text = source.line_text(line).trim();
    let is_python_2 = text.starts_with("print ") || text.starts_with("exec ") || text.starts_with("except ");
    let what = if is_python_2 { "it looks like Python 2".to_owned() } else { first.error.to_string() };
    let others = match errors.len() {
        1 => String::new(),
        count => format!(", and {} more places", count.saturating_sub(1)),
    };
    vec![format!(
        "line {line} is not valid Python 3 ({what}){others}; what could be read around it was used, so something may be \
         missing"
    )]
}

/// What can be said only when the whole file is known.
fn finish(walker: &mut Walker<'_>) {
    let set_epoch_elsewhere = walker.seen.set_epoch_elsewhere;
    let keeps_samplers = |option: &(String, String)| {
        matches!(option.0.as_str(), "replace_sampler_ddp" | "use_distributed_sampler") && option.1 == "False"
    };
    let is_replaced = walker.facts.frameworks.contains(&Framework::Lightning)
        && !walker.facts.iter().any(|fact| match &fact.what {
            Fact::TrainerBuilt { options, .. } => options.iter().any(keeps_samplers),
            _ => false,
        });
    for fact in walker.facts.iter_mut() {
        match &mut fact.what {
            Fact::DistributedSampler { has_set_epoch, .. } => *has_set_epoch |= set_epoch_elsewhere,
            // Lightning puts a distributed sampler into every loader that it is given.
            Fact::DataLoader { sampler, .. }
                if is_replaced && matches!(sampler, SamplerUse::Absent | SamplerUse::NotDistributed) =>
            {
                *sampler = SamplerUse::Framework;
            }
            _ => {}
        }
    }
}
