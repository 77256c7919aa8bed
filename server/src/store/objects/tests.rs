use super::*;
use crate::store::{
    Engine, NewArtifact, Store, backup, new_id,
    testing::{
        bucket::{BucketServer, SECRET},
        settings,
    },
    tests_report,
};
use std::{
    fs::{self, File},
    io::Write,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A folder, and a bucket with its server; what holds for one holds for the other.
struct Places {
    _folder: TempDir,
    server: BucketServer,
    both: [Objects; 2],
}

impl Places {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = BucketServer::start(&folder.path().join("server"));
        let both = [
            Objects::in_folder(&folder.path().join("objects")).unwrap(),
            Objects::in_bucket(&settings(&server, "a/b")).await.unwrap(),
        ];
        Self { _folder: folder, server, both }
    }
}

fn staged(folder: &TempDir, bytes: &[u8]) -> Staged {
    let path = folder.path().join(new_id());
    File::create_new(&path).unwrap().write_all(bytes).unwrap();
    Staged::of(path).unwrap()
}

async fn bytes_of(objects: &Objects, key: &Key) -> Vec<u8> {
    let (size, pieces) = objects.stream(key).await.unwrap();
    let bytes = pieces.try_collect::<Vec<Bytes>>().await.unwrap().concat();
    assert_eq!(bytes.len() as u64, size);
    bytes
}

