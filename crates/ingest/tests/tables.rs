//! Whole tables of every layout, written for these tests (see `data/README.md`), as snapshots of what is read.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test that fails should say so at once")]

mod common;

use common::read_bytes;
use rankscope_model::{ArtifactKind, DeviceTable, ProcessListing};
use std::fmt::Write;

/// One line per row: short enough to be read by people, complete enough to catch any change.
fn shown(table: &DeviceTable) -> String {
    let mut out = String::new();
    let mib = |bytes: Option<rankscope_model::Bytes>| bytes.map_or("-".to_owned(), |b| (b.0 >> 20).to_string());
    let or_dash = |text: &Option<String>| text.clone().unwrap_or("-".to_owned());
    writeln!(
        out,
        "{:?} time={} ({}) driver={} cuda={} listing={:?}",
        table.at.place,
        table.time_text.as_deref().unwrap_or("-").trim(),
        table.time.map_or(0, |t| t.0),
        or_dash(&table.driver_version),
        or_dash(&table.cuda_version),
        table.listing
    )
    .unwrap();
    for row in &table.devices {
        writeln!(
            out,
            "  {:?} {}: {} {} used={} total={} util={:?} display={:?} mig={:?}",
            row.at.place,
            row.subject,
            or_dash(&row.name),
            or_dash(&row.bus_id),
            mib(row.used),
            mib(row.total),
            row.utilization_percent,
            row.display_active,
            row.mig_enabled
        )
        .unwrap();
    }
    for row in &table.processes {
        writeln!(
            out,
            "  {:?} {}: pid={:?} {} {} used={}",
            row.at.place,
            row.subject,
            row.pid,
            or_dash(&row.kind),
            or_dash(&row.name),
            mib(row.used)
        )
        .unwrap();
    }
    out
}

fn tables_of(name: &str, bytes: &[u8]) -> String {
    let evidence = read_bytes(name, bytes);
    assert_eq!(evidence.artifacts.len(), 1);
    let artifact = &evidence.artifacts[0];
    assert_eq!(artifact.kind, ArtifactKind::NvidiaSmi, "{name}");
    let tables: String = evidence.device_tables.iter().map(shown).collect();
    format!("{tables}{}", artifact.warnings.join("\n"))
}

#[test]
fn driver_304() {
    insta::assert_snapshot!(tables_of("smi.txt", include_bytes!("data/smi-304.txt")));
}

#[test]
fn driver_340() {
    insta::assert_snapshot!(tables_of("smi.txt", include_bytes!("data/smi-340.txt")));
}

#[test]
fn driver_418_with_stray_contexts() {
    insta::assert_snapshot!(tables_of("smi.txt", include_bytes!("data/smi-418-stray.txt")));
}

#[test]
fn driver_515_with_errors_and_cut() {
    insta::assert_snapshot!(tables_of("smi.txt", include_bytes!("data/smi-515-errors.txt")));
}

#[test]
fn driver_550_with_mig() {
    insta::assert_snapshot!(tables_of("smi.txt", include_bytes!("data/smi-550-mig.txt")));
}

#[test]
fn driver_610_on_windows() {
    insta::assert_snapshot!(tables_of("smi.txt", include_bytes!("data/smi-610-windows.txt")));
}

#[test]
fn wrapping_changes_nothing_but_the_quotes() {
    let plain = include_str!("data/smi-418-stray.txt");
    let expected = tables_of("smi.txt", plain.as_bytes());
    let each = |prefix: &str| plain.lines().map(|l| format!("{prefix}{l}\n")).collect::<String>();
    let utf16: Vec<u8> =
        format!("\u{feff}{}", plain.replace('\n', "\r\n")).encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (how, bytes) in [
        ("CRLF", plain.replace('\n', "\r\n").into_bytes()),
        ("UTF-16", utf16),
        ("quote", each("> ").into_bytes()),
        ("prompt colours", each("\x1b[0;32m").into_bytes()),
        ("srun", each("0: ").into_bytes()),
        ("torchrun", each("[default0]:").into_bytes()),
        ("time", each("2026-03-02T08:00:01.123Z ").into_bytes()),
        ("host", each("node17: ").into_bytes()),
        ("indented", each("    ").into_bytes()),
        ("ray", each("(Trainer pid=71) ").into_bytes()),
        (
            "no blanks at line ends",
            plain.lines().map(|l| format!("{}\n", l.trim_end())).collect::<String>().into_bytes(),
        ),
    ] {
        let got = tables_of("smi.txt", &bytes);
        if how == "host" {
            // A time behind an unknown prefix is not seen; everything else is.
            assert_eq!(got.lines().skip(1).collect::<Vec<_>>(), expected.lines().skip(1).collect::<Vec<_>>(), "{how}");
        } else {
            assert_eq!(got, expected, "{how}");
        }
    }
    let fenced = format!("I ran it:\n```\n$ nvidia-smi\n{plain}```\nthanks\n");
    assert_eq!(read_bytes("issue.md", fenced.as_bytes()).device_tables[0].processes.len(), 4);
}

