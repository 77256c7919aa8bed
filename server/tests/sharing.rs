//! What a share asks for and what it leaves out: password, masking, files, and when it was last opened.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

mod common;

use axum::{
    body::Body,
    http::{Method, header},
};
use common::{Answer, Server, data, request};
use serde_json::{Value, json};

async fn share(server: &Server, id: &str, options: Value) -> Value {
    server.call(Method::POST, &format!("/api/v1/runs/{id}/shares"), options).await.expect(201).json()
}

fn url(share: &Value) -> &str {
    share["url"].as_str().unwrap()
}

async fn with_cookie(server: &Server, path: &str, cookie: &str) -> Answer {
    server.send(request(Method::GET, path).header(header::COOKIE, cookie).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn a_password_stands_before_everything_that_a_link_opens() {
    let server = Server::start().await;
    let made = server.run_from_data().await;
    let id = made["id"].as_str().unwrap();
    let link = share(&server, id, json!({ "password": "correct horse" })).await;
    let url = url(&link);

    let page = server.get(url).await.expect(401);
    assert!(page.text().contains("asks for a password") && !page.text().contains("nvidia-smi.txt"));
    // Its form must be able to name its origin; the token still reaches no other site.
    assert_eq!(page.header(header::REFERRER_POLICY), "same-origin");
    for rest in ["preview.png", "series", "charts/imbalance.svg", "artifacts/0"] {
        assert_eq!(server.get(&format!("{url}/{rest}")).await.problem(401), "/problems/share-locked", "{rest}");
    }

    let wrong = server.form(&format!("{url}/unlock"), "password=wrong+horse").await.expect(303);
    assert_eq!(wrong.header(header::LOCATION), format!("{url}?wrong=1"));
    assert!(server.get(&format!("{url}?wrong=1")).await.text().contains("That was not the password"));

    let right = server.form(&format!("{url}/unlock"), "password=correct+horse").await.expect(303);
    assert_eq!(right.header(header::LOCATION), url);
    let cookie = right.header(header::SET_COOKIE);
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax") && cookie.contains(&format!("Path={url}")));
    let cookie = cookie.split(';').next().unwrap();
    assert!(with_cookie(&server, url, cookie).await.expect(200).text().contains("nvidia-smi.txt"));
    with_cookie(&server, &format!("{url}/charts/imbalance.svg"), cookie).await.expect(200);
    with_cookie(&server, url, "rankscope_unlocked=0000").await.expect(401);

    // The proof of one share opens no other.
    let other = share(&server, id, json!({ "password": "correct horse" })).await;
    with_cookie(&server, other["url"].as_str().unwrap(), cookie).await.expect(401);
    let short = server.call(Method::POST, &format!("/api/v1/runs/{id}/shares"), json!({ "password": "x" })).await;
    assert_eq!(short.problem(400), "/problems/invalid-request");
}

#[tokio::test]
async fn guessing_is_paused() {
    let server = Server::start().await;
    let made = server.run_from_data().await;
    let link = share(&server, made["id"].as_str().unwrap(), json!({ "password": "correct horse" })).await;
    let unlock = format!("{}/unlock", url(&link));
    for _ in 0..10 {
        server.form(&unlock, "password=guess1").await.expect(303);
    }
    server.form(&unlock, "password=correct+horse").await.expect(429);
}

#[tokio::test]
async fn a_masked_share_names_no_machine_and_no_person() {
    let server = Server::start().await;
    let script = b"# ada@gpu-07.example.org\nimport torch\nck = torch.load('/home/ada/secret/ck.pt')\n".as_slice();
    let smi = data("nvidia-smi.txt");
    let log = b"File \"/home/ada/secret/train.py\", line 9, in main\nworker-12:881:902 [0] NCCL INFO ready\n\
        torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 31.75 GiB \
        of which 1.00 GiB is free. host=gpu-07.example.org\n"
        .as_slice();
    let parts = [
        ("title", None, b"of ada on gpu-07.example.org".as_slice()),
        ("files", Some("nvidia-smi.txt"), smi.as_slice()),
        ("files", Some("train.py"), script),
        ("files", Some("run.log"), log),
    ];
    let made = server.upload("/api/v1/runs", &parts).await.expect(201).json();
    let id = made["id"].as_str().unwrap();
    assert!(server.get(&format!("/runs/{id}")).await.text().contains("gpu-07.example.org"));
    let link = share(&server, id, json!({ "masked": true })).await;
    let page = server.get(url(&link)).await.expect(200).text();
    assert!(page.contains("user-1") && page.contains("host-") && page.contains("names masked"));
    let both = json!({ "masked": true, "raw_files": true });
    let refused = server.call(Method::POST, &format!("/api/v1/runs/{id}/shares"), both).await;
    assert_eq!(refused.problem(400), "/problems/invalid-request");
}

/// A tar archive of one file.
fn tar(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut head = [0u8; 512];
    head[..name.len()].copy_from_slice(name.as_bytes());
    head[100..107].copy_from_slice(b"0000644");
    head[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    head[148..156].fill(b' ');
    head[156] = b'0';
    head[257..263].copy_from_slice(b"ustar\0");
    head[263..265].copy_from_slice(b"00");
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut all = [head.as_slice(), bytes].concat();
    all.resize(all.len().next_multiple_of(512) + 1024, 0);
    all
}

/// Who and where: user, other user, node, cluster, project.
type Who = [&'static str; 5];

/// A run in which names stand everywhere where they can.
async fn run_of(server: &Server, [user, other, node, cluster, project]: Who) -> String {
    let smi = String::from_utf8(data("nvidia-smi.txt")).unwrap();
    let smi = smi.replacen(" /opt/venv/bin/python ", &format!(" /home/{user}/env/bin/python "), 1);
    let smi = smi.replacen(" /opt/venv/bin/python ", &format!(" {other}_serve "), 1);
    let script = format!(
        "# {user}@{node}.{cluster}.org\nimport torch\nck = torch.load('/data/{project}-v2/{user}.ckpt')\n\
         model = torch.nn.Linear(4, 4).cuda()\n"
    );
    let log = format!(
        "  File \"/mnt/{project}/My Runs/{other}_{project}.py\", line 9, in main\n{node}:881:902 [0] NCCL INFO ready\n\
         torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 31.75 GiB \
         of which 1.00 GiB is free. Process 4711 has 28.00 GiB memory in use. host={node}.{cluster}.org\n"
    );
    let steps: String = (0..4)
        .flat_map(|step| (0..2).map(move |rank| format!("rank={rank} step={step} peak={}MB\n", 9000 + 6000 * rank)))
        .collect();
    let packed = tar(&format!("{project}/{user}-{node}.log"), steps.as_bytes());
    let title = format!("{user}-{}.LOG and {project}_x", node.to_uppercase());
    let (bag, smi_name, script_name, log_name) = (
        format!("{other}.{project}.tar"),
        format!("{}_{node}-nvidia-smi.txt", user.to_uppercase()),
        format!("{other}/{user}_train.py"),
        format!("{user}-{node}.log"),
    );
    let parts = [
        ("title", None, title.as_bytes()),
        ("files", Some(smi_name.as_str()), smi.as_bytes()),
        ("files", Some(script_name.as_str()), script.as_bytes()),
        ("files", Some(log_name.as_str()), log.as_bytes()),
        ("files", Some(bag.as_str()), packed.as_slice()),
    ];
    server.upload("/api/v1/runs", &parts).await.expect(201).json()["id"].as_str().unwrap().to_owned()
}

/// Every answer that a share gives, and what its report is as a file, each with its address.
async fn opened(server: &Server, url: &str) -> Vec<(String, String)> {
    let charts = ["timeline", "heatmap", "imbalance", "scatter", "composition"];
    let charts = charts.iter().flat_map(|chart| {
        [format!("/charts/{chart}.svg"), format!("/charts/{chart}.png"), format!("/charts/{chart}.svg?from=1&to=2")]
    });
    let others = ["", "?all=1", "/series", "/artifacts/0", "/snapshots", "/charts/none.svg"].map(str::to_owned);
    let mut texts = Vec::new();
    for path in others.into_iter().chain(charts) {
        let answer = server.get(&format!("{url}{path}")).await;
        texts.push((path, format!("{:?} {}", answer.headers, answer.text())));
    }
    let (_, report) = server.service.shared_report(url.trim_start_matches("/r/"), None).await.unwrap();
    texts.push(("json".into(), serde_json::to_string(&report).unwrap()));
    texts.push(("md".into(), rankscope::render::markdown(&report)));
    texts.push(("html".into(), rankscope_app::standalone_report_html(&report)));
    texts
}

#[tokio::test]
async fn nothing_that_a_masked_share_opens_names_a_person_a_machine_or_a_path() {
    let server = Server::start().await;
    let people: [Who; 2] =
        [["alice", "müller", "dgx07", "acmecorp", "zetaproj"], ["berta", "nørens", "dgx31", "bakecorp", "zimtproj"]];
    let mut pictures = Vec::new();
    for names in people {
        let id = run_of(&server, names).await;
        let own = server.get(&format!("/runs/{id}?all=1")).await.expect(200).text().to_lowercase();
        for name in names {
            assert!(own.contains(name), "{name} is not in the report, so its absence from the share shows nothing");
        }
        let link = share(&server, &id, json!({ "masked": true })).await;
        let texts = opened(&server, url(&link)).await;
        for (path, text) in &texts {
            let text = text.to_lowercase();
            for gone in names.iter().chain(&["/home/", "my runs", "/mnt/"]) {
                let around = text.split_once(gone).map(|(before, after)| {
                    let before: String = before.chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
                    format!("{before}>{gone}<{}", after.chars().take(60).collect::<String>())
                });
                assert_eq!(around, None, "at {path}");
            }
        }
        let page = &texts.iter().find(|(path, _)| path.is_empty()).unwrap().1;
        assert!(page.contains("file-1.txt") && page.contains("og:title"));
        pictures.push(server.get(&format!("{}/preview.png", url(&link))).await.expect(200).body);
    }
    // Pictures have no words to look for. Other names, the same picture: none of them is in it.
    assert_eq!(pictures[0], pictures[1]);
}

#[tokio::test]
async fn files_are_shared_only_where_that_was_decided_and_only_of_the_frozen_version() {
    let server = Server::start().await;
    let made = server.run_from_data().await;
    let id = made["id"].as_str().unwrap();
    let (bare, full) = (share(&server, id, json!({})).await, share(&server, id, json!({ "raw_files": true })).await);
    server
        .upload(&format!("/api/v1/runs/{id}/files"), &[("files", Some("train.log"), &data("train.log"))])
        .await
        .expect(201);

    assert!(!server.get(url(&bare)).await.text().contains("/artifacts/"));
    server.get(&format!("{}/artifacts/0", url(&bare))).await.problem(404);
    assert!(server.get(url(&full)).await.text().contains(&format!("{}/artifacts/1", url(&full))));
    assert_eq!(server.get(&format!("{}/artifacts/1", url(&full))).await.expect(200).body, data("train.py"));
    server.get(&format!("{}/artifacts/2", url(&full))).await.problem(404);
}

#[tokio::test]
async fn the_list_says_what_was_decided_and_when_a_link_was_opened() {
    let server = Server::start().await;
    let made = server.run_from_data().await;
    let id = made["id"].as_str().unwrap();
    // The form without JavaScript.
    let form = "expires_in=86400&password=correct+horse&masked=1";
    server.form(&format!("/runs/{id}/shares"), form).await.expect(303);
    let open = share(&server, id, json!({})).await;
    let list = |answer: Answer| answer.expect(200).json()["shares"].clone();
    let shares = list(server.get(&format!("/api/v1/runs/{id}/shares")).await);
    assert_eq!((&shares[1]["password"], &shares[1]["masked"]), (&json!(true), &json!(true)));
    assert_eq!(shares[0]["last_seen_at"], json!(null));
    assert!(!shares.to_string().contains("argon2"));
    server.get(url(&open)).await.expect(200);
    let shares = list(server.get(&format!("/api/v1/runs/{id}/shares")).await);
    assert!(shares[0]["last_seen_at"].is_i64());
    let page = server.get(&format!("/runs/{id}")).await.expect(200).text();
    assert!(page.contains("never opened") && page.contains("last opened") && page.contains("asks for a password"));
}

#[tokio::test]
async fn a_run_is_renamed_and_deleted_with_forms_alone() {
    let server = Server::start().await;
    let made = server.run_from_data().await;
    let id = made["id"].as_str().unwrap();
    server.form(&format!("/runs/{id}/title"), "title=Night+run").await.expect(303);
    let page = server.get(&format!("/runs/{id}")).await.expect(200).text();
    assert!(page.contains("Night run") && page.contains(&format!("/runs/{id}/delete")));
    server.form(&format!("/runs/{id}/title"), "title=+").await.expect(400);

    let asked = server.get(&format!("/runs/{id}/delete")).await.expect(200).text();
    assert!(asked.contains("cannot be undone") && asked.contains("2 files"));
    server.get(&format!("/runs/{id}")).await.expect(200);
    let gone = server.form(&format!("/runs/{id}/delete"), "").await.expect(303);
    assert_eq!(gone.header(header::LOCATION), "/#runs");
    server.get(&format!("/runs/{id}")).await.expect(404);
}
