//! Archives and compressed files: good ones, damaged ones, and ones that lie.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test that fails should say so at once")]

mod common;

use common::read_bytes;
use rankscope_ingest::{Limits, read_upload};
use rankscope_model::{ArtifactKind, Evidence};
use std::io::{Cursor, Write};

const LOG: &str = "[train] rank=0 step=1 shape=(8, 512) cur=10240.0MB peak=20480.0MB\n";
const SMI: &str = include_str!("data/smi-418-stray.txt");

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn zip_of(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn tar_of(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        // Names such as `../x` are refused by the safe setter, and are what strangers send.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn names(evidence: &Evidence) -> Vec<(&str, ArtifactKind)> {
    evidence.artifacts.iter().map(|a| (a.name.as_str(), a.kind)).collect()
}

fn warnings(evidence: &Evidence) -> String {
    evidence.artifacts.iter().flat_map(|a| a.warnings.clone()).collect::<Vec<_>>().join("\n")
}

#[test]
fn compressed_files_are_read_by_content_and_keep_their_name() {
    let double = [gz(LOG.as_bytes()), gz(LOG.replace("step=1", "step=2").as_bytes())].concat();
    let frames = [zst(LOG.as_bytes()), zst(LOG.replace("step=1", "step=2").as_bytes())].concat();
    for (name, bytes, steps) in [
        ("job.log", LOG.as_bytes().to_vec(), 1),
        ("job.log.gz", gz(LOG.as_bytes()), 1),
        ("misnamed.txt", gz(LOG.as_bytes()), 1),
        ("job.log.gz", double, 2),
        ("job.log.zst", zst(LOG.as_bytes()), 1),
        ("job.log.zst", frames, 2),
        ("job.log.gz.zst", zst(&gz(LOG.as_bytes())), 1),
    ] {
        let evidence = read_bytes(name, &bytes);
        assert_eq!(names(&evidence), [(name, ArtifactKind::StepLog)], "{}", warnings(&evidence));
        assert_eq!(evidence.steps.len(), steps, "{name}");
        assert_eq!(evidence.artifacts[0].bytes, bytes.len() as u64);
    }
}

#[test]
fn what_is_no_gzip_behind_a_whole_one_is_left_aside_and_named() {
    let packed = gz(LOG.as_bytes());
    let clean = read_bytes("job.log.gz", &[packed.clone(), vec![0; 512]].concat());
    assert_eq!((clean.steps.len(), warnings(&clean).as_str()), (1, ""), "padding");
    for behind in [b"garbage".to_vec(), [b"garbage".to_vec(), packed.clone()].concat()] {
        let evidence = read_bytes("job.log.gz", &[packed.clone(), behind].concat());
        assert_eq!(names(&evidence), [("job.log.gz", ArtifactKind::StepLog)]);
        assert_eq!(evidence.steps.len(), 1);
        assert_eq!(warnings(&evidence), "bytes behind the end of the packed data were left aside");
    }
}

#[test]
fn members_become_artifacts_of_their_own() {
    let members: &[(&str, &[u8])] = &[
        ("rank0/out.log", LOG.as_bytes()),
        ("smi.txt", SMI.as_bytes()),
        ("__MACOSX/._smi.txt", b"\0\x05\x16\x07"),
        ("../../etc/cron", b"text"),
    ];
    for (name, bytes) in [
        ("a.zip", zip_of(members)),
        ("a.tar", tar_of(members)),
        ("a.tar.gz", gz(&tar_of(members))),
        ("a.tgz", zst(&tar_of(members))),
    ] {
        let evidence = read_bytes(name, &bytes);
        let expected = [
            (name.to_owned(), ArtifactKind::Archive),
            (format!("{name}/rank0/out.log"), ArtifactKind::StepLog),
            (format!("{name}/smi.txt"), ArtifactKind::NvidiaSmi),
            (format!("{name}/../../etc/cron"), ArtifactKind::Text),
        ];
        assert_eq!(names(&evidence), expected.each_ref().map(|(n, k)| (n.as_str(), *k)), "{}", warnings(&evidence));
        assert_eq!(evidence.steps[0].at.artifact.0, 1);
        assert_eq!(evidence.device_tables[0].processes[0].at.artifact.0, 2);
        assert_eq!(evidence.artifacts[1].bytes, LOG.len() as u64);
    }
}

#[test]
fn the_name_of_a_member_may_tell_the_rank() {
    let evidence = read_bytes("logs.zip", &zip_of(&[("rank7.log", b"step 3: allocated=1.5GiB reserved=2GiB\n")]));
    assert_eq!(evidence.artifacts[1].ranks, [7]);
}

#[test]
fn one_archive_inside_another_is_opened_and_no_deeper() {
    let inner = zip_of(&[("x.log", LOG.as_bytes())]);
    let middle = tar_of(&[("inner.zip", &inner), ("b.log.gz", &gz(LOG.as_bytes()))]);
    let evidence = read_bytes("outer.tar.gz", &gz(&middle));
    assert_eq!(
        names(&evidence),
        [
            ("outer.tar.gz", ArtifactKind::Archive),
            ("outer.tar.gz/inner.zip", ArtifactKind::Archive),
            ("outer.tar.gz/inner.zip/x.log", ArtifactKind::StepLog),
            ("outer.tar.gz/b.log.gz", ArtifactKind::StepLog),
        ]
    );
    let evidence = read_bytes("top.zip", &zip_of(&[("outer.tar", &middle)]));
    let last = evidence.artifacts.iter().find(|a| a.name.ends_with("inner.zip")).unwrap();
    assert_eq!(last.kind, ArtifactKind::Unreadable);
    assert!(last.warnings[0].contains("inside an archive"));
}

#[test]
fn bombs_are_stopped_and_named() {
    let limits = Limits { ratio_free_bytes: 1 << 20, max_ratio: 50, ..Limits::default() };
    let zeros = vec![b'0'; 8 << 20];
    for (name, bytes) in [
        ("b.gz", gz(&zeros)),
        ("b.zip", zip_of(&[("a", &zeros), ("b.log", LOG.as_bytes())])),
        ("b.zst", zst(&zeros)),
        ("b.tgz", gz(&tar_of(&[("a", &zeros)]))),
    ] {
        let evidence = read_upload(name, &mut Cursor::new(&bytes), &limits);
        assert!(warnings(&evidence).contains("bomb"), "{name}: {}", warnings(&evidence));
    }
    let many: Vec<(String, &[u8])> = (0..50).map(|i| (format!("{i}.txt"), &b"text"[..])).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|(n, b)| (n.as_str(), *b)).collect();
    let limits = Limits { max_members: 10, ..Limits::default() };
    for bytes in [zip_of(&many), tar_of(&many)] {
        let evidence = read_upload("many", &mut Cursor::new(bytes), &limits);
        assert!(evidence.artifacts.len() <= 11);
        assert!(warnings(&evidence).contains("only the first 10") || warnings(&evidence).contains("more than 10"));
    }
}

