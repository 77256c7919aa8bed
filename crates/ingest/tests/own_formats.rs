//! Properties of the readers of what Rankscope itself writes (the probe's log, a live record) and of what carries other
//! files (the viewer's page, a notebook, a tar file): what was written is read again, and damage stays harmless.
#![allow(clippy::unwrap_used, reason = "a test that fails should say so at once")]

mod common;

use common::{check, read_bytes};
use proptest::prelude::*;
use rankscope_model::{ArtifactKind, Bytes, Subject};
use serde_json::json;
use std::collections::BTreeMap;

const START: &str =
    r#"{"type":"start","seq":0,"t":1700000000000000,"format":"rankscope.probe/1","rank":3,"world_size":8}"#;
const BATCH: &str = r#"{"type":"batch","format":"rankscope.live/1","source":"s","node":"a","first":0,"last":9}"#;

/// A probe's log in which each call tells the peak of the one before it.
fn probe_log(peaks: &[u32]) -> String {
    let mut lines = vec![START.to_owned()];
    for (n, peak) in peaks.iter().enumerate() {
        let line = json!({"type": "step", "seq": n + 1, "t": 1_700_000_000_000_001_u64 + n as u64, "n": n, "step": n, "phase": "train",
            "batch": [["x", [8, n + 1], "int64"]], "mem": {"device": 3, "allocated": 1, "peak": peak}});
        lines.push(line.to_string());
    }
    lines.join("\n")
}

