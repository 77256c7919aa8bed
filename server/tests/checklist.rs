//! The guided checklist over a real store: notes, evidence dropped into an item, the run after the fix, and the
//! comparison, with forms and with the API.

mod common;

use axum::{
    body::Body,
    http::{Method, header},
};
use common::{Part, Server, data, request};
use rankscope::limits::Limits;
use serde_json::json;

/// The table of the same job with every process bound to its own card.
fn bound_table() -> Vec<u8> {
    let table = String::from_utf8_lossy(&data("nvidia-smi.txt")).into_owned();
    let strays = ["7102", "7103", "7104"].map(|pid| format!("|    0   N/A  N/A      {pid}"));
    let lines = table.lines().filter(|line| !strays.iter().any(|stray| line.starts_with(stray)));
    let table: String = lines.flat_map(|line| [line, "\n"]).collect();
    table.replace("25322MiB", "23831MiB").replace("09:12:30", "11:40:02").into_bytes()
}

#[tokio::test]
async fn notes_grow_beside_the_machines_view() {
    let server = Server::start().await;
    let id = server.run_from_data().await["id"].as_str().unwrap().to_owned();
    let api = format!("/api/v1/runs/{id}/checklist/device_visibility");
    let item = server.get(&api).await.expect(200).json();
    assert_eq!(item["machine"]["status"], "fail");
    assert!(!item["findings"].as_array().unwrap().is_empty());
    assert_eq!((&item["own"], &item["notes"]), (&json!(null), &json!([])));
    assert_eq!(item["url"], format!("/runs/{id}/checklist/environment#item-device_visibility"));

    let made = server.call(Method::POST, &api, json!({ "status": "fails", "note": "seen", "author": "Ada" })).await;
    assert_eq!(made.expect(201).json()["status"], "fails");
    server.call(Method::POST, &api, json!({ "note": "more words" })).await.expect(201);
    let form = "status=mended&note=set_device+added%0D%0Ain+train.py&author=%E5%BC%A0%E4%BC%9F";
    let saved = server.form(&format!("/runs/{id}/checklist/device_visibility/notes"), form).await.expect(303);
    assert_eq!(saved.header(header::LOCATION), format!("/runs/{id}/checklist/environment#item-device_visibility"));
    let cookie = saved.header(header::SET_COOKIE).split(';').next().unwrap().to_owned();

    let item = server.get(&api).await.expect(200).json();
    assert_eq!(item["machine"]["status"], "fail", "people stand beside the machine");
    assert_eq!((&item["own"]["status"], &item["own"]["author"]), (&json!("mended"), &json!("张伟")));
    let notes: Vec<&str> = item["notes"].as_array().unwrap().iter().map(|n| n["note"].as_str().unwrap()).collect();
    assert_eq!(notes, ["seen", "more words", "set_device added\nin train.py"]);

    let page = format!("/runs/{id}/checklist/environment");
    let with_name = request(Method::GET, &page).header(header::COOKIE, cookie).body(Body::empty()).unwrap();
    let html = server.send(with_name).await.expect(200).text();
    for words in ["mended, proof to come", "more words", "value=\"张伟\"", "torch.cuda.set_device"] {
        assert!(html.contains(words), "{words}");
    }
    // A share shows the report as it was: no notes, no forms.
    let share = server.call(Method::POST, &format!("/api/v1/runs/{id}/shares"), json!({})).await.json();
    let shared = server.get(share["url"].as_str().unwrap()).await.expect(200).text();
    assert!(!shared.contains("more words") && !shared.contains("<form") && !shared.contains("/checklist"));
}

#[tokio::test]
async fn notes_have_limits_and_are_kept_from_other_sites() {
    let limits = Limits { max_note_chars: 50, max_author_chars: 10, max_notes: 2, ..Limits::default() };
    let server = Server::start_with(limits).await;
    let id = server.run_from_data().await["id"].as_str().unwrap().to_owned();
    let api = format!("/api/v1/runs/{id}/checklist/distributed_sampler");
    for (body, words) in [
        (json!({ "note": "x".repeat(51) }), "50 characters"),
        (json!({ "note": "x", "author": "y".repeat(11) }), "10 characters"),
        (json!({ "status": "fixed" }), "mended"),
        (json!({ "note": " \n " }), "Choose a status"),
    ] {
        let refused = server.call(Method::POST, &api, body).await.expect(400);
        assert!(refused.text().contains(words), "{words}: {}", refused.text());
    }
    for path in [format!("/api/v1/runs/{id}/checklist/nothing"), "/api/v1/runs/none/checklist/verified".to_owned()] {
        server.get(&path).await.problem(404);
        server.call(Method::POST, &path, json!({ "note": "x" })).await.problem(404);
    }
    let forged = request(Method::POST, &format!("/runs/{id}/checklist/verified/notes"))
        .header(header::ORIGIN, "http://evil.example")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body("note=x".into())
        .unwrap();
    server.send(forged).await.expect(403);
    for _ in 0..2 {
        server.call(Method::POST, &api, json!({ "note": "x" })).await.expect(201);
    }
    assert!(server.call(Method::POST, &api, json!({ "note": "x" })).await.expect(400).text().contains("at most 2"));
    let refused = server.form(&format!("/runs/{id}/checklist/verified/notes"), "note=").await.expect(400);
    assert!(refused.text().contains("<h1"), "a person gets a page");
}

