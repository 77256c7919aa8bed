//! Input that is broken, hostile or too large: a clear message, nothing lost, nothing executed, the server unharmed.

mod common;

use axum::{
    body::Body,
    http::{Method, header},
};
use common::{Part, Server, data, multipart, multipart_type, request};
use flate2::{Compression, write::GzEncoder};
use futures_util::{StreamExt, stream};
use rankscope::limits::Limits;
use std::{io::Write, time::Duration};

fn small() -> Limits {
    Limits { max_file_bytes: 20_000, max_request_bytes: 60_000, max_files: 4, ..Limits::default() }
}

#[tokio::test]
async fn an_upload_of_nothing_is_explained() {
    let server = Server::start().await;
    for parts in [&[][..], &[("files", Some(""), &b""[..])], &[("files", Some("a.log"), b""), ("text", None, b" ")]] {
        assert_eq!(server.upload("/api/v1/runs", parts).await.problem(422), "/problems/nothing-uploaded");
        let page = server.upload("/runs", parts).await.expect(422);
        assert!(page.header(header::CONTENT_TYPE).starts_with("text/html"));
        assert!(page.text().contains("Nothing was uploaded"));
    }
    assert_eq!(server.get("/api/v1/runs").await.json()["runs"], serde_json::json!([]));
}

