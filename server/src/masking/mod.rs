//! A report without the names of machines, people and files: the same name is always the same pseudonym, and nothing of
//! a path is left. Works on the frozen report, so that everything that is shown of it is masked alike. Knows no store.

mod mask;
mod names;
mod patterns;
mod vocabulary;

use crate::errors::{Problem, Result};
use names::Names;
use rankscope_model::Report;
use serde_json::Value;

/// Members whose texts are words of ours, not of a file.
const OURS: [&str; 14] = [
    "format",
    "verdict",
    "label",
    "item",
    "status",
    "severity",
    "kind",
    "quantity",
    "axis",
    "phase",
    "id",
    "reason",
    "input",
    "frameworks",
];

/// The report with pseudonyms.
///
/// Errors: [`crate::errors::ProblemKind::Internal`] if what comes out is no report; it is then not shown at all.
pub fn masked(report: &Report) -> Result<Report> {
    let mut value = serde_json::to_value(report).map_err(Problem::internal)?;
    let mut names = Names::default();
    names.given(report);
    walk(&mut value, &mut |text| names.collect(text));
    let mask = names.finish();
    walk(&mut value, &mut |text| *text = mask.replace(text));
    let mut masked: Report = serde_json::from_value(value).map_err(Problem::internal)?;
    // The address of the run is no name.
    masked.run.id.clone_from(&report.run.id);
    Ok(masked)
}

