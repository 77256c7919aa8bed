//! Jobs that are watched, as live records show them: what is over is told in the past with its times, and what is still
//! held does not vanish from the answer because it no longer changes.

#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test fails loudly")]

mod support;

use rankscope_diagnosis::{Policy, diagnose};
use rankscope_model::{CauseLabel, Diagnosis, Evidence, MIB, Severity, Verdict};
use support::{confidence, upload};

const CARDS: u32 = 4;
/// 01:48:17.
const START: u64 = 1_764_467_297_000_000;

/// A process that is no rank, while it is there: card, PID, name, MiB.
type Stranger = (u32, u32, &'static str, u64);

/// A second of a job: MiB of each rank, and who else is there. Lists come once a second, half a second after figures.
struct Second {
    own: [u64; CARDS as usize],
    /// In the figures.
    beside: Vec<Stranger>,
    /// In the list of processes, which may lag.
    listed: Vec<Stranger>,
}

fn even(beside: Vec<Stranger>) -> Second {
    Second { own: [30_000; 4], listed: beside.clone(), beside }
}

/// The record of a node, with more lines at its end.
fn record(seconds: impl Iterator<Item = (u64, Second)>, more: &[String]) -> Evidence {
    let mut lines = vec![
        r#"{"type":"batch","format":"rankscope.live/1","source":"s","node":"a","first":0,"last":99999}"#.to_owned(),
    ];
    let device = |index| format!(r#"{{"subject":{{"device":{index}}},"name":"A100","total":{}}}"#, 80_000 * MIB);
    let devices: Vec<String> = (0..CARDS).map(device).collect();
    lines.push(format!(r#"{{"seq":0,"t":{START},"type":"node","host":"a","devices":[{}]}}"#, devices.join(",")));
    for (second, Second { own, beside, listed }) in seconds {
        let t = START + second * 1_000_000;
        let rank = |(card, mib): (u32, u64)| {
            format!(
                r#"{{"subject":{{"device":{card}}},"pid":{},"kind":"C","name":"python3","used":{},"rank":{{"rank":{card},"world_size":4,"job":"j"}}}}"#,
                100 + card,
                mib * MIB
            )
        };
        let stranger = |(card, pid, name, mib): &Stranger| {
            format!(r#"{{"subject":{{"device":{card}}},"pid":{pid},"kind":"C","name":"{name}","used":{}}}"#, mib * MIB)
        };
        let processes: Vec<String> = (0..CARDS).zip(own).map(rank).chain(listed.iter().map(stranger)).collect();
        lines.push(format!(
            r#"{{"seq":1,"t":{t},"type":"processes","listing":"listed","processes":[{}]}}"#,
            processes.join(",")
        ));
        let used = |(card, mib): (u32, u64)| {
            let others: u64 = beside.iter().filter(|(on, ..)| *on == card).map(|(.., mib)| *mib).sum();
            format!(r#"{{"subject":{{"device":{card}}},"used":[{}]}}"#, (mib + others + 450) * MIB)
        };
        let columns: Vec<String> = (0..CARDS).zip(own).map(used).collect();
        lines.push(format!(r#"{{"seq":2,"t":{t},"type":"memory","dt_us":[0],"devices":[{}]}}"#, columns.join(",")));
    }
    lines.extend_from_slice(more);
    upload("a.live.jsonl", &lines.iter().map(|line| format!("{line}\n")).collect::<String>())
}

fn run(seconds: impl Iterator<Item = (u64, Second)>) -> Diagnosis {
    diagnose(&record(seconds, &[]), &Policy::default())
}

const NOTEBOOK: Stranger = (2, 777, "jupyter", 9_000);

/// A notebook from the 10th to the 29th second; its memory is in the figures a second before it is listed.
fn notebook(second: u64) -> Second {
    let there = |from, until| if (from..until).contains(&second) { vec![NOTEBOOK] } else { vec![] };
    Second { own: [30_000; 4], beside: there(9, 30), listed: there(10, 30) }
}

#[test]
fn a_stranger_is_told_as_present_only_while_it_is_there() {
    let there = run((0..20).map(|second| (second, notebook(second))));
    assert_eq!(there.verdict, Verdict::Imbalance);
    assert!(confidence(&there, CauseLabel::OtherTenant) > 0.4, "{:?}", there.causes);
    assert!(there.summary.contains("also runs on it"), "{}", there.summary);

    for until in [31, 40, 300] {
        let gone = run((0..until).map(|second| (second, notebook(second))));
        assert_eq!(gone.verdict, Verdict::Balanced, "{until}: {}", gone.summary);
        assert_eq!(
            gone.summary,
            "Balanced in what was read: all four cards are at 29.7 GiB device used. Earlier, from 01:48:27 to 01:48:46, jupyter \
             (PID 777) held up to 8.8 GiB on GPU 2; it has left.",
            "{until}"
        );
        assert!(gone.causes.is_empty(), "no remedy for who has left: {:?}", gone.causes);
        assert!(gone.findings.iter().all(|finding| finding.severity == Severity::Info), "{:?}", gone.findings);
        let told = gone.findings.iter().find(|finding| finding.claim.contains("jupyter")).unwrap();
        assert_eq!(
            told.claim,
            "From 01:48:27 to 01:48:46 jupyter (PID 777) held up to 8.8 GiB on GPU 2, and has left it since 01:48:47."
        );
    }
}

#[test]
fn who_is_there_now_is_told_however_much_another_held_before() {
    let seconds = (0..60).map(|second| {
        let mut beside = notebook(second).beside;
        if second >= 40 {
            beside.push((1, 888, "tritonserver", 5_000));
        }
        (second, even(beside))
    });
    let diagnosis = run(seconds);
    let summary = &diagnosis.summary;
    assert!(summary.starts_with("GPU 1 is 16 % fuller than the median card"), "{summary}");
    assert!(summary.ends_with("jupyter (PID 777) held up to 8.8 GiB on GPU 2; it has left."), "{summary}");
    assert!(!summary.contains("GPU 2 is"), "{summary}");
}

#[test]
fn what_leaves_a_lost_card_is_not_known_to_have_left() {
    let lost = format!(
        r#"{{"seq":3,"t":{},"type":"state","subject":{{"device":2}},"state":"lost","detail":"GPU 2 has fallen off the bus."}}"#,
        START + 30_000_000
    );
    let evidence = record((0..60).map(|second| (second, notebook(second))), &[lost]);
    let diagnosis = diagnose(&evidence, &Policy::default());
    assert!(
        diagnosis.summary.starts_with("GPU 2 was lost at 01:48:47 and has not answered since. "),
        "{}",
        diagnosis.summary
    );
    assert!(!diagnosis.summary.contains("it has left"), "{}", diagnosis.summary);
    let back = format!(
        r#"{{"seq":4,"t":{},"type":"state","subject":{{"device":2}},"state":"ok","detail":"GPU 2 answers again."}}"#,
        START + 50_000_000
    );
    let mut again = evidence;
    again.events.extend(record((0..2).map(|second| (second, notebook(second))), &[back]).events);
    assert!(!diagnose(&again, &Policy::default()).summary.contains("lost"));
}

/// Rank 1 keeps 30 MiB of every second from the 60th to the 300th; `wave` goes up and down with the steps of all.
fn leak(second: u64, wave: u64, after: impl Fn(u64) -> u64) -> Second {
    let kept = if second < 300 { second.saturating_sub(60) * 30 } else { after(second) };
    let swing = |card: u64| wave * ((second + card) % 4);
    Second { own: [20_000 + swing(0), 20_000 + swing(1) + kept, 20_000 + swing(2), 20_000 + swing(3)], ..even(vec![]) }
}

#[test]
fn a_leak_that_no_longer_grows_is_still_told_while_its_memory_is_held() {
    for wave in [0, 600] {
        for until in [400, 600, 1500] {
            let diagnosis = run((0..until).map(|second| (second, leak(second, wave, |_| 7_200))));
            let cause = diagnosis.causes.first().unwrap_or_else(|| panic!("{wave} {until}: {}", diagnosis.summary));
            assert_eq!(cause.label, CauseLabel::PerStepLeak, "{wave} {until}");
            let why = &cause.why[0];
            assert!(why.starts_with("GPU 1 grew by 7.0 GiB from 01:49:"), "{wave} {until}: {why}");
            assert!(why.contains(" to 01:53:") && why.ends_with("and has held it since."), "{wave} {until}: {why}");
            assert!(diagnosis.summary.contains("and is still held"), "{}", diagnosis.summary);
            assert!(diagnosis.findings.iter().any(|finding| finding.claim == *why));
        }
    }
    // While it grows it is told as growing.
    let grows = run((0..290).map(|second| (second, leak(second, 0, |_| 0))));
    assert!(!grows.causes.iter().any(|cause| cause.why.iter().any(|why| why.contains("has held it"))), "{grows:#?}");
}

#[test]
fn what_was_given_back_or_taken_at_once_is_no_leak() {
    let is_told = |diagnosis: &Diagnosis| {
        diagnosis.causes.iter().flat_map(|cause| &cause.why).any(|why| why.contains("has held it since"))
    };
    let given_back = run((0..900).map(|second| (second, leak(second, 0, |_| 0))));
    assert!(!is_told(&given_back), "{given_back:#?}");
    // A buffer is loaded in twenty seconds, and kept.
    let load = |second: u64| second.saturating_sub(100).min(20) * 360;
    let loaded = |second: u64| Second { own: [20_000, 20_000 + load(second), 20_000, 20_000], ..even(vec![]) };
    let loaded = run((0..900).map(|second| (second, loaded(second))));
    assert!(!is_told(&loaded), "{loaded:#?}");
    // Three jumps over four minutes.
    let jumps = |second: u64| second.saturating_sub(60).div_ceil(80).min(3) * 2_400;
    let jumps = |second: u64| Second { own: [20_000, 20_000 + jumps(second), 20_000, 20_000], ..even(vec![]) };
    let jumps = run((0..900).map(|second| (second, jumps(second))));
    assert!(!is_told(&jumps), "{jumps:#?}");
    // All grow alike.
    let all = |second: u64| {
        let kept = second.saturating_sub(60).min(240) * 30;
        Second { own: [20_000 + kept, 20_000 + kept + 1_500, 20_000 + kept, 20_000 + kept], ..even(vec![]) }
    };
    let all = run((0..900).map(|second| (second, all(second))));
    assert!(!is_told(&all), "{all:#?}");
}

#[test]
fn a_gap_that_is_over_says_when_it_was_last() {
    let evaluates = |second: u64| {
        let more = if (20..50).contains(&second) { 12_000 } else { 0 };
        Second { own: [30_000 + more, 30_000, 30_000, 30_000], ..even(vec![]) }
    };
    let over = run((0..200).map(|second| (second, evaluates(second))));
    assert_eq!(over.verdict, Verdict::Imbalance);
    assert!(over.summary.ends_with("It was so last at 01:49:06, and not from then to 01:51:36."), "{}", over.summary);
    let now = run((0..60).map(|second| (second, evaluates(second))));
    assert!(!now.summary.contains("It was so last"), "{}", now.summary);
}

#[test]
fn what_was_so_while_nothing_was_read_is_not_told() {
    let seconds = (0..50).chain(180..300).map(|second| {
        let more = if (20..50).contains(&second) { 12_000 } else { 0 };
        (second, Second { own: [30_000 + more, 30_000, 30_000, 30_000], ..even(vec![]) })
    });
    let summary = run(seconds).summary;
    assert!(summary.ends_with("It was so last at 01:49:06, and not from 01:51:17 to 01:53:16."), "{summary}");
}

#[test]
fn slices_that_are_gone_because_mig_was_changed_are_not_lost() {
    let state = |subject: &str, state: &str| {
        format!(
            r#"{{"seq":3,"t":{},"type":"state","subject":{subject},"state":"{state}","detail":"as it was"}}"#,
            START + 20_000_000
        )
    };
    let slice = r#"{"mig_slice":{"device":0,"gpu_instance":1,"compute_instance":0}}"#;
    let lost = state(slice, "lost");
    let told = |more: &[String]| {
        let evidence = record((0..20).map(|second| (second, even(vec![]))), more);
        assert_eq!(evidence.events.len(), more.len(), "{:?}", evidence.artifacts);
        diagnose(&evidence, &Policy::default()).summary.contains("was lost at")
    };
    assert!(told(std::slice::from_ref(&lost)));
    assert!(!told(&[lost.clone(), state(r#"{"device":0}"#, "mig_changed")]));
    assert!(told(&[lost, state(r#"{"device":1}"#, "mig_changed")]), "another card's");
}

#[test]
fn the_ranks_that_wait_for_one_that_died_are_no_earlier_job() {
    // Rank 3 ends after a minute; the others hold what they held for four more.
    let mut lines = Vec::new();
    for second in (0..300u64).step_by(5) {
        let ranks: Vec<String> = (0..if second < 60 { CARDS } else { 3 })
            .map(|card| {
                format!(
                    r#"{{"subject":{{"device":{card}}},"pid":{},"kind":"C","name":"python3","used":{},"rank":{{"rank":{card},"world_size":4,"job":"j"}}}}"#,
                    100 + card,
                    30_000 * MIB
                )
            })
            .collect();
        let t = START + second * 1_000_000;
        lines.push(format!(
            r#"{{"seq":1,"t":{t},"type":"processes","listing":"listed","processes":[{}]}}"#,
            ranks.join(",")
        ));
        let used = |card: u32| {
            let own = if card == 3 && second >= 60 { 0 } else { 30_450 };
            format!(r#"{{"subject":{{"device":{card}}},"used":[{}]}}"#, own * MIB)
        };
        let columns: Vec<String> = (0..CARDS).map(used).collect();
        lines.push(format!(r#"{{"seq":2,"t":{t},"type":"memory","dt_us":[0],"devices":[{}]}}"#, columns.join(",")));
    }
    let diagnosis = diagnose(&record(std::iter::empty(), &lines), &Policy::default());
    assert!(confidence(&diagnosis, CauseLabel::ZombieLeftover) <= 0.0, "{:?}", diagnosis.causes);
    let told = |part: &str| diagnosis.findings.iter().any(|finding| finding.claim.contains(part));
    assert!(
        told("One process ended; others that ran beside it on GPUs 0 to 2 still hold"),
        "{:#?}",
        diagnosis.findings
    );
}
