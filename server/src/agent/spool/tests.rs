use super::*;
use rankscope_model::{Bytes, LiveColumn, LiveMemory, Subject};
use std::collections::BTreeMap;

/// A line with so many figures of memory.
fn sample(figures: u32) -> Timed {
    let used = (0..figures).map(|n| Some(Bytes(u64::from(n)))).collect();
    let memory =
        LiveMemory { dt_us: (0..figures).collect(), devices: vec![LiveColumn { subject: Subject::Device(0), used }] };
    Timed { t: UnixMicros(7), record: LiveRecord::Memory(memory) }
}

/// What a server keeps: each position of each source once.
#[derive(Default)]
struct Kept {
    next: BTreeMap<String, u64>,
    lines: u64,
    figures: u64,
    dropped: Vec<LiveDropped>,
}

impl Kept {
    /// Takes a batch as the server does; what it acknowledges, or where something is missing.
    fn take(&mut self, batch: &Batch) -> Result<u64, u64> {
        let next = self.next.entry(batch.head.source.clone()).or_default();
        let lines: Vec<LiveLine> = batch
            .text
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!((lines[0].seq, lines.last().unwrap().seq), (batch.head.first, batch.head.last));
        assert_eq!(lines.len(), batch.count);
        for line in lines {
            if line.seq < *next {
                continue;
            }
            match line.record {
                LiveRecord::Dropped(dropped) => {
                    assert!(dropped.first <= *next && dropped.last == line.seq, "{dropped:?} at {next}");
                    self.dropped.push(dropped);
                    self.figures += dropped.samples;
                }
                _ if line.seq > *next => return Err(next.checked_sub(1).unwrap()),
                LiveRecord::Memory(memory) => {
                    self.lines += 1;
                    self.figures += memory.figures();
                }
                _ => self.lines += 1,
            }
            *next = line.seq + 1;
        }
        Ok(*next - 1)
    }

    fn drain(&mut self, spool: &mut Spool) {
        while let Some(batch) = spool.next_batch(4096, UnixMicros(0)).unwrap() {
            let acknowledged = self.take(&batch).unwrap();
            spool.acknowledge(&batch.head.source, acknowledged);
        }
    }
}

const LARGE: u64 = 1 << 20;

fn open(folder: &Path, source: &str, bytes: u64) -> Spool {
    Spool::open(folder, "gpu7", source, bytes).unwrap()
}

#[test]
fn lines_arrive_in_order_and_their_files_go() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path(), "a", LARGE);
    let mut kept = Kept::default();
    for _ in 0..300 {
        spool.append((0, 0), vec![sample(40), sample(40)]).unwrap();
    }
    assert!(fs::read_dir(folder.path().join("a")).unwrap().count() > 3);
    kept.drain(&mut spool);
    assert_eq!((kept.lines, kept.figures), (600, 600 * 40));
    assert!(kept.dropped.is_empty());
    assert_eq!(spool.next_batch(100, UnixMicros(0)).unwrap(), None);
    spool.append((0, 0), vec![sample(1)]).unwrap();
    kept.drain(&mut spool);
    assert_eq!(kept.lines, 601);
    // The segment that is written to, and the position.
    assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 2);
}

#[test]
fn what_is_acknowledged_in_part_goes_on_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path(), "a", LARGE);
    spool.append((0, 0), (0..10).map(sample).collect()).unwrap();
    let head = |spool: &mut Spool| {
        spool.next_batch(LARGE, UnixMicros(0)).unwrap().map(|batch| (batch.head.first, batch.head.last))
    };
    assert_eq!(head(&mut spool), Some((0, 9)));
    spool.acknowledge("a", 3);
    assert_eq!(head(&mut spool), Some((4, 9)));
    // The server was set back to an older state.
    spool.acknowledge("a", 1);
    assert_eq!(head(&mut spool), Some((2, 9)));
    spool.acknowledge("a", 900);
    assert_eq!(head(&mut spool), None);
    spool.append((0, 0), vec![sample(1)]).unwrap();
    assert_eq!(head(&mut spool), Some((10, 10)));
}

#[test]
fn a_full_spool_gives_up_the_oldest_and_counts_it() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = 64 << 10;
    let mut spool = open(folder.path(), "a", bytes);
    for _ in 0..1000 {
        spool.append((0, 0), vec![sample(40)]).unwrap();
        assert!(spool.bytes() <= bytes);
    }
    let mut kept = Kept::default();
    kept.drain(&mut spool);
    assert_eq!(kept.dropped.len(), 1, "{:?}", kept.dropped);
    let dropped = kept.dropped[0];
    assert_eq!((dropped.first, dropped.last + 1 + kept.lines), (0, 1000));
    assert_eq!(kept.figures, 1000 * 40, "what is lost is counted to the figure");
    assert!(kept.lines > 100, "{}", kept.lines);
}