/// Calls `visit` for every text that may come from a file.
fn walk(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, visit)),
        Value::Object(members) => {
            let foreign = members.iter_mut().filter(|(key, _)| !OURS.contains(&key.as_str()));
            foreign.for_each(|(_, member)| walk(member, visit));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests_report as report;
    use rankscope_model::{ArtifactInfo, ArtifactKind, EvidenceRef, Finding, Item, Severity};

    fn file(name: &str) -> ArtifactInfo {
        ArtifactInfo {
            name: name.into(),
            kind: ArtifactKind::StepLog,
            ranks: vec![],
            devices: vec![],
            bytes: 1,
            warnings: vec![],
        }
    }

    fn with(claims: &[&str], files: &[&str]) -> Report {
        let mut report = report("r", "of ada on gpu-07.example.org", 1, "host=gpu-07.example.org is fuller");
        let report = std::sync::Arc::make_mut(&mut report);
        report.diagnosis.artifacts = files.iter().map(|name| file(name)).collect();
        report.diagnosis.findings = claims
            .iter()
            .map(|claim| Finding {
                id: "f1".into(),
                item: Item::DeviceVisibility,
                label: None,
                severity: Severity::Warning,
                confidence: 0.5,
                claim: (*claim).into(),
                ranks: vec![],
                evidence: files
                    .iter()
                    .map(|name| EvidenceRef { artifact: (*name).into(), line: Some(3), ..EvidenceRef::default() })
                    .collect(),
            })
            .collect();
        report.clone()
    }

    #[test]
    fn names_become_the_same_pseudonym_everywhere() {
        let report = with(
            &[
                "File \"/home/ada/secret/train.py\", line 3, in main",
                "ada@gpu-07.example.org:~$ python train.py",
                "worker-12:881:902 [0] NCCL INFO from 10.1.2.33",
            ],
            &[],
        );
        let masked = masked(&report).unwrap();
        let text = serde_json::to_string(&masked).unwrap();
        for gone in ["ada", "secret", "gpu-07", "example", "worker-12", "10.1.2.33"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        assert_eq!(masked.run.title, "of user-1 on host-2");
        assert!(masked.diagnosis.summary.contains("host=host-2"));
        assert!(masked.diagnosis.findings[0].claim.starts_with("File \"train.py\", line 3"));
        assert!(masked.diagnosis.findings[2].claim.starts_with("host-3:881:902 [0] NCCL INFO from host-1"));
    }

    #[test]
    fn files_keep_different_names_and_references_still_fit() {
        let files = ["a/rank0/log.txt", "a/rank1/log.txt", "smi.txt", "ada.tar.gz/gpu-07_out.log (2)", "ada"];
        let masked = masked(&with(&["x"], &files)).unwrap();
        let names: Vec<&str> = masked.diagnosis.artifacts.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["file-1.txt", "file-2.txt", "file-3.txt", "file-4.log", "file-5"]);
        let referred: Vec<&str> =
            masked.diagnosis.findings[0].evidence.iter().map(|place| place.artifact.as_str()).collect();
        assert_eq!(referred, names);
    }

    #[test]
    fn one_file_has_one_name_in_references_sentences_and_paths() {
        let said =
            "my-train.py:56 of /home/ada/x/My-Train.py, called from /opt/zeta/launch_zeta.py and launch_zeta.py:3";
        let masked = masked(&with(&[said], &["runs/my-train.py"])).unwrap();
        let claim = &masked.diagnosis.findings[0].claim;
        assert_eq!(claim, "file-1.py:56 of file-1.py, called from file-2.py and file-2.py:3");
    }

    #[test]
    fn models_of_a_hub_are_named_nowhere_nor_are_classes_after_them() {
        let claims = [
            "model = KestrelForCausalLM.from_pretrained(\"quandt-lab/kestrel-7b\")",
            "accelerate launch train.py --model_name_or_path quandt-lab/merlin_chat-2 --bf16",
            "rate 3/4 of model width/height",
        ];
        let masked = masked(&with(&claims, &["train.py"])).unwrap();
        let text = serde_json::to_string(&masked).unwrap().to_lowercase();
        for gone in ["quandt", "kestrel", "merlin"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        assert!(masked.diagnosis.findings[0].claim.contains("ForCausalLM.from_pretrained(\"name-"));
        assert!(masked.diagnosis.findings[1].claim.ends_with(" --bf16"));
        assert_eq!(masked.diagnosis.findings[2].claim, claims[2]);
    }

    #[test]
    fn a_title_keeps_the_words_that_name_nobody() {
        let masked = |title: &str| {
            let mut report = with(&["x"], &["alice-node07.log"]);
            report.run.title = title.into();
            masked(&report).unwrap().run.title
        };
        assert_eq!(masked("alice-node07.log and 3 more files"), "file-1.log and 3 more files");
        // A long name is cut in the title.
        assert!(!masked("alice-node07.l").contains("alice"));
        assert_eq!(masked("Training with rank 3, checkpoint"), "Training with rank 3, checkpoint");
        assert!(!masked("Training of ZoëMüller on dgx01").contains("Zoë"));
    }

    #[test]
    fn names_are_found_in_any_spelling() {
        let claims = [
            "user=li host=GPU-07.example.org",
            "on gpu-07 by Ada: \"/mnt/My Work (zeta)/Ada Lovelace/run-1/x_zeta.log\"",
            "...ove/lace/bin/python, process zeta_serve (PID 12), ~ada/x and /data/李雷/的/run.py of 李雷的",
        ];
        let text = serde_json::to_string(&masked(&with(&claims, &[])).unwrap()).unwrap().to_lowercase();
        for gone in ["li ", "gpu-07", "ada", "zeta", "lovelace", "ove/", "my work", "mnt", "李雷", "example"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
    }

    #[test]
    fn code_and_figures_stay_as_they_are() {
        let said = "torch.nn.parallel.DistributedDataParallel uses 31.5 GiB, 24 % more, 3/4 of steps, r = 0.98";
        let dated = "cat /proc/1234/environ at 11/30/2026 19:00, see https://docs.pytorch.org, rank3 of v100, ~5 GiB";
        let masked = masked(&with(&[said, dated], &["smi.txt"])).unwrap();
        assert_eq!(masked.diagnosis.findings[0].claim, said);
        assert_eq!(masked.diagnosis.findings[1].claim, dated);
    }
}