#[tokio::test]
async fn evidence_dropped_into_an_item_renews_it_and_leads_back() {
    let server = Server::start().await;
    let smi = data("nvidia-smi.txt");
    let made = server.upload("/api/v1/runs", &[("files", Some("nvidia-smi.txt"), &smi)]).await.expect(201).json();
    let page = made["url"].as_str().unwrap().to_owned();
    assert!(
        server
            .get(&format!("{page}/checklist/data"))
            .await
            .expect(200)
            .text()
            .contains("The files say nothing of it yet.")
    );
    let log = data("train.log");
    let added =
        server.upload(&format!("{page}/files?item=batch_divisibility"), &[("text", None, &log)]).await.expect(303);
    assert_eq!(added.header(header::LOCATION), format!("{page}/checklist/data#item-batch_divisibility"));
    let id = made["id"].as_str().unwrap();
    let item = server.get(&format!("/api/v1/runs/{id}/checklist/batch_divisibility")).await.json();
    assert_ne!(item["machine"]["status"], "unknown");
    assert_eq!(item["version"], 2);
    // Only items lead somewhere else.
    let parts: [Part<'_>; 1] = [("text", None, b"words")];
    let stray = server.upload(&format!("{page}/files?item=https://evil.example"), &parts).await.expect(303);
    assert_eq!(stray.header(header::LOCATION), page);
    // The old diagnosis stays readable and says which it is.
    let old = server.get(&format!("{page}?version=1")).await.expect(200).text();
    assert!(old.contains("This is diagnosis 1 of 3") && !old.contains("pasted.txt"));
    server.get(&format!("{page}?version=9")).await.expect(404);
}

#[tokio::test]
async fn the_run_after_the_fix_proves_it() {
    let server = Server::start().await;
    let base = server.run_from_data().await["id"].as_str().unwrap().to_owned();
    let verified = format!("/api/v1/runs/{base}/checklist/verified");
    assert_eq!(server.get(&verified).await.json()["machine"]["status"], "unknown");
    let first = server.get(&format!("/runs/{base}/checklist")).await.expect(303);
    assert!(first.header(header::LOCATION).starts_with(&format!("/runs/{base}/checklist/")));

    let after = bound_table();
    let sent = server
        .upload(&format!("/runs/{base}/after/files"), &[("files", Some("nvidia-smi-after.txt"), &after)])
        .await
        .expect(303);
    let page = sent.header(header::LOCATION).to_owned();
    assert_eq!(page, format!("/runs/{base}/checklist/verify"));
    let html = server.get(&page).await.expect(200).text();
    assert!(html.contains("Fixed: GPU 0 was"), "{html}");
    let item = server.get(&verified).await.expect(200).json();
    assert_eq!(item["machine"]["status"], "pass");
    assert!(item["findings"][0]["claim"].as_str().unwrap().starts_with("Fixed"));
    let runs = server.get("/api/v1/runs").await.json();
    assert!(runs["runs"][0]["title"].as_str().unwrap().ends_with(", after the fix"));
    let head = runs["runs"][0]["id"].as_str().unwrap().to_owned();

    let compared = server.get(&format!("/api/v1/compare?base={base}&head={head}")).await.expect(200).json();
    assert_eq!(compared["comparison"]["format"], "rankscope.comparison/1");
    assert_eq!(compared["comparison"]["outcome"], "fixed");
    assert_eq!(compared["comparison"]["rows"].as_array().unwrap().len(), 4);
    let shown = server.get(compared["url"].as_str().unwrap()).await.expect(200).text();
    assert!(shown.contains("no longer stands out"));
    let back = server.get(&format!("/api/v1/compare?base={head}&head={base}")).await.expect(200).json();
    assert_eq!(back["comparison"]["outcome"], "not_fixed", "the other way round it is worse");
    let old = server.get(&format!("/api/v1/compare?base={base}&head={base}&head_version=1")).await.expect(200).json();
    assert_eq!(old["comparison"]["outcome"], "not_fixed");

    // Another run may be named instead: by id, or by the address of one of its pages.
    let named = format!("address=http%3A%2F%2F127.0.0.1%3A3000%2Fruns%2F{head}%3Fversion%3D1");
    server.form(&format!("/runs/{base}/after"), &named).await.expect(303);
    server.call(Method::POST, &format!("/api/v1/runs/{base}/after"), json!({ "run": head })).await.expect(204);
    for (run, status) in [(base.as_str(), 400), ("", 400), ("none", 404)] {
        server.call(Method::POST, &format!("/api/v1/runs/{base}/after"), json!({ "run": run })).await.problem(status);
    }
    for query in ["", "?base=x", "?base=none&head=none"] {
        let answer = server.get(&format!("/api/v1/compare{query}")).await;
        assert!([400, 404].contains(&answer.status.as_u16()), "{query}");
    }
    // Through the API, as the page's island sends it.
    let parts: [Part<'_>; 1] = [("files", Some("nvidia-smi-after.txt"), &after)];
    let sent = server.upload(&format!("/api/v1/runs/{base}/after/files"), &parts).await.expect(201).json();
    assert_eq!(sent["url"], page);
    server.upload("/api/v1/runs/none/after/files", &parts).await.problem(404);

    server.call(Method::DELETE, &format!("/api/v1/runs/{head}"), json!({})).await.expect(204);
    server.get(&page).await.expect(200);
}
