//! Fixes as a diff of the user's own lines, where the change is mechanical.
//!
//! Works on one quoted line at a time and gives nothing when the line does not show the whole expression.

use rankscope_model::{Evidence, Fact, Place, Provenance, ScriptFact};

/// A fix of one place: where, and the lines with their signs.
pub(crate) struct Fix {
    /// `train.py, line 44`.
    pub place: String,
    /// Lines that begin with a space, `+` or `-`.
    pub diff: String,
}

/// `torch.cuda.set_device(...)` in front of the line that makes the process group or wraps the model.
pub(crate) fn bind_before(evidence: &Evidence, at: &ScriptFact) -> Option<Fix> {
    let line = own_line(&at.at)?;
    let rank = match &at.what {
        Fact::InitProcessGroup { local_rank: Some(name), .. } => name.clone(),
        Fact::WrapDdp { device_ids: Some(device), .. } => device.text.clone(),
        _ => "int(os.environ[\"LOCAL_RANK\"])".to_owned(),
    };
    let indent = indent_of(line);
    fix(evidence, &at.at, &[format!("+{indent}torch.cuda.set_device({rank})"), format!(" {line}")])
}

/// `map_location="cpu"` in a `torch.load`.
pub(crate) fn load_on_cpu(evidence: &Evidence, at: &ScriptFact) -> Option<Fix> {
    let line = own_line(&at.at)?;
    let open = line.find("load(").map(|start| start + "load".len())?;
    let close = closing(line, open)?;
    let inside = line.get(open + 1..close)?;
    if inside.contains("map_location") || inside.trim().is_empty() {
        return None;
    }
    let (head, tail) = (line.get(..close)?, line.get(close..)?);
    fix(evidence, &at.at, &[format!("-{line}"), format!("+{head}, map_location=\"cpu\"{tail}")])
}

/// `sampler.set_epoch(epoch)` as the first line of the epoch loop. `sampler` is the fact of the sampler.
pub(crate) fn set_epoch(evidence: &Evidence, epochs: &ScriptFact, sampler: &ScriptFact) -> Option<Fix> {
    let Fact::EpochLoop { variable } = &epochs.what else { return None };
    let line = own_line(&epochs.at)?;
    let name = assigned_name(own_line(&sampler.at)?)?;
    if variable.is_empty() || variable == "_" || !line.ends_with(':') || epochs.function != sampler.function {
        return None;
    }
    let indent = indent_of(line);
    fix(evidence, &epochs.at, &[format!(" {line}"), format!("+{indent}    {name}.set_epoch({variable})")])
}

/// `total += loss.item()` or `kept.append(out.detach().cpu())`.
pub(crate) fn keep_no_graph(evidence: &Evidence, at: &ScriptFact) -> Option<Fix> {
    let Fact::Accumulation { value, .. } = &at.what else { return None };
    let line = own_line(&at.at)?;
    let is_name = !value.is_empty() && value.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    if !is_name {
        return None;
    }
    let sum = format!("+= {value}");
    let append = format!(".append({value})");
    let changed = if line.ends_with(&sum) {
        line.replace(&sum, &format!("{sum}.item()"))
    } else if line.ends_with(&append) {
        line.replace(&append, &format!(".append({value}.detach().cpu())"))
    } else {
        return None;
    };
    fix(evidence, &at.at, &[format!("-{line}"), format!("+{changed}")])
}

fn fix(evidence: &Evidence, at: &Provenance, lines: &[String]) -> Option<Fix> {
    let name = evidence.artifact_name(at.artifact);
    let Place::Line(line) = at.place else { return None };
    Some(Fix { place: format!("{name}, line {line}"), diff: lines.join("\n") })
}

/// The line as the user wrote it; nothing when it was cut or belongs to a notebook.
fn own_line(at: &Provenance) -> Option<&str> {
    let line = at.quote.as_str();
    (!line.is_empty() && !line.ends_with('…') && !line.starts_with("[cell ")).then_some(line)
}

fn indent_of(line: &str) -> &str {
    line.get(..line.len() - line.trim_start().len()).unwrap_or_default()
}

/// `sampler` of `    sampler = DistributedSampler(...)`.
fn assigned_name(line: &str) -> Option<&str> {
    let (name, rest) = line.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    (is_name && !rest.starts_with('=')).then_some(name)
}

/// The byte of the bracket that closes the one at `open`; nothing when it is not on this line.
fn closing(line: &str, open: usize) -> Option<usize> {
    let mut depth = 0u32;
    let mut quote = None;
    for (at, c) in line.char_indices().filter(|(at, _)| *at >= open) {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            (Some(_) | None, _) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{ArtifactId, ArtifactInfo, ArtifactKind, Flow, FlowProcess, Kept, MapLocation};

    fn evidence() -> Evidence {
        let info = ArtifactInfo {
            name: "train.py".into(),
            kind: ArtifactKind::PythonScript,
            ranks: vec![],
            devices: vec![],
            bytes: 1,
            warnings: vec![],
        };
        Evidence { artifacts: vec![info], ..Evidence::default() }
    }

    fn fact(line: u64, text: &str, what: Fact) -> ScriptFact {
        let flow = Flow { process: FlowProcess::Main, root: 0, order: 0, on_import: false };
        let at = Provenance::line(ArtifactId(0), line, text);
        ScriptFact { at, what, function: None, guard: None, in_loop: None, flow }
    }

    #[test]
    fn a_load_gets_its_map_location() {
        let load = |text| {
            let what = Fact::TorchLoad { map_location: MapLocation::Absent, path: "p".into(), into: vec![] };
            load_on_cpu(&evidence(), &fact(7, text, what))
        };
        let fix = load("    state = torch.load(os.path.join(d, \")\"))[\"model\"]").unwrap();
        assert_eq!(fix.place, "train.py, line 7");
        assert_eq!(
            fix.diff,
            "-    state = torch.load(os.path.join(d, \")\"))[\"model\"]\n+    state = torch.load(os.path.join(d, \")\"), map_location=\"cpu\")[\"model\"]"
        );
        assert!(load("    state = torch.load(").is_none(), "the call goes on in the next line");
    }

    #[test]
    fn a_binding_is_put_before_the_group() {
        let what = |local_rank| Fact::InitProcessGroup {
            call: "init".into(),
            backend: None,
            device_id: None,
            local_rank,
            binds_device: false,
        };
        let line = "    dist.init_process_group(\"nccl\")";
        let fix = bind_before(&evidence(), &fact(3, line, what(Some("args.gpu".into())))).unwrap();
        assert_eq!(fix.diff, format!("+    torch.cuda.set_device(args.gpu)\n {line}"));
        let fix = bind_before(&evidence(), &fact(3, line, what(None))).unwrap();
        assert!(fix.diff.contains("int(os.environ[\"LOCAL_RANK\"])"));
    }

    #[test]
    fn sums_keep_numbers_and_lists_keep_host_tensors() {
        let change = |text, value: &str| {
            let what = Fact::Accumulation {
                target: "t".into(),
                value: value.into(),
                keeps: Kept::Graph,
                training: true,
                is_reset: false,
            };
            keep_no_graph(&evidence(), &fact(1, text, what)).map(|fix| fix.diff)
        };
        assert_eq!(change("  t += loss", "loss").unwrap(), "-  t += loss\n+  t += loss.item()");
        assert_eq!(change("t.append(out)", "out").unwrap(), "-t.append(out)\n+t.append(out.detach().cpu())");
        assert!(change("t += loss * n", "loss * n").is_none());
    }
}
