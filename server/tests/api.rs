//! The API as a program uses it: upload, read, add, share, revoke, delete.

mod common;

use axum::http::{Method, header};
use common::{Part, Server, data};
use serde_json::json;

#[tokio::test]
async fn a_run_goes_from_upload_to_a_revoked_link() {
    let server = Server::start().await;
    let made = server.run_from_data().await;
    let id = made["id"].as_str().unwrap();
    assert_eq!(made["url"], format!("/runs/{id}"));
    assert_eq!(made["title"], "nvidia-smi.txt and 1 more file");
    assert_eq!(made["verdict"], "imbalance");
    assert_eq!(made["artifacts"][0]["kind"], "nvidia_smi");

    let run = server.get(&format!("/api/v1/runs/{id}")).await.expect(200).json();
    assert_eq!(run["diagnosis"]["format"], "rankscope.diagnosis/1");
    let first = run["diagnosis"]["causes"][0]["label"].as_str().unwrap();
    assert!(["ctx_no_set_device", "ckpt_no_map_location"].contains(&first), "{first}");
    assert_eq!(run["files"][1]["name"], "train.py");
    assert_eq!(run["files"][1]["artifacts"], json!([1]));

    let share = server.call(Method::POST, &format!("/api/v1/runs/{id}/shares"), json!({ "expires_in": 3600 })).await;
    let share = share.expect(201).json();
    let url = share["url"].as_str().unwrap();
    let page = server.get(url).await.expect(200);
    assert_eq!(page.header(header::REFERRER_POLICY), "no-referrer");
    assert_eq!(page.header(header::CACHE_CONTROL), "no-store");
    assert!(page.text().contains("og:image"));
    let preview = server.get(&format!("{url}/preview.png")).await.expect(200);
    assert!(preview.body.starts_with(b"\x89PNG"));
    server.get(&format!("{url}/charts/imbalance.svg")).await.expect(200);

    // A link shows one version, and none of the owner's addresses.
    server
        .upload(&format!("/api/v1/runs/{id}/files"), &[("files", Some("train.log"), &data("train.log"))])
        .await
        .expect(201);
    assert!(!server.get(url).await.text().contains("train.log"));
    assert!(!page.text().contains(&format!("/runs/{id}")));

    let shares = server.get(&format!("/api/v1/runs/{id}/shares")).await.expect(200);
    assert!(!shares.text().contains(url.trim_start_matches("/r/")));
    server
        .call(Method::DELETE, &format!("/api/v1/shares/{}", share["id"].as_str().unwrap()), json!({}))
        .await
        .expect(204);
    server.get(url).await.expect(410);
    for rest in ["preview.png", "series", "charts/imbalance.svg"] {
        assert_eq!(server.get(&format!("{url}/{rest}")).await.problem(410), "/problems/share-ended");
    }
    server.get("/r/guess").await.expect(404);
    assert_eq!(server.get("/r/guess/preview.png").await.problem(404), "/problems/not-found");

    server.call(Method::DELETE, &format!("/api/v1/runs/{id}"), json!({})).await.expect(204);
    server.get(&format!("/api/v1/runs/{id}")).await.problem(404);
    server.get(url).await.expect(404);
}