#[test]
fn a_long_loop_of_idle_cards_is_no_bomb() {
    // Two hours of a table each second pack some hundred times, which no limit of a ratio alone would let through.
    let text: String = (0..7200u32)
        .map(|second| {
            SMI.replace("10:41:07", &format!("{:02}:{:02}:{:02}", 10 + second / 3600, second / 60 % 60, second % 60))
        })
        .collect();
    let packed = gz(text.as_bytes());
    assert!(text.len() > 64 * packed.len(), "{} of {}", packed.len(), text.len());
    let limits = Limits { ratio_free_bytes: text.len() as u64, ..Limits::default() };
    for (name, bytes) in [("loop.txt.gz", packed.clone()), ("loop.tar", tar_of(&[("loop.txt.gz", &packed)]))] {
        let evidence = read_upload(name, &mut Cursor::new(&bytes), &limits);
        assert_eq!(evidence.device_tables.len(), 7200, "{}", warnings(&evidence));
        assert!(!warnings(&evidence).contains("bomb"), "{}", warnings(&evidence));
    }
    let a_week = 7 * 24 * 3600 * 1500;
    assert!(Limits::default().ratio_free_bytes > a_week, "a week of a small table each second");
}

#[test]
fn packed_members_of_every_archive_are_unpacked() {
    let (gzip, zstd) = (gz(LOG.as_bytes()), zst(LOG.replace("rank=0", "rank=1").as_bytes()));
    let members: &[(&str, &[u8])] = &[("node0/rank0.log.gz", &gzip), ("node1/rank1.log.zst", &zstd)];
    for (name, bytes) in [("a.zip", zip_of(members)), ("a.tar", tar_of(members)), ("a.tar.gz", gz(&tar_of(members)))] {
        let evidence = read_bytes(name, &bytes);
        let ranks: Vec<_> = evidence.artifacts.iter().map(|info| info.ranks.as_slice()).collect();
        assert_eq!(ranks, [&[][..], &[0], &[1]], "{}", warnings(&evidence));
        assert_eq!(evidence.artifacts[1].kind, ArtifactKind::StepLog);
    }
}

