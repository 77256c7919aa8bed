//! `rankscope diagnose`: the same engine as the server, for files here.

use super::{folder, nvml};
use crate::{
    cli::{DiagnoseArgs, FailOn, Format},
    engine,
    limits::size,
    render::{Terminal, comparison_markdown, comparison_terminal, markdown, terminal},
    store::{new_id, now},
};
use anyhow::{Context, bail};
use rankscope_app::ComparedReports;
use rankscope_diagnosis::{Policy, Side, compare};
use rankscope_model::{Comparison, Diagnosis, Evidence, Report, RunInfo, Verdict};
use rankscope_telemetry::{NvmlState, ProcFs};
use std::{
    collections::HashMap,
    env,
    fs::File,
    io::{self, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Bytes of piped input that are taken: it must be kept on disk to be read.
const MAX_STDIN: u64 = 8 << 30;
/// Columns where the terminal does not say.
const DEFAULT_WIDTH: usize = 100;

/// Diagnoses, writes the result to standard output, and gives the exit status.
pub fn run(args: &DiagnoseArgs) -> anyhow::Result<ExitCode> {
    let mut evidence = read_all(find_inputs(&args.inputs)?);
    if args.nvml {
        evidence.merge(this_machine()?);
    }
    let report = report_of(&evidence, "nothing to diagnose")?;
    let text = if args.baseline.is_empty() {
        alone(&report, args.format)?
    } else {
        let base = read_all(find_inputs(&args.baseline)?);
        let base = report_of(&base, "nothing to diagnose in the baseline")?;
        let comparison = compare(Side::from(&base), Side::from(&report), &Policy::default());
        beside(&ComparedReports { base, head: report.clone(), comparison }, args.format)?
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // `| head` has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("writing the result")?,
    }
    let fails = match args.fail_on {
        Some(FailOn::Imbalance) => report.diagnosis.verdict == Verdict::Imbalance,
        None => false,
    };
    Ok(if fails { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn read_all(inputs: Vec<Input>) -> Evidence {
    let mut evidence = Evidence::default();
    for Input { name, source } in inputs {
        evidence.merge(read(&name, source));
    }
    evidence
}

fn report_of(evidence: &Evidence, refusal: &str) -> anyhow::Result<Report> {
    if !engine::is_usable(evidence) {
        bail!("{refusal}\n{}", reasons(evidence));
    }
    let title = engine::title_from_names(evidence.artifacts.iter().map(|artifact| artifact.name.as_str()));
    let created_at = now();
    Ok(engine::report(RunInfo { id: new_id(), title, created_at }, 1, created_at, evidence))
}

fn alone(report: &Report, format: Format) -> anyhow::Result<String> {
    Ok(match format {
        Format::Text => terminal(report, this_terminal()),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&report.diagnosis)?),
        Format::Html => rankscope_app::standalone_report_html(report),
        Format::Markdown => markdown(report),
    })
}

/// The same with the answer to the fix in front; in JSON beside the diagnosis, which keeps its shape.
fn beside(compared: &ComparedReports, format: Format) -> anyhow::Result<String> {
    #[derive(serde::Serialize)]
    struct Beside<'a> {
        #[serde(flatten)]
        diagnosis: &'a Diagnosis,
        comparison: &'a Comparison,
    }
    let ComparedReports { head, comparison, .. } = compared;
    Ok(match format {
        Format::Text => format!("{}\n{}", comparison_terminal(comparison, this_terminal()), alone(head, format)?),
        Format::Json => {
            let both = Beside { diagnosis: &head.diagnosis, comparison };
            format!("{}\n", serde_json::to_string_pretty(&both)?)
        }
        Format::Html => rankscope_app::standalone_comparison_html(compared),
        Format::Markdown => format!("{}\n{}", comparison_markdown(comparison), alone(head, format)?),
    })
}

/// One reading of this machine's devices, with ranks from the processes' environment.
fn this_machine() -> anyhow::Result<Evidence> {
    match nvml::open() {
        NvmlState::Ready(nvml) => Ok(nvml.read_once(&ProcFs::default()).evidence("this machine")),
        state => bail!("{state}"),
    }
}

struct Input {
    name: String,
    source: Source,
}

enum Source {
    /// Opened when its turn comes: a folder may hold more files than a process may open.
    Path(PathBuf),
    /// Standard input, kept.
    Kept(File),
}

/// A file that was there a moment ago may be gone: then it is named with the reason.
fn read(name: &str, source: Source) -> Evidence {
    let file = match source {
        Source::Path(path) => File::open(path),
        Source::Kept(file) => Ok(file),
    };
    match file.and_then(|file| Ok((file.metadata()?.len(), file))) {
        Ok((bytes, file)) => engine::read(name, bytes, &mut BufReader::with_capacity(256 << 10, file)).evidence,
        Err(error) => engine::unreadable_io(name, 0, &error),
    }
}

/// Tries everything first: a path that cannot be opened is a mistake of the caller, who should hear of all of them.
fn find_inputs(given: &[PathBuf]) -> anyhow::Result<Vec<Input>> {
    let mut found = Vec::new();
    let mut wrong = Vec::new();
    for path in given {
        let opened = if path.as_os_str() == "-" { open_stdin().map(|input| vec![input]) } else { open(path) };
        match opened {
            Ok(inputs) => found.extend(inputs),
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(with_short_names(found))
}

fn open(path: &Path) -> anyhow::Result<Vec<Input>> {
    let says = || path.display().to_string();
    if !path.metadata().with_context(says)?.is_dir() {
        return Ok(vec![open_file(path)?]);
    }
    let found = folder::list(path).with_context(says)?;
    for note in &found.notes {
        eprintln!("rankscope: {}: {note}", path.display());
    }
    if found.files.is_empty() {
        bail!("{}: no files in this folder", path.display());
    }
    // Names from the folder on, because a folder may tell the rank of what it holds.
    Ok(found.files.into_iter().map(|(path, name)| Input { name, source: Source::Path(path) }).collect())
}

fn open_file(path: &Path) -> anyhow::Result<Input> {
    let says = || path.display().to_string();
    File::open(path).with_context(says)?;
    Ok(Input { name: says(), source: Source::Path(path.to_owned()) })
}

fn open_stdin() -> anyhow::Result<Input> {
    let mut file = tempfile::tempfile().context("keeping standard input")?;
    let mut limited = io::Read::take(io::stdin().lock(), MAX_STDIN + 1);
    let bytes = io::copy(&mut limited, &mut file).context("reading standard input")?;
    if bytes > MAX_STDIN {
        bail!("standard input is larger than {}", size(MAX_STDIN));
    }
    io::Seek::rewind(&mut file)?;
    Ok(Input { name: "standard input".to_owned(), source: Source::Kept(file) })
}

/// File names without their folders, where that leaves them different from each other.
fn with_short_names(mut inputs: Vec<Input>) -> Vec<Input> {
    let short = |name: &str| {
        Path::new(name).file_name().map_or_else(|| name.to_owned(), |file| file.to_string_lossy().into_owned())
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    for input in &inputs {
        *seen.entry(short(&input.name)).or_default() += 1;
    }
    for input in &mut inputs {
        let name = short(&input.name);
        // What a folder gave has its name already.
        let is_given = matches!(&input.source, Source::Path(path) if path.as_os_str() == input.name.as_str());
        if is_given && seen.get(&name) == Some(&1) {
            input.name = name;
        }
    }
    // Two folders may hold the same names.
    let mut seen: HashMap<String, usize> = HashMap::new();
    for input in &inputs {
        *seen.entry(input.name.clone()).or_default() += 1;
    }
    for input in inputs.iter_mut().filter(|input| seen.get(&input.name).is_some_and(|count| *count > 1)) {
        if let Source::Path(path) = &input.source {
            input.name = path.display().to_string();
        }
    }
    inputs
}

fn reasons(evidence: &Evidence) -> String {
    let reason = |artifact: &rankscope_model::ArtifactInfo| match artifact.warnings.as_slice() {
        [] => format!("  {}: {}, without memory figures", artifact.name, artifact.kind.title()),
        warnings => format!("  {}: {}", artifact.name, warnings.join("; ")),
    };
    evidence.artifacts.iter().map(reason).collect::<Vec<_>>().join("\n")
}

fn this_terminal() -> Terminal {
    let is_terminal = io::stdout().is_terminal();
    let asked_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let width = terminal_size::terminal_size().filter(|_| is_terminal).map(|(width, _)| usize::from(width.0));
    Terminal { color: is_terminal && !asked_plain, width: width.unwrap_or(DEFAULT_WIDTH) }
}
