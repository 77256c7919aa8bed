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
    /// The lines are only shown: what to write instead is not known.
    pub is_shown_only: bool,
}

/// `torch.cuda.set_device(...)` in front of the line that makes the process group or wraps the model.
pub(crate) fn bind_before(evidence: &Evidence, at: &ScriptFact) -> Option<Fix> {
    let line = one_line(&at.at)?;
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
    let line = one_line(&at.at)?;
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
    let line = one_line(&epochs.at)?;
    let name = assigned_name(own_line(&sampler.at)?)?;
    if variable.is_empty() || variable == "_" || !line.ends_with(':') {
        return None;
    }
    let indent = indent_of(line);
    // Made in another function the sampler is reached through its loader, whose name here is not known.
    let call = if epochs.function == sampler.function {
        format!("{name}.set_epoch({variable})")
    } else {
        format!("loader.sampler.set_epoch({variable})  # of the loader that this loop reads")
    };
    fix(evidence, &epochs.at, &[format!(" {line}"), format!("+{indent}    {call}")])
}

/// The rank's own device where one GPU is named for all ranks: in `.to("cuda:0")`, `.cuda(0)`, `device_map={"": 0}`.
pub(crate) fn own_device(evidence: &Evidence, at: &ScriptFact) -> Option<Fix> {
    let device = match &at.what {
        Fact::ModelToDevice { device, .. } | Fact::NamedDevice { device, .. } => &device.text,
        _ => return None,
    };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let bare = device.trim_matches(['"', '\'']);
    let rank = "int(os.environ[\"LOCAL_RANK\"])";
    let new = if bare.strip_prefix("cuda:").is_some_and(number) || number(device) {
        format!("torch.device(\"cuda\", {rank})")
    } else {
        let (head, index) = device.strip_suffix('}')?.rsplit_once(':')?;
        if !(device.starts_with('{') && number(index.trim())) || device.matches(':').count() != 1 {
            return None;
        }
        format!("{head}: {rank}}}")
    };
    let quote = own_line(&at.at)?;
    if quote.matches(device.as_str()).count() != 1 {
        // A bare number stands in many places: only as the one argument of the call is it the device.
        let call = format!("({device})");
        (quote.matches(&call).count() == 1).then_some(())?;
        return changed(evidence, at, quote, &call, &format!("({new})"));
    }
    changed(evidence, at, quote, device, &new)
}

/// The quoted lines with `old` replaced; the lines without it stand around it.
fn changed(evidence: &Evidence, at: &ScriptFact, quote: &str, old: &str, new: &str) -> Option<Fix> {
    let lines: Vec<String> = quote
        .lines()
        .flat_map(|line| {
            if line.contains(old) {
                vec![format!("-{line}"), format!("+{}", line.replace(old, new))]
            } else {
                vec![format!(" {line}")]
            }
        })
        .collect();
    lines.iter().any(|line| line.starts_with('+')).then(|| fix(evidence, &at.at, &lines))?
}

/// `set_device` moved up, in front of what touches CUDA before it; where that is in another function only the line to
/// move is shown.
pub(crate) fn bind_earlier(evidence: &Evidence, set: &ScriptFact, touch: &ScriptFact) -> Option<Fix> {
    let line = own_line(&set.at)?;
    let (first, last) = (lines_of(&touch.at)?, lines_of(&set.at)?);
    let name = evidence.artifact_name(set.at.artifact);
    if set.at.artifact == touch.at.artifact && set.function == touch.function && first < last {
        let before = own_line(&touch.at)?;
        let indent = indent_of(before);
        let mut lines = vec![format!("+{indent}{}", line.trim())];
        lines.extend(before.lines().map(|line| format!(" {line}")));
        lines.extend(line.lines().map(|line| format!("-{line}")));
        return Some(Fix {
            place: format!("{name}, line {last} goes in front of line {first}"),
            diff: lines.join("\n"),
            is_shown_only: false,
        });
    }
    let by = touch.function.as_deref().map_or_else(String::new, |function| format!(" ({function})"));
    let touches = evidence.artifact_name(touch.at.artifact);
    Some(Fix {
        place: format!("{name}, line {last} goes in front of whatever leads to {touches}, line {first}{by}"),
        diff: line.lines().map(|line| format!(" {line}")).collect::<Vec<_>>().join("\n"),
        is_shown_only: false,
    })
}