#[test]
fn folders_tell_the_rank_where_files_do_not() {
    let text = "step 3: allocated=1.5GiB reserved=2GiB\n".as_bytes();
    let members: &[(&str, &[u8])] = &[
        ("job/rank_5/stdout.log", text),
        ("job/worker-2/out.txt", text),
        ("none_x/attempt_0/3/stderr.log", text),
        ("node_7/out.txt", text),
    ];
    let evidence = read_bytes("logs.tar", &tar_of(members));
    let ranks: Vec<_> = evidence.artifacts.iter().skip(1).map(|info| info.ranks.as_slice()).collect();
    assert_eq!(ranks, [&[5][..], &[2], &[3], &[]]);
}

#[test]
fn two_pastes_of_one_name_stay_two() {
    let mut evidence = read_bytes("nvidia-smi.txt", SMI.as_bytes());
    evidence.merge(read_bytes("nvidia-smi.txt", SMI.replace("10:41:07", "10:42:07").as_bytes()));
    evidence.merge(read_bytes("nvidia-smi.txt", LOG.as_bytes()));
    let found: Vec<_> = evidence.artifacts.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(found, ["nvidia-smi.txt", "nvidia-smi.txt (2)", "nvidia-smi.txt (3)"]);
    let second = &evidence.device_tables[1];
    assert_eq!(evidence.artifact_name(second.at.artifact), "nvidia-smi.txt (2)");
}

#[test]
fn damage_keeps_what_was_read_before_it() {
    let text: String = (0..20_000).map(|step| LOG.replace("step=1", &format!("step={step}"))).collect();
    let whole = gz(text.as_bytes());
    let evidence = read_bytes("cut.gz", &whole[..whole.len() * 2 / 3]);
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::StepLog);
    assert!(evidence.steps.len() > 1000);
    assert!(warnings(&evidence).contains("ends early"), "{}", warnings(&evidence));
    assert!(warnings(&evidence).contains("damaged or cut"), "{}", warnings(&evidence));

    let tar = tar_of(&[("a.log", text.as_bytes()), ("b.log", text.as_bytes())]);
    let evidence = read_bytes("cut.tar.gz", &gz(&tar)[..gz(&tar).len() - 2000]);
    assert_eq!(evidence.artifacts[1].kind, ArtifactKind::StepLog);
    assert!(!warnings(&evidence).is_empty());

    // A snapshot that breaks off in its events is used up to there, packed or not.
    let own = |name: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/snapshots");
        std::fs::read(folder.join(name)).unwrap()
    };
    let mut stored = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    std::io::Write::write_all(&mut stored, &own("protocol5.pickle")).unwrap();
    let stored = stored.finish().unwrap();
    let (head, shorter) = (15, own("cut_in_events.pickle"));
    let evidence = read_bytes("rank0.pickle.gz", &stored[..head + shorter.len()]);
    assert_eq!(evidence.snapshots, read_bytes("rank0.pickle", &shorter).snapshots);
    assert!(warnings(&evidence).contains("the segments are complete"), "{}", warnings(&evidence));

    let zip = zip_of(&[("a.log", text.as_bytes())]);
    let evidence = read_bytes("cut.zip", &zip[..zip.len() / 2]);
    assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Unreadable);
    assert!(warnings(&evidence).contains("cannot be listed"));
}