#[tokio::test]
async fn added_evidence_makes_a_new_version_and_the_old_one_stays() {
    let server = Server::start().await;
    let made = server.run_from_data().await;
    let id = made["id"].as_str().unwrap();
    let log = data("train.log");
    let added =
        server.upload(&format!("/api/v1/runs/{id}/files"), &[("files", Some("train.log"), &log)]).await.expect(201);
    assert_eq!(added.json()["version"], 2);
    assert_eq!(added.json()["artifacts"].as_array().unwrap().len(), 1);

    let newest = server.get(&format!("/api/v1/runs/{id}")).await.expect(200).json();
    let first = server.get(&format!("/api/v1/runs/{id}?version=1")).await.expect(200).json();
    assert_eq!((newest["version"].as_u64(), first["version"].as_u64()), (Some(2), Some(1)));
    assert_eq!(newest["diagnosis"]["artifacts"].as_array().unwrap().len(), 3);
    assert_eq!(first["diagnosis"]["artifacts"].as_array().unwrap().len(), 2);
    assert_eq!(first["files"].as_array().unwrap().len(), 2);
    server.get(&format!("/api/v1/runs/{id}?version=3")).await.problem(404);

    let raw = server.get(&format!("/api/v1/runs/{id}/artifacts/2")).await.expect(200);
    assert_eq!(raw.body, log);
    assert_eq!(
        raw.header(header::CONTENT_DISPOSITION),
        "attachment; filename=\"train.log\"; filename*=UTF-8''train.log"
    );
    assert_eq!(raw.header(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
    server.get(&format!("/api/v1/runs/{id}/artifacts/3")).await.problem(404);
}

#[tokio::test]
async fn series_and_charts_can_be_cut_to_a_window() {
    let server = Server::start().await;
    let log = data("train.log");
    let made = server.upload("/api/v1/runs", &[("files", Some("train.log"), &log)]).await.expect(201).json();
    let root = format!("/api/v1/runs/{}", made["id"].as_str().unwrap());

    let whole = server.get(&format!("{root}/series")).await.expect(200).json();
    assert_eq!(whole["axis"], "step");
    assert_eq!(whole["columns"].as_array().unwrap().len(), 4);
    assert_eq!(whole["columns"][0]["subject"], json!({ "rank": 0 }));
    assert_eq!(whole["columns"][0]["label"], "rank 0");
    assert_eq!(whole["columns"][0]["x"].as_array().unwrap().len(), 40);

    let cut = server.get(&format!("{root}/series?quantity=peak_allocated&from=11&to=12")).await.expect(200).json();
    let mib = 1_u64 << 20;
    assert_eq!(cut["columns"][0]["x"], json!([11, 12]));
    assert_eq!(cut["columns"][0]["y"], json!([20480 * mib, (20480 + 6144) * mib]));
    server.get(&format!("{root}/series?quantity=requested")).await.problem(404);
    assert_eq!(server.get(&format!("{root}/series?quantity=weight")).await.problem(400), "/problems/invalid-request");

    let svg = server.get(&format!("{root}/charts/timeline.svg?from=10&to=20&width=400&theme=dark")).await.expect(200);
    assert_eq!(svg.header(header::CONTENT_TYPE), "image/svg+xml");
    assert!(svg.text().starts_with("<svg"));
    let png = server.get(&format!("{root}/charts/imbalance.png")).await.expect(200);
    assert!(png.body.starts_with(b"\x89PNG"));
    for wrong in ["timeline.gif", "timeline.svg?width=1", "timeline.svg?from=x"] {
        assert!(server.get(&format!("{root}/charts/{wrong}")).await.status.is_client_error(), "{wrong}");
    }
    server.get(&format!("{root}/charts/timeline.svg?from=1000")).await.problem(404);
}

#[tokio::test]
async fn reports_are_exported_in_three_forms() {
    let server = Server::start().await;
    let made = server.run_from_data().await;
    let root = format!("/api/v1/runs/{}", made["id"].as_str().unwrap());
    let html = server.get(&format!("{root}/report.html")).await.expect(200).text();
    assert!(html.starts_with("<!DOCTYPE html>") && !html.contains("<script") && !html.contains("/style.css"));
    let markdown = server.get(&format!("{root}/report.md")).await.expect(200);
    assert_eq!(markdown.header(header::CONTENT_TYPE), "text/markdown; charset=utf-8");
    assert!(markdown.text().contains("## Causes"));
    let report = server.get(&format!("{root}/report.json")).await.expect(200).json();
    assert_eq!(report["version"], 1);
    assert!(report["figures"]["peaks"].is_object());
}

#[tokio::test]
async fn runs_are_listed_searched_and_renamed() {
    let server = Server::start().await;
    let smi = data("nvidia-smi.txt");
    let parts: [Part<'_>; 2] = [("title", None, "Llama 70B".as_bytes()), ("files", Some("a.txt"), &smi)];
    let made = server.upload("/api/v1/runs", &parts).await.expect(201).json();
    let path = format!("/api/v1/runs/{}", made["id"].as_str().unwrap());
    let found = server.get("/api/v1/runs?query=llama").await.expect(200).json();
    assert_eq!(found["runs"][0]["title"], "Llama 70B");
    assert_eq!(found["runs"][0]["artifacts"], 1);
    server.call(Method::PATCH, &path, json!({ "title": " Mixtral\n" })).await.expect(204);
    assert_eq!(server.get(&path).await.json()["title"], "Mixtral");
    assert_eq!(server.get("/api/v1/runs?query=llama").await.json()["runs"], json!([]));
    assert_eq!(
        server.call(Method::PATCH, &path, json!({ "title": " " })).await.problem(400),
        "/problems/invalid-request"
    );
    assert_eq!(server.call(Method::PATCH, &path, json!({})).await.problem(400), "/problems/invalid-request");
    server.call(Method::PATCH, "/api/v1/runs/none", json!({ "title": "x" })).await.problem(404);
}

#[tokio::test]
async fn the_answer_to_an_upload_keeps_its_shape() {
    let server = Server::start().await;
    let mut made = server.upload("/api/v1/runs", &[("text", None, b"nothing of interest")]).await.expect(201).json();
    made["id"] = json!("[id]");
    made["url"] = json!("[url]");
    made["summary"] = json!("[summary]");
    made["artifacts"][0]["warnings"] = json!("[warnings]");
    insta::assert_json_snapshot!(made);
}

#[tokio::test]
async fn every_address_of_the_api_is_described_and_answers() {
    let server = Server::start().await;
    let description = server.get("/api/openapi.json").await.expect(200).json();
    let paths = description["paths"].as_object().unwrap();
    let mut described: Vec<String> = Vec::new();
    for (path, operations) in paths {
        for method in operations.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            described.push(format!("{} {path}", method.to_uppercase()));
        }
    }
    described.sort();
    insta::assert_json_snapshot!("described_routes", described);

    // What is described exists: the answer may be a refusal, but not of the address or the method.
    for route in &described {
        let (method, path) = route.split_once(' ').unwrap();
        let path = path.replace("snapshots/charts/{chart}", "snapshots/charts/segments.svg");
        let path = path.replace("{id}", "none").replace("{n}", "0").replace("{chart}", "timeline.svg");
        let answer = server.call(method.parse().unwrap(), &format!("/api/v1{path}"), json!({})).await;
        assert_ne!(answer.status.as_u16(), 405, "{route}");
        if answer.status.as_u16() == 404 {
            assert!(answer.json()["detail"].as_str().unwrap().starts_with("No run"), "{route}");
        }
    }
    // And nothing else: methods that are not described are refused.
    for (path, method) in
        [("/runs/none", Method::PUT), ("/runs/none/series", Method::POST), ("/shares/none", Method::GET)]
    {
        let answer = server.call(method, &format!("/api/v1{path}"), json!({})).await;
        assert_eq!(answer.problem(405), "/problems/method-not-allowed");
    }
    server.get("/api/v1/nothing").await.problem(404);
    server.get("/api/v2/runs").await.problem(404);
}

#[tokio::test]
async fn the_server_tells_how_it_is() {
    let server = Server::start().await;
    server.run_from_data().await;
    server.get("/healthz").await.expect(200);
    server.get("/readyz").await.expect(200);
    let metrics = server.get("/metrics").await.expect(200).text();
    for line in [
        "rankscope_uploads_total 1",
        "rankscope_upload_files_total 2",
        "rankscope_diagnoses_total 1",
        "rankscope_read_seconds_count 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    assert!(server.get("/problems/not-found").await.expect(200).text().contains("404"));
}