#[test]
fn what_is_given_up_while_it_is_under_way_is_not_counted_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path(), "a", 64 << 10);
    let mut kept = Kept::default();
    for _ in 0..40 {
        spool.append((0, 0), vec![sample(40)]).unwrap();
    }
    // The server takes it, and its answer is lost.
    let batch = spool.next_batch(LARGE, UnixMicros(0)).unwrap().unwrap();
    kept.take(&batch).unwrap();
    for _ in 0..1000 {
        spool.append((0, 0), vec![sample(40)]).unwrap();
    }
    kept.drain(&mut spool);
    // The figures of what the server had are counted in the gap as well, its lines are not.
    assert_eq!(kept.next["a"], 1040);
    // An answer that comes late moves nothing back.
    let (lines, figures) = (kept.lines, kept.figures);
    kept.drain(&mut spool);
    assert_eq!((kept.lines, kept.figures), (lines, figures));
}

#[test]
fn the_next_run_sends_what_the_last_one_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Kept::default();
    for source in ["a", "b", "c"] {
        let mut spool = open(folder.path(), source, LARGE);
        for _ in 0..50 {
            spool.append((0, 0), vec![sample(20)]).unwrap();
        }
        let batch = spool.next_batch(3000, UnixMicros(0)).unwrap().unwrap();
        assert_eq!(batch.head.source, "a");
        let acknowledged = kept.take(&batch).unwrap();
        spool.acknowledge("a", acknowledged);
        // Dropped without any farewell, as by a kill; the last line is half written.
        let last = fs::read_dir(folder.path().join(source)).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
        let newest = if last.ends_with(ACKNOWLEDGED) { Segment::path(&folder.path().join(source), 0) } else { last };
        let mut file = File::options().append(true).open(newest).unwrap();
        file.write_all(b"{\"seq\":50,\"t\":1,\"ty").unwrap();
    }
    let mut spool = open(folder.path(), "d", LARGE);
    kept.drain(&mut spool);
    assert_eq!((kept.lines, kept.figures), (150, 150 * 20));
    assert!(kept.dropped.is_empty());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the lock and this run");
}

#[test]
fn gaps_are_known_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Kept::default();
    let mut spool = open(folder.path(), "a", 64 << 10);
    for _ in 0..500 {
        spool.append((0, 0), vec![sample(40)]).unwrap();
    }
    drop(spool);
    let mut spool = open(folder.path(), "b", 64 << 10);
    kept.drain(&mut spool);
    assert_eq!((kept.next["a"], kept.figures), (500, 500 * 40));
}

#[test]
fn lines_that_were_lost_before_they_were_written_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path(), "a", LARGE);
    spool.append((0, 0), vec![sample(4)]).unwrap();
    spool.append((5, 100), vec![sample(4)]).unwrap();
    spool.append((2, 10), Vec::new()).unwrap();
    spool.append((1, 1), vec![sample(4)]).unwrap();
    let mut kept = Kept::default();
    kept.drain(&mut spool);
    let dropped: Vec<_> = kept.dropped.iter().map(|dropped| (dropped.first, dropped.last, dropped.samples)).collect();
    assert_eq!(dropped, [(1, 5, 100), (7, 9, 11)]);
    assert_eq!((kept.lines, kept.next["a"]), (3, 11));
}

#[test]
fn a_disk_that_refuses_costs_lines_and_no_position() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path(), "a", LARGE);
    // No segment can be made where there is no folder.
    fs::remove_dir(folder.path().join("a")).unwrap();
    assert!(spool.append((0, 0), vec![sample(4), sample(4)]).is_err());
    assert!(spool.append((3, 30), vec![sample(4)]).is_err());
    fs::create_dir(folder.path().join("a")).unwrap();
    spool.append((0, 0), vec![sample(4)]).unwrap();
    let mut kept = Kept::default();
    kept.drain(&mut spool);
    assert_eq!((kept.dropped[0].first, kept.dropped[0].last, kept.dropped[0].samples), (0, 5, 42));
    assert_eq!((kept.lines, kept.next["a"]), (1, 7));
}

#[test]
fn a_line_that_the_server_cannot_take_is_skipped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path(), "a", LARGE);
    spool.append((0, 0), vec![sample(1), sample(1), sample(90), sample(1)]).unwrap();
    let mut kept = Kept::default();
    spool.acknowledge("a", 1);
    kept.next.insert("a".into(), 2);
    spool.skip("a", 2);
    kept.drain(&mut spool);
    assert_eq!((kept.dropped[0].first, kept.dropped[0].last, kept.dropped[0].samples), (2, 2, 90));
    assert_eq!(kept.next["a"], 4);
}

#[test]
fn one_agent_has_a_spool() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), "a", LARGE);
    assert!(matches!(Spool::open(folder.path(), "n", "b", LARGE), Err(SpoolError::InUse(_))));
    drop(spool);
    open(folder.path(), "b", LARGE);
}