#[test]
fn a_zip_that_lies_about_its_sizes_or_methods() {
    let zip = zip_of(&[("a.log", LOG.as_bytes()), ("b.log", LOG.as_bytes())]);
    let central = zip.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    let change = |offset: usize, with: &[u8]| {
        let mut lying = zip.clone();
        lying[central + offset..central + offset + with.len()].copy_from_slice(with);
        read_bytes("lie.zip", &lying)
    };
    // Uncompressed size of 4 GiB, a checksum that is wrong, an encrypted flag, an unknown method.
    let large = change(24, &[0xfe, 0xff, 0xff, 0xff]);
    let sizes: Vec<u64> = large.artifacts[1..].iter().map(|member| member.bytes).collect();
    assert_eq!(sizes, [LOG.len() as u64; 2], "a size is what came out, not what was claimed");
    assert!(warnings(&change(16, &[1, 2, 3, 4])).contains("checksum"));
    let encrypted = change(8, &[1, 0]);
    assert_eq!(encrypted.artifacts[1].kind, ArtifactKind::Unreadable);
    assert!(warnings(&encrypted).contains("encrypted"));
    assert!(
        warnings(&change(10, &[99, 0])).contains("not supported")
            || warnings(&change(10, &[14, 0])).contains("not supported")
    );
}

#[test]
fn members_that_are_hidden_or_share_a_name_are_told() {
    let hidden = [("a.log", LOG.as_bytes()), (".git/config", b"[core]\n".as_slice()), (".env", b"A=1\n")];
    for archive in [zip_of(&hidden), tar_of(&hidden)] {
        let evidence = read_bytes("job.zip", &archive);
        assert_eq!(names(&evidence)[1..], [("job.zip/a.log", ArtifactKind::StepLog)]);
        assert!(warnings(&evidence).starts_with("2 hidden files were not read"), "{}", warnings(&evidence));
    }
    let mut doubled = zip_of(&[("a.log", LOG.as_bytes()), ("b.log", LOG.as_bytes())]);
    while let Some(at) = doubled.windows(5).position(|w| w == b"b.log") {
        doubled[at] = b'a';
    }
    let evidence = read_bytes("job.zip", &doubled);
    assert_eq!(names(&evidence)[1..], [("job.zip/a.log", ArtifactKind::StepLog)]);
    assert!(warnings(&evidence).contains("several members have the same name"), "{}", warnings(&evidence));
}

#[test]
fn what_is_no_evidence_says_what_it_is() {
    let checkpoint = zip_of(&[("archive/data.pkl", b"\x80\x02}q\0."), ("archive/data/0", &[0; 64])]);
    for (bytes, words) in [
        (&b""[..], "empty: 0 bytes"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0", "PNG image"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "PDF"),
        (&[7, 0, 255, 3, 0, 0, 200, 1, 0, 9], "binary data"),
        (&checkpoint, "PyTorch checkpoint"),
    ] {
        let evidence = read_bytes("upload", bytes);
        assert_eq!(evidence.artifacts.len(), 1);
        assert_eq!(evidence.artifacts[0].kind, ArtifactKind::Unreadable);
        assert!(warnings(&evidence).contains(words), "{}", warnings(&evidence));
    }
    assert!(warnings(&read_bytes("e.gz", &gz(b""))).contains("empty"));
}

#[test]
fn scripts_are_kept_without_alarm() {
    let script = "import torch\n\ndef main():\n    \"\"\"rank=0 step=1 cur=1MB\n    CUDA out of memory. Tried to allocate 2.00 GiB\"\"\"\n";
    for name in ["train.py", "pasted.txt", "code.zip/train.py"] {
        let evidence = read_bytes(name, script.as_bytes());
        assert_eq!(names(&evidence), [(name, ArtifactKind::PythonScript)]);
        assert_eq!(warnings(&evidence), "");
        assert!(evidence.steps.is_empty() && evidence.ooms.is_empty());
    }
}

#[test]
fn names_with_control_characters_are_shown_safely() {
    let evidence = read_bytes("a\x1b[31m\u{202e}.zip", &zip_of(&[("x\ny.log", LOG.as_bytes())]));
    assert!(evidence.artifacts.iter().all(|a| !a.name.chars().any(char::is_control)));
}

#[test]
fn many_members_share_one_budget() {
    let log = |rank: usize| -> String {
        (0..500).map(|step| format!("rank={rank} step={step} peak={}MB\n", 100 + step)).collect()
    };
    let logs: Vec<(String, String)> = (0..8).map(|rank| (format!("rank{rank}.log"), log(rank))).collect();
    let members: Vec<(&str, &[u8])> = logs.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    let limits = Limits { max_upload_step_records: 1000, ..Limits::default() };
    let evidence = read_upload("logs.zip", &mut Cursor::new(zip_of(&members)), &limits);
    assert!(evidence.steps.len() <= 1000, "{}", evidence.steps.len());
    for rank in 0..8 {
        let own = evidence.steps.iter().filter(|step| step.subject.rank() == Some(rank));
        let peaks: Vec<_> = own.filter_map(|step| step.peak_allocated).collect();
        assert!(peaks.len() > 50 && peaks.contains(&rankscope_model::Bytes::from_mib(599)), "{rank}: {}", peaks.len());
    }
    assert!(evidence.artifacts[0].warnings[0].contains("step records of the files"), "{}", warnings(&evidence));

    let oom = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity; 12.00 GiB already \
               allocated; 1.00 GiB free; 13.00 GiB reserved in total by PyTorch)\n";
    let names: Vec<String> = (0..40).map(|rank| format!("rank{rank}.log")).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), oom.as_bytes())).collect();
    let limits = Limits { max_evidence_bytes: 4096, ..Limits::default() };
    let evidence = read_upload("logs.zip", &mut Cursor::new(zip_of(&members)), &limits);
    assert!((2..20).contains(&evidence.ooms.len()), "{}", evidence.ooms.len());
    assert!(evidence.artifacts[0].warnings[0].contains("passes the limit of 4"), "{}", warnings(&evidence));
}

