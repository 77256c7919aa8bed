//! `rankscope diagnose`: the same engine as the server, for files here.

use super::{
    advice, folder, nvml,
    patient::{Patient, Waits},
};
use crate::{
    cli::{DiagnoseArgs, FailOn, Format},
    engine,
    limits::size,
    render::{Terminal, comparison_markdown, comparison_terminal, markdown, plain, terminal},
    store::{new_id, now},
};
use anyhow::{Context, anyhow, bail};
use rankscope_app::ComparedReports;
use rankscope_diagnosis::{Policy, Side, compare};
use rankscope_model::{Comparison, Diagnosis, Evidence, Report, RunInfo, Verdict};
use rankscope_telemetry::{NvmlState, ProcFs};
use std::{
    collections::HashMap,
    env,
    fs::{File, Metadata},
    io::{self, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

/// Bytes of piped input that are taken: it must be kept on disk to be read.
const MAX_KEPT: u64 = 8 << 30;
/// The name of what comes by `-`.
const STDIN: &str = "standard input";
/// A pipe through which nothing comes for so long has no writer, or one that has nothing to say.
const PIPE_WITHIN: Duration = Duration::from_mins(1);
/// Exit status where a given name leads to nothing.
const UNUSABLE: u8 = 2;
/// Columns where the terminal does not say.
const DEFAULT_WIDTH: usize = 100;

/// Diagnoses, writes the result to standard output, and gives the exit status. A file that cannot be read costs no
/// other: it is named on standard error and in the result. If its name was given (and not found in a folder), the exit
/// status says so after all, because the caller meant something else.
pub fn run(args: &DiagnoseArgs) -> anyhow::Result<ExitCode> {
    let mut refused = Refused::default();
    let mut evidence = read_all(&args.inputs, &mut refused);
    if args.nvml {
        evidence.merge(this_machine()?);
    }
    let report = report_of(&evidence, "nothing to diagnose")?;
    let text = if args.baseline.is_empty() {
        alone(&report, args.format)?
    } else {
        let base = read_all(&args.baseline, &mut refused);
        let base = report_of(&base, "nothing to diagnose in the baseline")?;
        let comparison = compare(Side::from(&base), Side::from(&report), &Policy::default());
        beside(&ComparedReports { base, head: report.clone(), comparison }, args.format)?
    };
    for line in &refused.lines {
        eprintln!("rankscope: {line}");
    }
    match io::stdout().lock().write_all(text.as_bytes()) {
        // `| head` has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("writing the result")?,
    }
    let fails = match args.fail_on {
        // What is by design is nothing to fail on.
        Some(FailOn::Imbalance) => report.diagnosis.verdict == Verdict::Imbalance && !report.diagnosis.is_by_design(),
        None => false,
    };
    Ok(match (refused.was_named, fails) {
        (true, _) => ExitCode::from(UNUSABLE),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// What could not be read beside the rest.
#[derive(Debug, Default)]
struct Refused {
    /// Name and reason of each.
    lines: Vec<String>,
    /// One of them was named on the command line.
    was_named: bool,
}

impl Refused {
    /// The evidence that names it; said on standard error too, once there is a result to stand beside.
    fn add(&mut self, name: &str, reason: &str) -> Evidence {
        self.lines.push(format!("{}: {}", plain(name), plain(reason)));
        engine::unreadable(name, 0, reason)
    }
}

/// Everything that the names lead to.
fn read_all(given: &[PathBuf], refused: &mut Refused) -> Evidence {
    let (inputs, wrong) = find_inputs(given);
    let mut evidence = Evidence::default();
    for Input { name, source } in inputs {
        evidence.merge(read(&name, source, refused));
    }
    for (name, reason) in wrong {
        refused.was_named = true;
        evidence.merge(refused.add(&name, &reason));
    }
    evidence
}

fn report_of(evidence: &Evidence, refusal: &str) -> anyhow::Result<Report> {
    if !engine::is_usable(evidence) {
        bail!("{refusal}\n{}\n\n{}", reasons(evidence), advice::WHAT_IT_READS);
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
    match nvml::open(None) {
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
    /// What could be read once only, kept.
    Kept(File),
}

/// A file that was there a moment ago may be gone, or closed to us: then it is named with the reason.
fn read(name: &str, source: Source, refused: &mut Refused) -> Evidence {
    let file = match source {
        Source::Path(path) => File::open(path),
        Source::Kept(file) => Ok(file),
    };
    match file.and_then(|file| Ok((file.metadata()?.len(), file))) {
        Ok((bytes, file)) => engine::read(name, bytes, &mut BufReader::with_capacity(256 << 10, file)).evidence,
        Err(error) => refused.add(name, &advice::of_open(Path::new(name), &error)),
    }
}

/// What the names lead to, and those that lead to nothing, each with its reason.
fn find_inputs(given: &[PathBuf]) -> (Vec<Input>, Vec<(String, String)>) {
    let mut found = Vec::new();
    let mut wrong = Vec::new();
    for path in given {
        let is_stdin = path.as_os_str() == "-";
        let opened = if is_stdin { open_stdin().map(|input| vec![input]) } else { open(path) };
        match opened {
            Ok(inputs) => found.extend(inputs),
            Err(error) if is_stdin => wrong.push((STDIN.to_owned(), format!("{error:#}"))),
            Err(error) => wrong.push((path.display().to_string(), format!("{error:#}"))),
        }
    }
    (with_short_names(found), wrong)
}

fn open(path: &Path) -> anyhow::Result<Vec<Input>> {
    let about = path.metadata().map_err(|error| anyhow!(advice::of_open(path, &error)))?;
    if !about.is_dir() {
        return Ok(vec![open_file(path, &about)?]);
    }
    let found = folder::list(path).map_err(|error| anyhow!(advice::of_open(path, &error)))?;
    if found.files.is_empty() {
        bail!(advice::empty_folder(&found.notes));
    }
    for note in &found.notes {
        eprintln!("rankscope: {}: {note}", path.display());
    }
    // Names from the folder on, because a folder may tell the rank of what it holds.
    Ok(found.files.into_iter().map(|(path, name)| Input { name, source: Source::Path(path) }).collect())
}

fn open_file(path: &Path, about: &Metadata) -> anyhow::Result<Input> {
    let name = path.display().to_string();
    if let Some(kind) = endless(about) {
        bail!(advice::special(kind));
    }
    if about.is_file() && about.len() > 0 {
        File::open(path).map_err(|error| anyhow!(advice::of_open(path, &error)))?;
        return Ok(Input { name, source: Source::Path(path.to_owned()) });
    }
    // Pipes (`<(nvidia-smi)`) can be read once only, and the kernel's own files have no size; either may keep a reader
    // waiting.
    let words = format!("waiting for {}: nothing has come through it yet", plain(&name));
    let (own, waits) = (path.to_owned(), Waits { words, gives_up: Some(PIPE_WITHIN) });
    let source = Source::Kept(keep(Patient::new(move || File::open(own), waits))?);
    Ok(Input { name, source })
}

/// What is neither file, folder nor pipe, in words.
#[cfg(unix)]
fn endless(about: &Metadata) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    let kind = about.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Some("a device");
    }
    kind.is_socket().then_some("a socket")
}

/// Elsewhere names of devices are no files of a folder.
#[cfg(not(unix))]
fn endless(_about: &Metadata) -> Option<&'static str> {
    None
}

fn open_stdin() -> anyhow::Result<Input> {
    let words = if io::stdin().is_terminal() {
        "reading what you type or paste here; end it with Ctrl-D on a line of its own"
    } else {
        "waiting for standard input: it is read to its end, and nothing has come yet"
    };
    // A job may take long before it says something: whoever pipes it in wants that.
    let waits = Waits { words: words.to_owned(), gives_up: None };
    Ok(Input { name: STDIN.to_owned(), source: Source::Kept(keep(Patient::new(|| Ok(io::stdin()), waits))?) })
}

/// Keeps on disk what can be read once only.
fn keep(input: impl io::Read) -> anyhow::Result<File> {
    let mut file = tempfile::tempfile().context("keeping it to be read")?;
    let bytes = io::copy(&mut input.take(MAX_KEPT + 1), &mut file).context("reading it")?;
    if bytes > MAX_KEPT {
        bail!("larger than {}, which is kept of a pipe", size(MAX_KEPT));
    }
    io::Seek::rewind(&mut file)?;
    Ok(file)
}

/// File names without their folders, where that leaves them different from each other. A folder that tells the rank of a
/// file which does not stays: `rank5/dump.pickle`. Only the one around it: what is further out is no part of the job.
fn with_short_names(mut inputs: Vec<Input>) -> Vec<Input> {
    let short = |name: &str| {
        let path = Path::new(name);
        let Some(file) = path.file_name().map(|file| file.to_string_lossy().into_owned()) else {
            return name.to_owned();
        };
        let folder = path.parent().and_then(Path::file_name).map(|folder| folder.to_string_lossy().into_owned());
        let told = folder.filter(|folder| {
            rankscope_ingest::rank_from_name(&file).is_none() && rankscope_ingest::rank_from_name(folder).is_some()
        });
        told.map_or(file.clone(), |folder| format!("{folder}/{file}"))
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    for input in &inputs {
        *seen.entry(short(&input.name)).or_default() += 1;
    }
    for input in &mut inputs {
        let name = short(&input.name);
        // What a folder gave has its name already.
        let is_given = match &input.source {
            Source::Path(path) => path.as_os_str() == input.name.as_str(),
            Source::Kept(_) => input.name != STDIN,
        };
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
        warnings => format!("  {}: {}", plain(&artifact.name), plain(&warnings.join("; "))),
    };
    evidence.artifacts.iter().map(reason).collect::<Vec<_>>().join("\n")
}

fn this_terminal() -> Terminal {
    let is_terminal = io::stdout().is_terminal();
    let asked_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let width = terminal_size::terminal_size().filter(|_| is_terminal).map(|(width, _)| usize::from(width.0));
    Terminal { color: is_terminal && !asked_plain, width: width.unwrap_or(DEFAULT_WIDTH) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_tells_the_rank_stays_in_the_name() {
        let names = |paths: &[&str]| -> Vec<String> {
            let of = |path: &&str| Input { name: (*path).to_owned(), source: Source::Path(PathBuf::from(path)) };
            with_short_names(paths.iter().map(of).collect()).into_iter().map(|input| input.name).collect()
        };
        assert_eq!(
            names(&["a/rank5/dump.pickle", "worker-2/dump.pickle"]),
            ["rank5/dump.pickle", "worker-2/dump.pickle"]
        );
        assert_eq!(names(&["/home/rank7/job/rank1.log", "job/train.py"]), ["rank1.log", "train.py"]);
        assert_eq!(names(&["a/x.log", "b/x.log"]), ["a/x.log", "b/x.log"]);
    }
}
