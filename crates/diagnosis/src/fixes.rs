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

/// Each of the places that keep predictions: what is kept goes to the host first.
///
/// Places on lines that follow each other are shown together; of others the first.
pub(crate) fn keep_on_host(evidence: &Evidence, kept: &[&ScriptFact]) -> Option<Fix> {
    let mut fixes = kept.iter().map(|at| (lines_of(&at.at), to_host(evidence, at)));
    let (mut last, first) = fixes.next()?;
    let (first, from) = (first?, last?);
    let mut diff = first.diff;
    for (line, fix) in fixes {
        match (line, fix, last) {
            (Some(line), Some(fix), Some(before)) if line == before.saturating_add(1) => {
                diff = format!("{diff}\n{}", fix.diff);
                last = Some(line);
            }
            _ => break,
        }
    }
    let place = match last.filter(|last| *last > from) {
        Some(last) => format!("{}, lines {from} to {last}", evidence.artifact_name(kept.first()?.at.artifact)),
        None => first.place,
    };
    Some(Fix { place, diff, is_shown_only: false })
}

/// `preds = torch.cat((preds, logits.detach().cpu()))`, `kept.append(out.detach().cpu())`.
fn to_host(evidence: &Evidence, at: &ScriptFact) -> Option<Fix> {
    let Fact::Accumulation { target, value, .. } = &at.what else { return None };
    let line = one_line(&at.at)?;
    let value = added(target, value)?;
    // What stands in front of the assignment is the target; a call has none.
    let head = line.find('=').filter(|at| !line.get(..*at).unwrap_or_default().contains('(')).map_or(0, |at| at + 1);
    let (target, rest) = line.split_at_checked(head)?;
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut new = String::new();
    let mut from = 0;
    for (at, _) in rest.match_indices(value) {
        let (before, after) = (rest.get(..at)?, rest.get(at + value.len()..)?);
        if before.ends_with(is_part) || after.starts_with(is_part) || after.starts_with('(') {
            continue;
        }
        // `x if y is None`: a test of the value is no use of it.
        if after.trim_start().starts_with("is ") {
            continue;
        }
        new.push_str(rest.get(from..at)?);
        new.push_str(value);
        new.push_str(".detach().cpu()");
        from = at + value.len();
    }
    if from == 0 {
        return None;
    }
    new.push_str(rest.get(from..)?);
    fix(evidence, &at.at, &[format!("-{line}"), format!("+{target}{new}")])
}

/// What is added in each turn: the value itself, or in what puts old and new together the new part:
/// `x` of `x if p is None else torch.cat((p, x), dim=0)` and of `torch.cat([p, x])`.
fn added<'a>(target: &str, value: &'a str) -> Option<&'a str> {
    if let Some((first, _)) = value.split_once(&format!(" if {target} is None else ")) {
        return can_be_moved(first).then_some(first);
    }
    let of_both = ["torch.cat((", "torch.cat([", "torch.vstack((", "torch.hstack(("]
        .iter()
        .find_map(|call| value.strip_prefix(call)?.strip_prefix(target)?.strip_prefix(", "));
    match of_both {
        Some(rest) => rest.find([')', ']']).and_then(|end| rest.get(..end)).filter(|new| is_path(new)),
        None => Some(value).filter(|value| is_path(value)),
    }
}

/// A name, or an item of something: a method can be called on it as it stands.
fn can_be_moved(text: &str) -> bool {
    let base = text.strip_suffix(']').and_then(|rest| rest.split_once('[')).map_or(text, |(base, _)| base);
    is_path(base)
}

/// What changes nothing of where a copy of a module lies in the end, or moves it to the host.
const AFTER: [&str; 6] = [
    ".cpu()",
    ".to(\"cpu\")",
    ".to('cpu')",
    ".eval()",
    ".requires_grad_(False)",
    ".requires_grad_(requires_grad=False)",
];