/// The line to look at, where what to write instead depends on more than it shows.
pub(crate) fn look_at(evidence: &Evidence, at: &ScriptFact) -> Option<Fix> {
    let quote = own_line(&at.at)?;
    let shown = fix(evidence, &at.at, &quote.lines().map(|line| format!(" {line}")).collect::<Vec<_>>())?;
    Some(Fix { is_shown_only: true, ..shown })
}

fn lines_of(at: &Provenance) -> Option<u64> {
    match at.place {
        Place::Line(line) | Place::Lines(line, _) => Some(line),
        Place::Offset(_) => None,
    }
}

/// `total += loss.item()` or `kept.append(out.detach().cpu())`.
pub(crate) fn keep_no_graph(evidence: &Evidence, at: &ScriptFact) -> Option<Fix> {
    let Fact::Accumulation { value, .. } = &at.what else { return None };
    let line = one_line(&at.at)?;
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
    let place = match at.place {
        Place::Line(line) => format!("{name}, line {line}"),
        Place::Lines(first, last) => format!("{name}, lines {first} to {last}"),
        Place::Offset(_) => return None,
    };
    Some(Fix { place, diff: lines.join("\n"), is_shown_only: false })
}

/// The line as the user wrote it; nothing when it was cut or belongs to a notebook.
fn own_line(at: &Provenance) -> Option<&str> {
    let line = at.quote.as_str();
    (!line.is_empty() && !line.ends_with('…') && !line.starts_with("[cell ")).then_some(line)
}

/// The same where the statement is on one line.
fn one_line(at: &Provenance) -> Option<&str> {
    own_line(at).filter(|line| !line.contains('\n'))
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
    fn one_gpu_for_all_becomes_the_ranks_own() {
        use rankscope_model::{DeviceClass, DeviceExpr};
        let placed = |line, text: &str, device: &str| {
            let device = DeviceExpr { class: DeviceClass::Literal(0), text: device.into() };
            own_device(&evidence(), &fact(line, text, Fact::ModelToDevice { model: "m".into(), device }))
        };
        let diff = placed(3, "m.to(\"cuda:0\")", "\"cuda:0\"").unwrap().diff;
        assert_eq!(diff, "-m.to(\"cuda:0\")\n+m.to(torch.device(\"cuda\", int(os.environ[\"LOCAL_RANK\"])))");
        let call = "m = load(\n    p0, device_map={\"\": 0})";
        let diff = placed(3, call, "{\"\": 0}").unwrap().diff;
        assert_eq!(
            diff,
            " m = load(\n-    p0, device_map={\"\": 0})\n+    p0, device_map={\"\": int(os.environ[\"LOCAL_RANK\"])})"
        );
        assert!(placed(3, "x0.cuda(0)", "0").unwrap().diff.contains("+x0.cuda(torch.device("));
        assert!(placed(3, "m.to(devices[0])", "devices[0]").is_none());
        assert!(placed(3, "f(0); m.cuda(0)", "0").is_none(), "which of them is the device?");
    }

    #[test]
    fn a_late_binding_moves_up() {
        let set = |line, text, function: &str| {
            let device =
                rankscope_model::DeviceExpr { class: rankscope_model::DeviceClass::LocalRank, text: "local".into() };
            let what = Fact::SetDevice { how: rankscope_model::SetDeviceHow::SetDevice, device };
            ScriptFact { function: Some(function.into()), ..fact(line, text, what) }
        };
        let touch = |function: &str| {
            let what = Fact::CudaCall { call: "torch.cuda.get_device_name".into(), device: None };
            ScriptFact { function: Some(function.into()), ..fact(4, "    n = name()", what) }
        };
        let fix = bind_earlier(&evidence(), &set(9, "    set_device(local)", "main"), &touch("main")).unwrap();
        assert_eq!(fix.diff, "+    set_device(local)\n     n = name()\n-    set_device(local)");
        let fix = bind_earlier(&evidence(), &set(9, "    set_device(local)", "main"), &touch("host")).unwrap();
        assert_eq!(fix.place, "train.py, line 9 goes in front of whatever leads to train.py, line 4 (host)");
        assert!(!fix.diff.contains('-'));
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
