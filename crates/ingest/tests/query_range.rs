//! Answers of the HTTP API of Prometheus: our own sample figure by figure, what servers answer instead of series, and
//! what holds for any text that looks like an answer.
#![allow(clippy::unwrap_used, reason = "a test that fails should say so at once")]

mod common;

use common::read_bytes;
use proptest::prelude::*;
use rankscope_ingest::{Limits, read_upload};
use rankscope_model::{ArtifactKind, Bytes, DeviceTable, Evidence, Place, Subject, UnixMicros};
use std::fmt::Write;
use std::io::Cursor;

const SAMPLE: &str = include_str!("data/device_tools/query_range.json");
const START: i64 = 1_700_000_000_000_000;

fn gpu(index: u32) -> Subject {
    Subject::Device(index)
}

/// Used MiB of each card.
fn used(table: &DeviceTable) -> Vec<(Subject, Option<u64>)> {
    table.devices.iter().map(|row| (row.subject, row.used.map(|bytes| bytes.0 >> 20))).collect()
}

fn read(text: &str) -> Evidence {
    read_bytes("prometheus.json", text.as_bytes())
}

fn why(text: &str) -> String {
    let evidence = read(text);
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Unreadable, "{text}");
    evidence.artifacts[0].warnings.join("\n")
}

fn series(labels: &str, points: &str) -> String {
    format!(r#"{{"metric":{{{labels}}},"values":[{points}]}}"#)
}

fn matrix(series: &[String]) -> String {
    format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}]}}}}"#, series.join(","))
}

fn of_card(gpu: u32, points: &str) -> String {
    series(&format!(r#""__name__":"DCGM_FI_DEV_FB_USED","Hostname":"a","gpu":"{gpu}""#), points)
}

#[test]
fn series_of_several_hosts_become_one_table_a_moment_with_the_cards_numbered_through() {
    let evidence = read(SAMPLE);
    let info = &evidence.artifacts[0];
    assert_eq!((info.kind, info.devices.as_slice()), (ArtifactKind::Prometheus, &[0, 1, 2, 3][..]));
    let [numbering] = info.warnings.as_slice() else { panic!("{:?}", info.warnings) };
    for part in ["GPU 0 to 1 on node-a (pod train-0)", "GPU 2 to 3 on node-b (pod train-1)", "2 hosts"] {
        assert!(numbering.contains(part), "{part}: {numbering}");
    }
    let tables = &evidence.device_tables;
    let times: Vec<_> = tables.iter().map(|table| table.time.unwrap().0 - START).collect();
    assert_eq!(times, [0, 15_000_000, 30_000_000, 45_000_000]);
    assert_eq!(used(&tables[0]), [(gpu(0), Some(1000)), (gpu(1), Some(1000)), (gpu(2), Some(1000)), (gpu(3), None)]);
    assert_eq!(used(&tables[3])[2], (gpu(2), None), "NaN is no figure");
    // 1000 + 44634 + 434 MiB; the same in every table, also where no sample tells it.
    assert!(tables.iter().flat_map(|table| &table.devices).all(|row| row.total == Some(Bytes::from_mib(46068))));
    let heavy = &tables[2].devices[0];
    assert_eq!(heavy.uuid.as_deref(), Some("GPU-node-a-0"));
    assert_eq!(heavy.at.quote, r#"DCGM_FI_DEV_FB_USED{host="node-a",gpu="0",pod train-0} 30.3 GiB"#);
    let Place::Offset(offset) = heavy.at.place else { panic!("{:?}", heavy.at.place) };
    let place = &SAMPLE[usize::try_from(offset).unwrap()..];
    assert!(place.starts_with(r#"{"metric":{"__name__":"DCGM_FI_DEV_FB_USED","Hostname":"node-a""#), "{place:.80}");
    assert_eq!(tables[2].time_text.as_deref(), Some("2023-11-14 22:13:50"));
    assert_eq!(tables[0].driver_version.as_deref(), Some("550.54.15"));
    assert!(evidence.cards.is_empty() && evidence.unnumbered.is_empty(), "the numbers are only this file's");
}

#[test]
fn of_one_host_cards_keep_their_index_and_tell_their_uuid() {
    let text = matrix(&[
        series(
            r#""__name__":"DCGM_FI_DEV_FB_USED","instance":"gpu-07:9400","gpu":"5","UUID":"GPU-x""#,
            r#"[1700000000,"7"]"#,
        ),
        // Its labels changed when a pod came.
        series(
            r#""__name__":"DCGM_FI_DEV_FB_USED","instance":"gpu-07:9400","gpu":"5","UUID":"GPU-x","pod":"train-9""#,
            r#"[1700000015,"9000"],[1700000030,"9100"]"#,
        ),
        series(
            r#""__name__":"DCGM_FI_DEV_FB_USED","instance":"gpu-07:9400","gpu":"6","GPU_I_ID":"2""#,
            r#"[1700000015.004,"4000"]"#,
        ),
    ]);
    let evidence = read(&text);
    assert_eq!(evidence.artifacts[0].warnings, ["who had the GPUs, as the labels say: (pod train-9)"]);
    let slice = Subject::MigSlice { device: 6, gpu_instance: 2, compute_instance: 0 };
    let all: Vec<_> = evidence.device_tables.iter().map(used).collect();
    assert_eq!(
        all,
        [
            [(gpu(5), Some(7)), (slice, None)],
            [(gpu(5), Some(9000)), (slice, Some(4000))],
            [(gpu(5), Some(9100)), (slice, None)]
        ]
    );
    assert_eq!((evidence.cards[0].uuid.as_str(), evidence.cards[0].index), ("GPU-x", 5));
}

#[test]
fn an_instant_answer_bytes_and_cards_by_uuid_are_read() {
    let text = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"__name__":"nvidia_smi_memory_used_bytes","uuid":"aa"},"value":[1700000000.5,"1.2582912e+10"]},
        {"metric":{"__name__":"nvidia_smi_memory_total_bytes","uuid":"aa"},"value":[1700000000.5,"48318382080"]},
        {"metric":{"__name__":"nvidia_smi_memory_used_bytes","uuid":"bb"},"value":[1700000000.5,"12582912"]}]}}"#;
    let evidence = read(text);
    let [table] = evidence.device_tables.as_slice() else { panic!("{:?}", evidence.device_tables) };
    assert_eq!(used(table), [(gpu(0), Some(12000)), (gpu(1), Some(12))]);
    assert_eq!((table.time, table.devices[0].total), (Some(UnixMicros(START + 500_000)), Some(Bytes(45 << 30))));
    assert!(evidence.artifacts[0].warnings[0].contains("without their index"));
    assert_eq!(evidence.unnumbered.len(), 2, "another file may tell the index");
}