/// What is removed from a thread of its own is gone after a moment.
async fn wait_until_gone(path: &Path) {
    let until = Instant::now() + Duration::from_secs(5);
    while path.exists() {
        assert!(Instant::now() < until, "{} stays", path.display());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn files_become_objects_and_values_survive_the_way_through_gzip() {
    let folder = tempfile::tempdir().unwrap();
    let places = Places::open().await;
    for objects in &places.both {
        let staged = staged(&folder, b"as it was");
        let path = staged.path().unwrap().to_path_buf();
        objects.adopt(&artifact_key("r", "a"), staged).await.unwrap();
        wait_until_gone(&path).await;
        assert_eq!(bytes_of(objects, &artifact_key("r", "a")).await, b"as it was");

        objects.put_json(&report_key("r", 1), Arc::new(vec![1, 2, 3])).await.unwrap();
        assert_eq!(objects.get_json::<Vec<u8>>(&report_key("r", 1)).await.unwrap(), [1, 2, 3]);
        assert!(matches!(objects.get_json::<Vec<u8>>(&report_key("r", 2)).await, Err(StoreError::Missing)));
        assert!(matches!(objects.stream(&report_key("r", 2)).await.map(drop), Err(StoreError::Missing)));
        objects.check().await.unwrap();
    }
    let keys = ["a/b/rankscope-check", "a/b/runs/r/artifacts/a", "a/b/runs/r/reports/1.json.gz"];
    assert_eq!(places.server.keys(), keys, "all below the prefix");
}

#[tokio::test]
async fn what_lies_in_the_way_is_kept_beside_it() {
    for objects in &Places::open().await.both {
        let key = report_key("r", 2);
        assert!(!objects.set_aside(&key).await.unwrap());
        objects.put_json(&key, Arc::new(7)).await.unwrap();
        assert!(objects.set_aside(&key).await.unwrap());
        assert!(matches!(objects.get_json::<u8>(&key).await, Err(StoreError::Missing)));
        let kept: Vec<_> = objects.store().list(Some(&Key::from("runs/r/reports"))).try_collect().await.unwrap();
        assert_eq!(kept.len(), 1);
        assert!(kept[0].location.as_ref().contains("2.json.gz.before-"), "{kept:?}");
        assert_eq!(objects.get_json::<u8>(&kept[0].location).await.unwrap(), 7);
    }
}

#[tokio::test]
async fn objects_go_one_by_one_or_with_their_run_and_no_others_with_them() {
    let places = Places::open().await;
    for objects in &places.both {
        for (run, version) in [("r", 1), ("r", 2), ("s", 1), ("rs", 1)] {
            objects.put_json(&report_key(run, version), Arc::new(1)).await.unwrap();
        }
        objects.delete("r", vec![report_key("r", 2), series_key("r", 2)]).await.unwrap();
        assert!(objects.get_json::<u8>(&report_key("r", 1)).await.is_ok());
        assert!(objects.get_json::<u8>(&report_key("r", 2)).await.is_err());
        objects.delete("s", vec![report_key("s", 1)]).await.unwrap();
        assert_eq!(objects.runs().await.unwrap(), ["r", "rs"]);
        objects.delete_run("r").await.unwrap();
        objects.delete_run("r").await.unwrap();
        assert_eq!(objects.runs().await.unwrap(), ["rs"]);
    }
    assert_eq!(places.server.keys(), ["a/b/rankscope-check", "a/b/runs/rs/reports/1.json.gz"]);
}

#[tokio::test]
async fn held_bytes_stay_when_the_object_goes() {
    let folder = tempfile::tempdir().unwrap();
    for (n, objects) in Places::open().await.both.iter().enumerate() {
        let (key, held) = (artifact_key("r", "a"), folder.path().join(format!("{n}/held")));
        assert!(!objects.hold(&key, &held).await.unwrap());
        objects.adopt(&key, staged(&folder, b"bytes")).await.unwrap();
        assert!(objects.hold(&key, &held).await.unwrap());
        objects.delete_run("r").await.unwrap();
        assert_eq!(fs::read(held).unwrap(), b"bytes");
    }
}

/// So many MiB and a bit, no part like another.
fn large(mib: u32) -> Vec<u8> {
    (0..(mib << 20) / 4 + 3).flat_map(u32::to_le_bytes).collect()
}

#[tokio::test]
async fn a_large_file_goes_in_parts_and_arrives_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let places = Places::open().await;
    let [_, bucket] = &places.both;
    let (key, large) = (artifact_key("r", "large"), large(17));
    bucket.adopt(&key, staged(&folder, &large)).await.unwrap();
    assert_eq!(places.server.parts(), 3);
    assert!(bytes_of(bucket, &key).await == large);
    assert_eq!((places.server.uploads(), places.server.parts_left()), (0, 0));
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_no_half_object_and_no_parts() {
    let folder = tempfile::tempdir().unwrap();
    let places = Places::open().await;
    let [_, bucket] = &places.both;
    let (key, large) = (artifact_key("r", "large"), large(9));
    places.server.break_at_part(2);
    let error = bucket.adopt(&key, staged(&folder, &large)).await.unwrap_err();
    assert!(error.is_away(), "{error}");
    assert_eq!(places.server.keys(), ["a/b/rankscope-check"]);
    assert_eq!((places.server.uploads(), places.server.parts_left()), (0, 0), "it was given up");
    assert!(places.server.parts() > 3, "it was tried again");

    // Also when nobody waits for it any more it is given up.
    let came = places.server.parts();
    let mut adopting = Box::pin(bucket.adopt(&key, staged(&folder, &large)));
    while places.server.parts() == came {
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut adopting).await.is_err());
    }
    drop(adopting);
    let until = Instant::now() + Duration::from_secs(5);
    while places.server.uploads() > 0 {
        assert!(Instant::now() < until, "the upload stays open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    places.server.break_at_part(0);
    bucket.adopt(&key, staged(&folder, &large)).await.unwrap();
    assert!(bytes_of(bucket, &key).await == large);
}

#[tokio::test]
async fn who_cannot_use_a_bucket_is_told_in_one_sentence_without_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = BucketServer::start(folder.path());
    let good = settings(&server, "");
    let refused = async |settings: &BucketSettings| {
        let error = Objects::in_bucket(settings).await.unwrap_err();
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(!text.contains(SECRET) && !text.contains("wrong-secret"), "{text}");
            assert!(!text.contains('\n') && text.len() < 600, "{text}");
        }
        error
    };
    let wrong = BucketSettings { credentials_file: Some(server.credentials_with("wrong-secret")), ..good.clone() };
    let error = refused(&wrong).await.to_string();
    assert!(error.contains("does not know the credentials (SignatureDoesNotMatch)"), "{error}");
    let nowhere = BucketSettings { url: "s3://elsewhere/x".parse().unwrap(), ..good.clone() };
    let error = refused(&nowhere).await.to_string();
    assert!(error.contains("the bucket of s3://elsewhere/x at http://127.0.0.1:"), "{error}");
    assert!(error.contains("is not there: make it"), "{error}");
    let error = refused(&BucketSettings { plain_http: false, ..good.clone() }).await.to_string();
    assert!(error.contains("objects-plain-http"), "{error}");
    let none = BucketSettings { credentials_file: Some(folder.path().join("none")), ..good.clone() };
    let error = refused(&none).await.to_string();
    assert!(error.contains("none, cannot be read"), "{error}");
    let error = refused(&BucketSettings { ca_file: Some(server.credentials()), ..good.clone() }).await.to_string();
    assert!(error.contains("holds no certificate in PEM"), "{error}");

    let objects = Objects::in_bucket(&good).await.unwrap();
    assert!(!format!("{objects:?}").contains(SECRET));
    server.stop();
    let error = refused(&good).await;
    assert!(error.is_away(), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
    assert!(objects.check().await.unwrap_err().is_away());
    server.start_again();
    objects.check().await.unwrap();
    fs::remove_file(folder.path().join("team/rankscope-check")).unwrap();
    let error = objects.check().await.unwrap_err().to_string();
    assert!(error.contains("was the bucket emptied?"), "{error}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = BucketServer::start(folder.path());
    let endpoint = format!("http://{}", silent.local_addr().unwrap()).parse().unwrap();
    let settings = BucketSettings { endpoint: Some(endpoint), ..settings(&server, "") };
    let asked = Instant::now();
    let error = Objects::to_read(&settings).await.unwrap_err();
    assert!(error.is_away() && error.to_string().contains("nothing came for 5 s"), "{error}");
    assert!(asked.elapsed() < Duration::from_secs(8));
}

#[tokio::test]
async fn a_store_whose_bucket_is_away_refuses_and_has_nothing_half_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = BucketServer::start(&folder.path().join("server"));
    let data = folder.path().join("data");
    let settings = settings(&server, "p");
    let store = Store::open_with(&data, None, Some(&settings)).await.unwrap();
    let create = async |store: &Store, run: &str| {
        let artifact = NewArtifact {
            id: new_id(),
            name: "a.txt".into(),
            bytes: 5,
            sha256: "00".into(),
            staged: Some(staged(&folder, b"bytes")),
            evidence: Arc::default(),
            read_later: None,
        };
        store.create_run(vec![artifact], tests_report(run, "t", 1, "s"), Arc::default()).await
    };
    create(&store, "first").await.unwrap();
    create(&store, "second").await.unwrap();
    let before = server.keys();
    assert_eq!(before.len(), 1 + 2 * 4);

    server.stop();
    let error = create(&store, "third").await.unwrap_err();
    assert!(error.is_away(), "{error}");
    let problem = crate::errors::Problem::from(error);
    assert_eq!(problem.kind(), crate::errors::ProblemKind::Unavailable);
    assert!(problem.detail().contains("does not answer"), "{}", problem.detail());
    assert!(matches!(store.run("third").await, Err(StoreError::Missing)));
    assert!(store.report("first", None).await.unwrap_err().is_away(), "it is not lost");
    assert!(store.check().await.unwrap_err().is_away());
    // The row goes, so nobody reads it any more; its objects wait.
    store.delete_run("second").await.unwrap();

    server.start_again();
    store.check().await.unwrap();
    store.clear_unfinished().await;
    assert!(server.keys().iter().all(|key| !key.contains("second") && !key.contains("third")), "{:?}", server.keys());
    assert_eq!(fs::read_dir(data.join("pending")).unwrap().count(), 0);
    assert_eq!(store.report("first", None).await.unwrap().diagnosis.summary, "s");
    create(&store, "fourth").await.unwrap();
    // Where the server ends before that, the next start does it.
    server.stop();
    store.delete_run("fourth").await.unwrap();
    store.close().await;
    drop(store);
    server.start_again();

    let store = Store::open_with(&data, None, Some(&settings)).await.unwrap();
    assert_eq!(server.keys().len(), 1 + 4, "{:?}", server.keys());
    drop(store.artifact_bytes("first", 0).await.unwrap());
}

/// Rows here, objects there: a copy has both, and they come back to another bucket, or to one that has lost something.
#[tokio::test]
async fn a_backup_has_the_objects_of_the_bucket_and_brings_them_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let server = BucketServer::start(&folder.path().join("server"));
    let data = folder.path().join("data");
    let (old, new) = (settings(&server, "old"), settings(&server, "new"));
    let store = Store::open_with(&data, None, Some(&old)).await.unwrap();
    if store.database().engine() == Engine::Postgres {
        println!("passed over: a backup holds the embedded database");
        return;
    }
    store.create_run(vec![], tests_report("r", "t", 1, "s"), Arc::default()).await.unwrap();
    let mut copy = Vec::new();
    let contents = backup::write(&data, Some(&old), &mut copy).await.unwrap();
    assert_eq!((contents.runs, contents.objects, contents.missing.len()), (1, 2, 0));
    let mut beside = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(beside.all(|name| !name.to_string_lossy().starts_with("backup-")), "what was held goes");
    store.delete_run("r").await.unwrap();
    drop(store);

    let of_new = || server.keys().into_iter().filter(|key| key.starts_with("new/runs")).collect::<Vec<_>>();
    let again = folder.path().join("again");
    let restored = backup::restore(copy.as_slice(), &again, Some(&new)).await.unwrap();
    assert_eq!((restored.runs, restored.objects), (1, 2));
    assert_eq!(of_new(), ["new/runs/r/reports/1.json.gz", "new/runs/r/series/1.json.gz"]);
    assert_eq!(fs::read_dir(again.join("objects")).unwrap().count(), 0, "none beside the bucket");
    let store = Store::open_with(&again, None, Some(&new)).await.unwrap();
    assert_eq!(store.report("r", None).await.unwrap().diagnosis.summary, "s");
    drop(store);

    // The folder is lost, and one object has become another.
    fs::write(folder.path().join("server/team/new/runs/r/series/1.json.gz"), b"other").unwrap();
    backup::restore(copy.as_slice(), &folder.path().join("third"), Some(&new)).await.unwrap();
    let keys = of_new();
    assert_eq!(keys.len(), 3, "the other one was kept: {keys:?}");
    assert!(keys[2].starts_with("new/runs/r/series/1.json.gz.before-"), "{keys:?}");
    let store = Store::open_with(&folder.path().join("third"), None, Some(&new)).await.unwrap();
    assert!(store.series("r", 1).await.is_ok());
}