#[test]
fn a_loop_is_many_tables_with_their_own_times() {
    let one = include_str!("data/smi-418-stray.txt");
    let text: String = (0..5).map(|second| one.replace("10:41:07", &format!("10:41:0{second}"))).collect();
    let evidence = read_bytes("loop.txt", text.as_bytes());
    let times: Vec<i64> = evidence.device_tables.iter().map(|t| t.time.unwrap().0).collect();
    assert_eq!(times.len(), 5);
    assert!(times.windows(2).all(|w| w[1] - w[0] == 1_000_000));
    assert!(evidence.device_tables.iter().all(|t| t.listing == ProcessListing::Listed && t.processes.len() == 4));
}

#[test]
fn nodes_that_print_at_once_are_kept_apart() {
    let (one, two) = (include_str!("data/smi-418-stray.txt"), include_str!("data/smi-340.txt"));
    let expected = |name: &str, text: &str| tables_of(name, text.as_bytes());
    for (first, second, times) in
        [("0: ", "1: ", true), ("node1: ", "node2: ", false), ("[1,0]<stdout>:", "[1,1]<stdout>:", true)]
    {
        let mut text = String::new();
        let (mut a, mut b) = (one.lines(), two.lines());
        loop {
            let (x, y) = (a.next(), b.next());
            if x.is_none() && y.is_none() {
                break;
            }
            text.extend(x.map(|l| format!("{first}{l}\n")));
            text.extend(y.map(|l| format!("{second}{l}\n")));
        }
        let evidence = read_bytes("all.txt", text.as_bytes());
        assert_eq!(evidence.device_tables.len(), 2, "{first}");
        assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
        for (table, alone) in evidence.device_tables.iter().zip([one, two]) {
            let facts = |text: &str| {
                text.lines()
                    .map(|l| l.rsplit_once(") ").map_or(l, |(_, facts)| facts).to_owned())
                    .skip(usize::from(!times))
                    .collect::<Vec<_>>()
            };
            assert_eq!(facts(&shown(table)), facts(&expected("alone", alone)), "{first}");
        }
    }
}

#[test]
fn rows_that_a_narrow_terminal_broke_are_joined() {
    for (name, text) in [
        ("418", include_str!("data/smi-418-stray.txt")),
        ("550", include_str!("data/smi-550-mig.txt")),
        ("610", include_str!("data/smi-610-windows.txt")),
    ] {
        for width in [60, 70, 78] {
            let wrapped: String = text
                .lines()
                .flat_map(|line| {
                    let chars: Vec<char> = line.chars().collect();
                    chars
                        .chunks(width)
                        .map(|c| c.iter().collect::<String>().trim_end().to_owned() + "\n")
                        .collect::<Vec<_>>()
                })
                .collect();
            let evidence = read_bytes("smi.txt", wrapped.as_bytes());
            let whole = read_bytes("smi.txt", text.as_bytes());
            let facts = |e: &rankscope_model::Evidence| {
                let table = &e.device_tables[0];
                let devices: Vec<_> =
                    table.devices.iter().map(|d| (d.subject, d.used, d.total, d.utilization_percent)).collect();
                let processes: Vec<_> =
                    table.processes.iter().map(|p| (p.subject, p.pid, p.kind.clone(), p.used)).collect();
                (devices, processes, table.listing, table.cuda_version.clone(), e.device_tables.len())
            };
            assert_eq!(facts(&evidence), facts(&whole), "{name} at {width}:\n{wrapped}");
        }
    }
}

/// Breaks a line between words, as mail programs and forums do; a word alone is broken where it must be.
fn folded(line: &str, width: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest: Vec<char> = line.trim_end().chars().collect();
    while rest.len() > width {
        let at = rest.iter().take(width).rposition(|c| *c == ' ').filter(|at| *at > 0).unwrap_or(width);
        let tail = rest.split_off(at);
        pieces.push(rest.iter().collect::<String>().trim_end().to_owned());
        rest = tail.into_iter().skip_while(|c| *c == ' ').collect();
    }
    pieces.push(rest.into_iter().collect());
    pieces
}