/// A copy of the weights tensor by tensor in host memory, for `ema = copy.deepcopy(model)` and what may follow the
/// copy on that line: `.cpu()`, `.to("cpu")`, `.eval()`, `.requires_grad_(False)`.
pub(crate) fn copy_on_host(evidence: &Evidence, at: &ScriptFact) -> Option<Fix> {
    let line = one_line(&at.at)?;
    let name = assigned_name(line)?;
    let open = line.find("deepcopy(").map(|start| start + "deepcopy".len())?;
    let called = line.get(..open)?.split_once('=')?.1.trim();
    if !matches!(called, "deepcopy" | "copy.deepcopy") {
        return None;
    }
    let close = closing(line, open)?;
    let model = line.get(open + 1..close)?.trim();
    let mut rest = line.get(close + 1..)?.trim_end();
    while let Some(next) = AFTER.iter().find_map(|call| rest.strip_prefix(call)) {
        rest = next;
    }
    if !rest.is_empty() || !is_path(model) {
        return None;
    }
    let new = format!(
        "{}{name} = {{k: v.detach().to(\"cpu\", copy=True) for k, v in {model}.state_dict().items()}}  # a dict now, no module",
        indent_of(line)
    );
    fix(evidence, &at.at, &[format!("-{line}"), format!("+{new}")])
}

/// `logits`, `self.model`, `net.module`.
fn is_path(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.')
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
    if !is_path(value) {
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
    (is_path(name) && !rest.starts_with('=')).then_some(name)
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

    #[test]
    fn predictions_go_to_the_host_where_they_are_kept() {
        let kept = |line, text: &str, value: &str| {
            let what = Fact::Accumulation {
                target: "t".into(),
                value: value.into(),
                keeps: Kept::GpuTensors,
                training: false,
                is_reset: false,
            };
            fact(line, text, what)
        };
        let first = kept(27, "    p = x if p is None else torch.cat((p, x), dim=0)", "x");
        let second = kept(28, "    xs.append(out.x)", "out.x");
        let fix = keep_on_host(&evidence(), &[&first, &second]).unwrap();
        assert_eq!(fix.place, "train.py, lines 27 to 28");
        assert_eq!(
            fix.diff,
            "-    p = x if p is None else torch.cat((p, x), dim=0)\n+    p = x.detach().cpu() if p is None else torch.cat((p, x.detach().cpu()), dim=0)\n-    xs.append(out.x)\n+    xs.append(out.x.detach().cpu())"
        );
        let both = kept(
            3,
            "  p = x[\"l\"] if t is None else torch.cat((t, x[\"l\"]))",
            "x[\"l\"] if t is None else torch.cat((t, x[\"l\"]))",
        );
        let diff = keep_on_host(&evidence(), &[&both]).unwrap().diff;
        assert!(
            diff.ends_with("+  p = x[\"l\"].detach().cpu() if t is None else torch.cat((t, x[\"l\"].detach().cpu()))"),
            "{diff}"
        );
        let diff = keep_on_host(&evidence(), &[&kept(3, "t = torch.cat([t, y])", "torch.cat([t, y])")]).unwrap().diff;
        assert!(diff.ends_with("+t = torch.cat([t, y.detach().cpu()])"), "{diff}");
        let apart = kept(40, "all = x", "x");
        assert_eq!(keep_on_host(&evidence(), &[&apart, &first]).unwrap().place, "train.py, line 40");
        assert!(keep_on_host(&evidence(), &[&kept(1, "p = f(a + b)", "a + b")]).is_none());
        assert!(keep_on_host(&evidence(), &[&kept(1, "p = x(1)", "x")]).is_none());
    }

    #[test]
    fn a_copy_of_the_weights_is_made_on_the_host() {
        let copied = |text: &str| {
            let what = Fact::ModelCopy { what: "m".into(), place: rankscope_model::CopyPlace::WithModel };
            copy_on_host(&evidence(), &fact(9, text, what)).map(|fix| fix.diff)
        };
        assert_eq!(
            copied("    self.ema = copy.deepcopy(net.module).eval()").unwrap(),
            "-    self.ema = copy.deepcopy(net.module).eval()\n+    self.ema = {k: v.detach().to(\"cpu\", copy=True) for k, v in net.module.state_dict().items()}  # a dict now, no module"
        );
        assert!(copied("ema = AveragedModel(copy.deepcopy(net))").is_none());
        assert!(copied("ema = copy.deepcopy(net).to(device)").is_none());
        assert!(copied("copy.deepcopy(net)").is_none());
    }
}