#[tokio::test]
async fn an_empty_file_beside_others_is_kept_and_named() {
    let server = Server::start().await;
    let smi = data("nvidia-smi.txt");
    let parts: [Part<'_>; 2] = [("files", Some("empty.log"), b""), ("files", Some("nvidia-smi.txt"), &smi)];
    let made = server.upload("/api/v1/runs", &parts).await.expect(201).json();
    assert_eq!(made["verdict"], "imbalance");
    assert_eq!(made["artifacts"][0]["name"], "empty.log");
    assert!(!made["artifacts"][0]["warnings"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_file_over_the_limit_is_named_with_the_limit_and_the_others_are_kept() {
    let server = Server::start_with(small()).await;
    let (big, smi) = (vec![7; 30_000], data("nvidia-smi.txt"));
    let parts: [Part<'_>; 2] = [("files", Some("big.pickle"), &big), ("files", Some("nvidia-smi.txt"), &smi)];
    let made = server.upload("/api/v1/runs", &parts).await.expect(201).json();
    let refused = &made["artifacts"][0];
    assert_eq!((refused["name"].as_str(), refused["kind"].as_str()), (Some("big.pickle"), Some("unreadable")));
    assert!(refused["warnings"][0].as_str().unwrap().contains("19.5 KiB"), "{refused}");
    assert_eq!(made["verdict"], "imbalance");
    let path = format!("/api/v1/runs/{}", made["id"].as_str().unwrap());
    assert_eq!(server.get(&format!("{path}/artifacts/0")).await.problem(410), "/problems/not-kept");
    server.get(&format!("{path}/artifacts/1")).await.expect(200);
    assert!(server.get(made["url"].as_str().unwrap()).await.expect(200).text().contains("big.pickle"));

    let alone = server.upload("/api/v1/runs", &parts[..1]).await;
    assert!(alone.text().contains("big.pickle") && alone.text().contains("19.5 KiB"));
    assert_eq!(alone.problem(413), "/problems/file-too-large");
}

#[tokio::test]
async fn a_request_over_the_limit_is_refused_before_it_is_read() {
    let server = Server::start_with(small()).await;
    // The body never comes: the answer must not wait for it.
    let stalled = axum::body::Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let announced = request(Method::POST, "/api/v1/runs")
        .header(header::CONTENT_TYPE, multipart_type())
        .header(header::CONTENT_LENGTH, "3221225472")
        .body(stalled)
        .unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(5), server.send(announced)).await.unwrap();
    assert!(answer.text().contains("58.6 KiB"), "{}", answer.text());
    assert_eq!(answer.problem(413), "/problems/request-too-large");

    let three = vec![7; 25_000];
    let parts: Vec<Part<'_>> = ["a", "b", "c"].iter().map(|name| ("files", Some(*name), three.as_slice())).collect();
    assert_eq!(server.upload("/api/v1/runs", &parts).await.problem(413), "/problems/request-too-large");
    let parts = [("files", Some("a"), &b"1"[..]); 5];
    assert_eq!(server.upload("/api/v1/runs", &parts).await.problem(413), "/problems/too-many-files");
}

#[tokio::test]
async fn other_bodies_are_refused_with_words() {
    let server = Server::start().await;
    let json = server.call(Method::POST, "/api/v1/runs", serde_json::json!({})).await;
    assert_eq!(json.problem(415), "/problems/unsupported-media-type");
    let mut cut = multipart(&[("files", Some("a.txt"), &data("nvidia-smi.txt"))]);
    cut.truncate(500);
    let cut = request(Method::POST, "/api/v1/runs").header(header::CONTENT_TYPE, multipart_type()).body(cut.into());
    assert_eq!(server.send(cut.unwrap()).await.problem(400), "/problems/invalid-request");
    let run = server.run_from_data().await;
    let share = format!("/api/v1/runs/{}/shares", run["id"].as_str().unwrap());
    let long = serde_json::json!({ "expires_in": 1, "note": "x".repeat(100_000) });
    assert_eq!(server.call(Method::POST, &share, long).await.problem(413), "/problems/request-too-large");
    for expiry in ["0", "99999999999999", "-1", "\"soon\""] {
        let body = serde_json::from_str(&format!("{{\"expires_in\":{expiry}}}")).unwrap();
        assert_eq!(server.call(Method::POST, &share, body).await.problem(400), "/problems/invalid-request", "{expiry}");
    }
}

#[tokio::test]
async fn bombs_and_hostile_pickles_are_kept_and_named_and_do_nothing() {
    let server = Server::start().await;
    let proof = server.folder.path().join("executed");
    let mebibyte = vec![0; 1 << 20];
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..40 {
        bomb.write_all(&mebibyte).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    let mut pickle = b"\x80\x02".to_vec();
    pickle.extend_from_slice(format!("cos\nsystem\n(S'touch {}'\ntR.", proof.display()).as_bytes());
    let smi = data("nvidia-smi.txt");
    let parts: [Part<'_>; 4] = [
        ("files", Some("bomb.gz"), &bomb),
        ("files", Some("snapshot.pickle"), &pickle),
        ("files", Some("broken.zip"), b"PK\x03\x04 and then nothing"),
        ("files", Some("nvidia-smi.txt"), &smi),
    ];
    let made = server.upload("/api/v1/runs", &parts).await.expect(201).json();
    assert_eq!(made["verdict"], "imbalance");
    let artifacts = made["artifacts"].as_array().unwrap();
    for name in ["bomb.gz", "snapshot.pickle", "broken.zip"] {
        let named: Vec<_> =
            artifacts.iter().filter(|found| found["name"].as_str().unwrap().starts_with(name)).collect();
        assert!(!named.is_empty(), "{name} is not named");
        assert!(named.iter().any(|found| !found["warnings"].as_array().unwrap().is_empty()), "{name}: {named:?}");
    }
    assert!(!proof.exists());
    let id = made["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/api/v1/runs/{id}/artifacts/0")).await.expect(200).body, bomb);
    server.get("/readyz").await.expect(200);
}

#[tokio::test]
async fn hostile_names_are_only_ever_text() {
    let server = Server::start().await;
    let smi = data("nvidia-smi.txt");
    let parts: [Part<'_>; 3] = [
        ("title", None, b"\"></title><script>alert(1)</script><img src=x onerror=alert(1)>"),
        ("files", Some("../../../etc/<script>alert(1)</script>.txt"), &smi),
        ("files", Some("..%5C..%5Cwin.txt"), b"nothing"),
    ];
    let made = server.upload("/api/v1/runs", &parts).await.expect(201).json();
    let id = made["id"].as_str().unwrap();
    let share = server.call(Method::POST, &format!("/api/v1/runs/{id}/shares"), serde_json::json!({})).await.json();
    let pages = [
        "/".to_owned(),
        format!("/runs/{id}"),
        share["url"].as_str().unwrap().to_owned(),
        format!("/api/v1/runs/{id}/report.html"),
    ];
    for page in pages {
        let html = server.get(&page).await.expect(200).text();
        assert!(!html.contains("<script>alert") && !html.contains("<img src=x"), "{page}");
    }
    let markdown = server.get(&format!("/api/v1/runs/{id}/report.md")).await.text();
    assert!(!markdown.contains("<script>") && !markdown.contains("<img"));
    let raw = server.get(&format!("/api/v1/runs/{id}/artifacts/0")).await.expect(200);
    let disposition = raw.header(header::CONTENT_DISPOSITION);
    assert!(disposition.starts_with("attachment") && !disposition.contains('<') && !disposition.contains(".."));
    // Everything lies where ids put it.
    let mut folders = vec![server.folder.path().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            assert!(!path.to_string_lossy().contains("script"), "{}", path.display());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
}

#[tokio::test]
async fn names_in_any_spelling_do_not_sink_the_form() {
    let server = Server::start().await;
    let long = format!("{}rank12.log", "x".repeat(400));
    let name =
        |line: &[u8]| [b"--B\r\nContent-Disposition: form-data; name=\"files\"; ", line, b"\r\n\r\nx\r\n"].concat();
    let body = [
        name(b"filename=\"rank\xff3.log\""),
        name(b"filename=\"a.log\"; filename*=UTF-8''rank%205%E6%98%BE.log"),
        name(b"filename=\"nul\0rank7.log\""),
        name(format!("filename=\"{long}\"").as_bytes()),
        b"--B--\r\n".to_vec(),
    ];
    let sent = request(Method::POST, "/api/v1/runs").header(header::CONTENT_TYPE, "multipart/form-data; boundary=B");
    let made = server.send(sent.body(body.concat().into()).unwrap()).await.expect(201).json();
    let names: Vec<_> =
        made["artifacts"].as_array().unwrap().iter().map(|found| found["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["rank\u{fffd}3.log", "rank 5显.log", "nulrank7.log"]);
    assert!(names[3].ends_with("rank12.log") && names[3].chars().count() == 240, "{}", names[3]);
}

#[tokio::test]
async fn a_lost_file_is_said_to_be_lost() {
    let server = Server::start().await;
    let run = server.run_from_data().await;
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    std::fs::remove_dir_all(server.folder.path().join("objects/runs")).unwrap();
    assert_eq!(server.get(&path).await.problem(500), "/problems/file-lost");
    assert_eq!(server.get(&format!("{path}/artifacts/0")).await.problem(500), "/problems/file-lost");
    let page = server.get(run["url"].as_str().unwrap()).await.expect(500);
    assert!(page.text().contains("A stored file is missing"), "{}", page.text());
}

#[tokio::test]
async fn a_title_of_nothing_visible_is_no_title() {
    let server = Server::start().await;
    let parts: [Part<'_>; 2] = [("title", None, "\u{200b}\u{200b}".as_bytes()), ("text", None, b"x")];
    let made = server.upload("/api/v1/runs", &parts).await.expect(201).json();
    assert_eq!(made["title"], "pasted.txt");
    let path = format!("/api/v1/runs/{}", made["id"].as_str().unwrap());
    let rename = async |title: &str| server.call(Method::PATCH, &path, serde_json::json!({ "title": title })).await;
    assert_eq!(rename("\u{200b}").await.problem(400), "/problems/invalid-request");
    rename(&"x".repeat(201)).await.expect(204);
    assert_eq!(server.get(&path).await.json()["title"], "x".repeat(200));
}

/// A body that goes on for ever, one byte after the other.
fn dripping(start: &[u8]) -> Body {
    let start = stream::iter([Ok::<_, std::io::Error>(start.to_vec())]);
    let drops = stream::repeat(b'x').then(|drop| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(vec![drop])
    });
    Body::from_stream(start.chain(drops))
}

#[tokio::test]
async fn an_upload_that_drips_is_given_up_in_words() {
    let limits = Limits { upload_grace: Duration::from_secs(1), ..Limits::default() };
    let server = Server::start_with(limits).await;
    let whole = multipart(&[("files", Some("a.log"), b"x")]);
    let start = &whole[..whole.len() - 40];
    for (path, kind) in [("/api/v1/runs", "application/problem+json"), ("/runs", "text/html")] {
        let sent = request(Method::POST, path).header(header::CONTENT_TYPE, multipart_type()).body(dripping(start));
        let answer =
            tokio::time::timeout(Duration::from_secs(20), server.send(sent.unwrap())).await.unwrap().expect(408);
        assert!(answer.header(header::CONTENT_TYPE).starts_with(kind), "{path}");
        assert!(
            answer.text().contains("1 KiB a second") && answer.text().contains("Nothing of it was"),
            "{}",
            answer.text()
        );
    }
    assert_eq!(server.get("/api/v1/runs").await.json()["runs"], serde_json::json!([]));
}

#[tokio::test]
async fn a_form_that_is_slow_or_too_long_says_which() {
    let limits = Limits { body_within: Duration::from_millis(300), ..Limits::default() };
    let server = Server::start_with(limits).await;
    let run = server.run_from_data().await;
    let path = format!("/runs/{}", run["id"].as_str().unwrap());
    let form = "application/x-www-form-urlencoded";
    for (what, kind, status) in [("title", form, 408), ("shares", form, 408)] {
        let sent = request(Method::POST, &format!("{path}/{what}")).header(header::CONTENT_TYPE, kind);
        let answer = server.send(sent.body(dripping(b"title=a")).unwrap()).await.expect(status);
        assert!(answer.text().contains("<h1>The request stopped arriving</h1>"), "{}", answer.text());
    }
    let sent = request(Method::PATCH, &format!("/api/v1{path}")).header(header::CONTENT_TYPE, "application/json");
    assert_eq!(server.send(sent.body(dripping(b"{")).unwrap()).await.problem(408), "/problems/too-slow");

    let long = format!("title={}", "x".repeat(70_000));
    let answer = server.form(&format!("{path}/title"), &long).await.expect(413);
    assert!(answer.text().contains("64 KiB in all"), "{}", answer.text());
    let json = serde_json::json!({ "title": "x".repeat(70_000) });
    assert_eq!(
        server.call(Method::PATCH, &format!("/api/v1{path}"), json).await.problem(413),
        "/problems/request-too-large"
    );
    assert_eq!(server.get(&format!("/api/v1{path}")).await.json()["title"], run["title"], "nothing was changed");
    server.form(&format!("{path}/title"), "title=Night+run").await.expect(303);
}

#[tokio::test]
async fn wrong_values_in_an_address_are_explained_and_people_get_a_page() {
    let server = Server::start().await;
    let run = server.run_from_data().await;
    let path = format!("/runs/{}", run["id"].as_str().unwrap());
    let made =
        server.call(Method::POST, &format!("/api/v1{path}/shares"), serde_json::json!({})).await.expect(201).json();
    let share = made["url"].as_str().unwrap().split_once("/r/").unwrap().1.to_owned();
    let share = format!("/r/{share}");
    for address in [
        format!("{path}?version=-1"),
        format!("{path}?version=1.5"),
        format!("/api/v1{path}/report.html?version=-1"),
        format!("/api/v1{path}/report.md?version=99999999999"),
        format!("/api/v1{path}/charts/imbalance.svg?width=wide"),
        format!("/api/v1{path}/charts/imbalance.png?theme=pink"),
        format!("/api/v1{path}/series?from=x"),
        "/api/v1/runs?limit=-5".to_owned(),
        "/api/v1/compare?base=1".to_owned(),
        format!("{share}/charts/imbalance.svg?width=-1"),
        format!("{share}/series?points=many"),
    ] {
        let opened = request(Method::GET, &address).header(header::ACCEPT, "text/html,application/xhtml+xml,*/*;q=0.8");
        let answer = server.send(opened.body(Body::empty()).unwrap()).await;
        assert!(answer.status.is_client_error(), "{address}: {}", answer.status);
        assert!(answer.header(header::CONTENT_TYPE).starts_with("text/html"), "{address}");
        let text = answer.text();
        assert!(text.contains("<h1>") && text.contains("class=\"button\""), "{address}: {text}");
        assert!(!text.to_lowercase().contains("deserialize"), "{address}: {text}");
        // Programs get the problem, in the same words.
        let answer = server.get(&address).await;
        if !address.starts_with(&path) {
            assert_eq!(answer.header(header::CONTENT_TYPE), "application/problem+json", "{address}");
            assert!(!answer.text().to_lowercase().contains("deserialize"), "{address}: {}", answer.text());
        }
    }
    // On pages an odd value is no error where the usual one can stand in.
    for address in [
        format!("{path}?all=-1&peaks=-1"),
        format!("{path}/snapshots?rank=-1&sort=-1&at=-1"),
        "/compare?base=&head=-1".into(),
        "/?q=%00".into(),
        share,
    ] {
        server.get(&address).await.expect(200);
    }
}