#[test]
fn members_that_share_their_bytes_are_refused() {
    let mut zip = zip_of(&[("a.log", LOG.as_bytes()), ("b.log", LOG.as_bytes())]);
    let entries: Vec<usize> = (0..zip.len()).filter(|at| zip[*at..].starts_with(b"PK\x01\x02")).collect();
    // The second entry of the directory is pointed at the first member.
    zip[entries[1] + 42..entries[1] + 46].copy_from_slice(&[0; 4]);
    let evidence = read_bytes("twice.zip", &zip);
    assert_eq!(evidence.artifacts[1].kind, ArtifactKind::StepLog);
    assert_eq!(evidence.artifacts[2].kind, ArtifactKind::Unreadable);
    assert!(warnings(&evidence).contains("those of another member"), "{}", warnings(&evidence));
}

#[test]
fn names_before_a_tar_member_are_bounded() {
    // A header that says: a name of so many bytes follows.
    let long = |kind: tar::EntryType, name: &[u8], then: &str| {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_path("././@LongLink").unwrap();
        header.set_size(name.len() as u64);
        header.set_cksum();
        tar.append(&header, name).unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_path(then).unwrap();
        header.set_size(LOG.len() as u64);
        header.set_cksum();
        tar.append(&header, LOG.as_bytes()).unwrap();
        read_bytes("logs.tar", &tar.into_inner().unwrap())
    };
    let path = format!("{}rank3.log", "deep/".repeat(30));
    let pax = |key: &str, value: &str| {
        let rest = format!(" {key}={value}\n");
        let length = (rest.len()..rest.len() + 30).find(|n| n.to_string().len() + rest.len() == *n).unwrap();
        format!("{length}{rest}")
    };
    for evidence in [
        long(tar::EntryType::GNULongName, format!("{path}\0").as_bytes(), "cut"),
        long(tar::EntryType::XHeader, pax("path", &path).as_bytes(), "cut"),
    ] {
        assert!(evidence.artifacts[1].name.ends_with("deep/rank3.log"), "{}", evidence.artifacts[1].name);
        assert_eq!(evidence.steps.len(), 1);
    }
    for kind in [tar::EntryType::GNULongName, tar::EntryType::GNULongLink, tar::EntryType::XHeader] {
        let evidence = long(kind, &vec![b'a'; 1 << 20], "a.log");
        assert_eq!(evidence.artifacts.len(), 1);
        assert!(warnings(&evidence).contains("a name of 1 MiB follows"), "{}", warnings(&evidence));
    }
    // Global attributes are passed over, however long.
    assert_eq!(long(tar::EntryType::XGlobalHeader, &vec![b'a'; 1 << 20], "a.log").steps.len(), 1);
    let evidence = long(tar::EntryType::XHeader, pax("size", "9000000000").as_bytes(), "a.log");
    assert!(warnings(&evidence).contains("over 8 GiB"), "{}", warnings(&evidence));
}