#[test]
fn several_answers_in_one_file_are_one() {
    let total = series(r#""__name__":"DCGM_FI_DEV_FB_TOTAL","Hostname":"a","gpu":"0""#, r#"[1700000000,"46068"]"#);
    let text = format!("{}\n{}\n", matrix(&[of_card(0, r#"[1700000000,"500"],[1700000060,"600"]"#)]), matrix(&[total]));
    let evidence = read(&text);
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
    assert_eq!(evidence.device_tables[0].devices[0].total, Some(Bytes::from_mib(46068)));
    assert_eq!(evidence.device_tables.len(), 2);
}

#[test]
fn what_is_no_series_is_told_with_what_to_do() {
    let error = r#"{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": parse error"}"#;
    assert!(why(error).contains("bad_data: invalid parameter \"query\": parse error"), "{}", why(error));
    assert!(why(&matrix(&[])).contains("nothing matches that selector"));
    assert!(why(&matrix(&[series(r#""__name__":"up""#, r#"[1,"1"]"#)])).contains("the first is up"));
    assert!(why(&matrix(&[series(r#""gpu":"0""#, r#"[1,"1"]"#)])).contains("max_over_time"));
    assert!(why(&matrix(&[of_card(0, r#"[1,"NaN"]"#)])).contains("no sample of their used memory"));
    let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1700000000,"1"]}}"#;
    assert!(why(scalar).contains("no series"));
    assert!(
        why(r#"{"status":"success","data":{"resultType":"matrix","result":<html>"#).contains("not readable as JSON")
    );
}

#[test]
fn an_answer_that_breaks_off_is_used_up_to_there_and_says_so() {
    let text = matrix(&[of_card(0, r#"[1700000000,"500"],[1700000015,"600"]"#), of_card(1, r#"[1700000000,"700"]"#)]);
    let cut = &text[..text.find("600").unwrap() - 3];
    let evidence = read(cut);
    assert_eq!(used(&evidence.device_tables[0]), [(gpu(0), Some(500))]);
    assert!(evidence.artifacts[0].warnings[0].contains("ends in the middle"));
    let partial = text.replacen('{', r#"{"isPartial":true,"warnings":["store 3 did not answer"],"#, 1);
    let warnings = read(&partial).artifacts[0].warnings.join("\n");
    assert!(warnings.contains("partial") && warnings.contains("store 3 did not answer"), "{warnings}");
}

#[test]
fn a_long_range_is_thinned_to_its_fullest_readings_and_keeps_every_peak() {
    let points = |peak: usize| {
        let mut text = String::new();
        for at in 0..5000 {
            let value = if at == peak { 40_000 } else { 20_000 + at % 7 };
            let _ = write!(text, "{}[{},\"{value}\"]", if at == 0 { "" } else { "," }, 1_700_000_000 + 15 * at);
        }
        text
    };
    let text = matrix(&(0..4).map(|card| of_card(card, &points(1000 * card as usize + 3))).collect::<Vec<_>>());
    let limits = Limits { max_device_rows: 500, ..Limits::default() };
    let evidence = read_upload("long.json", &mut Cursor::new(text.as_bytes()), &limits);
    let tables = &evidence.device_tables;
    assert!(tables.len() <= 100 && tables.len() > 60, "{}", tables.len());
    assert!(tables.is_sorted_by_key(|table| table.time));
    for card in 0..4 {
        let peak = tables.iter().filter_map(|table| table.devices[card].used).max();
        assert_eq!(peak, Some(Bytes::from_mib(40_000)));
    }
    let warnings = evidence.artifacts[0].warnings.join("\n");
    assert!(warnings.contains("of 5000 readings were left out"), "{warnings}");
}

#[test]
fn sparse_readings_are_said_to_be_sparse() {
    let text = matrix(&[of_card(0, r#"[1700000000,"500"],[1700000600,"600"],[1700001200,"600"]"#)]);
    assert!(read(&text).artifacts[0].warnings[0].contains("10 minutes"));
}

/// Pieces of answers in any order: closer to trouble than random bytes.
fn shards() -> impl Strategy<Value = String> {
    let shard = prop::sample::select(vec![
        r#""status":"success","#,
        r#""status":"error","errorType":"x","error":"y","#,
        r#""data":{"#,
        r#""resultType":"matrix","#,
        r#""result":["#,
        r#"{"metric":{"#,
        r#""__name__":"DCGM_FI_DEV_FB_USED","#,
        r#""__name__":"DCGM_FI_DEV_FB_FREE""#,
        r#""gpu":"0""#,
        r#""gpu":"99999""#,
        r#""UUID":"GPU-1""#,
        r#""GPU_I_ID":"7""#,
        r#"},"values":["#,
        r#"},"value":"#,
        r#"[1700000000,"5"],"#,
        r#"[1e300,"1e300"]"#,
        r#"[-5,"-5"],"#,
        r#"[1700000015,"NaN"]"#,
        "[0,\"18446744073709551615\"]",
        "]",
        "}",
        "]}",
        ",",
        "null",
        "\n",
        "[[[[",
        "\u{feff}",
        "é",
    ]);
    prop::collection::vec(shard, 0..40).prop_map(|shards| shards.concat())
}

fn holds(evidence: &Evidence, input: usize) {
    let info = &evidence.artifacts[0];
    assert!(info.kind != ArtifactKind::Unreadable || !info.warnings.is_empty());
    assert!(evidence.device_tables.is_sorted_by_key(|table| table.time));
    for table in &evidence.device_tables {
        assert!(table.devices.iter().any(|row| row.used.is_some()));
        assert_eq!(table.devices.len(), evidence.device_tables[0].devices.len());
    }
    let json = serde_json::to_string(evidence).unwrap();
    assert!(json.len() < 1000 * input + (64 << 10), "{} of {input}", json.len());
    assert_eq!(&serde_json::from_str::<Evidence>(&json).unwrap(), evidence);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_in_any_order_do_no_harm(text in shards()) {
        let text = format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{text}"#);
        holds(&read(&text), text.len());
    }

    #[test]
    fn every_sample_that_is_one_is_in_a_table_and_no_other(
        cards in prop::collection::vec(prop::collection::btree_map(0i64..200, 1u64..80_000, 1..30), 1..9),
    ) {
        let list: Vec<String> = (0u32..).zip(&cards).map(|(card, points)| {
            let points = points.iter().map(|(at, mib)| format!("[{},\"{mib}\"]", 1_700_000_000 + at));
            of_card(card, &points.collect::<Vec<_>>().join(","))
        }).collect();
        let text = matrix(&list);
        let evidence = read(&text);
        holds(&evidence, text.len());
        for (card, points) in cards.iter().enumerate() {
            let found: Vec<u64> = evidence.device_tables.iter().filter_map(|table| table.devices[card].used).map(|bytes| bytes.0 >> 20).collect();
            prop_assert!(found.iter().all(|mib| points.values().any(|known| known == mib)));
            prop_assert_eq!(found.iter().max(), points.values().max());
        }
    }

    #[test]
    fn changed_bytes_do_no_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let mut bytes = SAMPLE.as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_bytes("prometheus.json", &bytes);
    }
}