#[test]
fn rows_that_a_quote_broke_between_words_are_joined() {
    let facts = |e: &rankscope_model::Evidence| {
        let table = &e.device_tables[0];
        let devices: Vec<_> = table.devices.iter().map(|d| (d.subject, d.used, d.total)).collect();
        let processes: Vec<_> = table.processes.iter().map(|p| (p.subject, p.pid, p.kind.clone(), p.used)).collect();
        (devices, processes, table.listing, table.cuda_version.clone(), e.device_tables.len())
    };
    for (name, text) in [
        ("418", include_str!("data/smi-418-stray.txt")),
        ("550", include_str!("data/smi-550-mig.txt")),
        ("610", include_str!("data/smi-610-windows.txt")),
    ] {
        let whole = facts(&read_bytes("smi.txt", text.as_bytes()));
        for width in [68, 74, 76, 78] {
            for (first, next) in [("", ""), ("> ", "> "), ("> ", ""), (">> ", ">> ")] {
                let mut quoted = String::from("On Monday somebody wrote:\n");
                for line in text.lines() {
                    for (at, piece) in folded(line, width).iter().enumerate() {
                        writeln!(quoted, "{}{piece}", if at == 0 { first } else { next }).unwrap();
                    }
                }
                let evidence = read_bytes("post.txt", quoted.as_bytes());
                assert_eq!(facts(&evidence), whole, "{name} at {width} behind {first:?}:\n{quoted}");
            }
        }
        // Blanks in a row mean nothing, and pages show several as one.
        let single: String = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect();
        assert_eq!(facts(&read_bytes("post.txt", single.as_bytes())), whole, "{name}:\n{single}");
    }
}

#[test]
fn log_lines_with_bars_are_left_to_the_other_readers() {
    let (head, _) = include_str!("data/smi-418-stray.txt").split_once("|   1  Tesla").unwrap();
    let text = format!(
        "{head}2026-03-02 08:00:01 | ERROR | train.py:4 - torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 39.39 GiB\n\
         Rank 1 | step 4 | alloc 10.2 GB\n"
    );
    let evidence = read_bytes("job.log", text.as_bytes());
    assert_eq!((evidence.device_tables.len(), evidence.ooms.len(), evidence.steps.len()), (1, 1, 1));
    assert_eq!(evidence.ooms[0].at.time.map(|t| t.0), Some(1_772_438_401_000_000));
    assert_eq!(evidence.artifacts[0].warnings, Vec::<String>::new());
}

#[test]
fn containers_print_no_list_or_an_empty_one() {
    let text = include_str!("data/smi-550-mig.txt");
    let row = text.lines().find(|l| l.contains("21180")).unwrap();
    let none = text
        .replace(row, "|  No running processes found                                                             |");
    assert_eq!(read_bytes("a", none.as_bytes()).device_tables[0].listing, ProcessListing::NoneFound);
    let empty = text.replace(&format!("{row}\n"), "");
    assert_eq!(read_bytes("a", empty.as_bytes()).device_tables[0].listing, ProcessListing::NoneFound);
    let (before, _) = text.split_once("| Processes:").unwrap();
    assert_eq!(read_bytes("a", before.as_bytes()).device_tables[0].listing, ProcessListing::Missing);
}

#[test]
fn a_list_without_its_head_is_still_read() {
    let text = include_str!("data/smi-515-errors.txt");
    let rows: String =
        text.lines().filter(|l| l.contains("38360MiB") || l.contains("M+C")).map(|l| format!("{l}\n")).collect();
    let table =
        format!("| Processes:                                                                  |\n{rows}+---+\n");
    let evidence = read_bytes("a", table.as_bytes());
    assert_eq!(evidence.device_tables[0].processes.len(), 2);
    assert_eq!(evidence.device_tables[0].processes[1].kind.as_deref(), Some("M+C"));
}

#[test]
fn a_job_log_holds_everything() {
    let evidence = read_bytes("job.log", include_bytes!("data/job.log"));
    let artifact = &evidence.artifacts[0];
    assert_eq!(
        (artifact.kind, artifact.ranks.as_slice(), artifact.devices.as_slice()),
        (ArtifactKind::NvidiaSmi, &[0, 1][..], &[0, 1][..])
    );
    assert_eq!(artifact.warnings, Vec::<String>::new());
    assert_eq!(evidence.steps.len(), 4);
    assert_eq!(evidence.ooms.iter().map(|o| o.rank.unwrap().0).collect::<Vec<_>>(), [1, 0]);
    insta::assert_snapshot!(shown(&evidence.device_tables[0]));
}