/// A live record: for each line of memory the samples of two cards.
fn live_record(lines: &[Vec<(u32, u32)>]) -> String {
    let mut text = BATCH.to_owned();
    for (n, samples) in lines.iter().enumerate() {
        let column = |used: Vec<u32>, device: u32| json!({"subject": {"device": device}, "used": used});
        let first = column(samples.iter().map(|(used, _)| *used).collect(), 0);
        let second = column(samples.iter().map(|(_, used)| *used).collect(), 1);
        let line =
            json!({"seq": n, "t": 1_700_000_000_000_000_u64 + n as u64, "type": "memory", "devices": [first, second]});
        text.push('\n');
        text.push_str(&line.to_string());
    }
    text
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

fn page(files: &[(&str, &[u8])]) -> String {
    let files: Vec<String> = files
        .iter()
        .map(|(name, bytes)| format!("{{\"name\": \"{name}\", \"base64\": \"{}\"}}", base64(bytes)))
        .collect();
    format!(
        "<!DOCTYPE html><script src=\"MemoryViz.js\"></script><script>add_local_files([{}])</script>",
        files.join(", ")
    )
}

fn notebook(cells: &[String]) -> String {
    let cells: Vec<_> = cells.iter().map(|source| json!({"cell_type": "code", "source": source})).collect();
    json!({"cells": cells, "nbformat": 4}).to_string()
}

fn tar_of(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    tar.into_inner().unwrap()
}

/// One statement of a script, each of which is a fact of its own.
fn statements() -> impl Strategy<Value = Vec<String>> {
    let statement = prop::sample::select(vec![
        "import torch",
        "torch.cuda.empty_cache()",
        "torch.cuda.set_device(local_rank)",
        "x = model(batch)",
        "loss.backward()",
        "state = torch.load('a.pt', map_location='cpu')",
        "dist.init_process_group('nccl')",
    ]);
    prop::collection::vec(statement.prop_map(str::to_owned), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_step_of_a_probe_gets_the_peak_that_the_next_call_tells(peaks in prop::collection::vec(any::<u32>(), 2..60)) {
        let evidence = read_bytes("a.jsonl", probe_log(&peaks).as_bytes());
        check("a.jsonl", &evidence);
        let found: BTreeMap<u64, Option<Bytes>> = evidence
            .steps
            .iter()
            .filter(|step| step.batch_shape.is_some())
            .map(|step| (step.step.unwrap().0, step.peak_allocated))
            .collect();
        let expected = (0..).zip(peaks.iter().skip(1).map(|peak| Some(Bytes(u64::from(*peak)))).chain([None])).collect();
        prop_assert_eq!(found, expected);
        prop_assert!(evidence.steps.iter().all(|step| step.subject == Subject::Rank(rankscope_model::Rank(3))));
    }

    #[test]
    fn the_fullest_moment_of_a_live_record_is_a_table(
        lines in prop::collection::vec(prop::collection::vec(any::<(u32, u32)>(), 1..20), 1..40),
    ) {
        let evidence = read_bytes("a.live.jsonl", live_record(&lines).as_bytes());
        check("a.live.jsonl", &evidence);
        let sum = |(first, second): &(u32, u32)| u64::from(*first) + u64::from(*second);
        let fullest = lines.iter().flatten().map(sum).max();
        let tables = evidence.device_tables.iter();
        let found = tables.map(|table| table.devices.iter().filter_map(|row| row.used).map(|used| used.0).sum()).max();
        prop_assert_eq!(found, fullest);
        prop_assert_eq!(evidence.device_tables.len(), lines.len());
    }

    #[test]
    fn a_page_gives_the_files_that_it_embeds(texts in prop::collection::vec("[ -~\n]{0,300}", 1..4)) {
        let texts: Vec<String> = texts.into_iter().map(|text| format!("rank=1 step=2 cur=3MB\n{text}")).collect();
        let files: Vec<(&str, &[u8])> = texts.iter().map(|text| ("rank1.log", text.as_bytes())).collect();
        let evidence = read_bytes("page.html", page(&files).as_bytes());
        check("page.html", &evidence);
        prop_assert_eq!(evidence.artifacts.len(), texts.len() + 1);
        let alone: usize = texts.iter().map(|text| read_bytes("rank1.log", text.as_bytes()).steps.len()).sum();
        prop_assert_eq!(evidence.steps.len(), alone);
    }

    #[test]
    fn a_notebook_says_what_its_code_says(cells in prop::collection::vec(statements(), 1..6)) {
        let cells: Vec<String> = cells.iter().map(|lines| lines.join("\n")).collect();
        let facts = |name: &str, text: &str| {
            let evidence = read_bytes(name, text.as_bytes());
            check(name, &evidence);
            evidence.scripts.into_iter().flat_map(|script| script.facts).map(|fact| fact.what).collect::<Vec<_>>()
        };
        prop_assert_eq!(facts("a.ipynb", &notebook(&cells)), facts("a.py", &cells.join("\n")));
    }

    #[test]
    fn a_tar_file_says_what_its_members_say(texts in prop::collection::vec("[ -~\n]{0,300}", 1..6)) {
        let members: Vec<(String, Vec<u8>)> = texts
            .iter()
            .enumerate()
            .map(|(rank, text)| (format!("logs/rank{rank}.log"), format!("step=2 cur={rank}MB\n{text}").into_bytes()))
            .collect();
        let evidence = read_bytes("a.tar", &tar_of(&members));
        check("a.tar", &evidence);
        let alone: usize = members.iter().map(|(name, bytes)| read_bytes(name, bytes).steps.len()).sum();
        prop_assert_eq!(evidence.steps.len(), alone);
        prop_assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Archive);
        prop_assert_eq!(evidence.artifacts.len(), members.len() + 1);
    }

    #[test]
    fn damage_is_harmless(
        which in 0usize..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let (name, mut bytes) = match which {
            0 => ("a.jsonl", probe_log(&[5, 6, 7, 8]).into_bytes()),
            1 => ("a.live.jsonl", live_record(&[vec![(1, 2), (3, 4)], vec![(5, 6)]]).into_bytes()),
            2 => ("page.html", page(&[("a.pickle", include_bytes!("data/snapshots/oom.pickle"))]).into_bytes()),
            3 => ("a.ipynb", notebook(&["import torch\n%time f()\n".to_owned(), "!pip install x\nx = 1".to_owned()]).into_bytes()),
            _ => ("a.tar", tar_of(&[("rank1.log".to_owned(), START.as_bytes().to_vec()), ("b".to_owned(), vec![7; 700])])),
        };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        check(name, &read_bytes(name, &bytes));
    }
}
