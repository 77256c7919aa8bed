//! Live data over HTTP: what is accepted and what is not, how nodes are seen, and how a job becomes a run by itself.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

mod common;

use axum::{
    body::Body,
    http::{Method, header},
};
use common::{
    Answer, Server,
    live::{Agent, batch, gzip, memory, nobody, node, now, ranks, used},
    request,
};
use futures_util::StreamExt;
use rankscope::{limits::Limits, live::LiveOptions};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SECOND: i64 = 1_000_000;
const JOB: &str = "slurm:4711";

async fn send(server: &Server, body: Vec<u8>, encoding: Option<&str>, token: Option<&str>) -> Answer {
    let mut request = request(Method::POST, "/api/v1/samples").header(header::CONTENT_TYPE, "application/x-ndjson");
    if let Some(encoding) = encoding {
        request = request.header(header::CONTENT_ENCODING, encoding);
    }
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    server.send(request.body(body.into()).unwrap()).await
}

async fn plain(server: &Server, text: &str) -> Answer {
    send(server, text.as_bytes().to_vec(), None, None).await
}

async fn acknowledged(server: &Server, text: &str) -> Value {
    send(server, gzip(text), Some("gzip"), None).await.expect(200).json()["acknowledged"].clone()
}

async fn nodes(server: &Server) -> Value {
    server.get("/api/v1/nodes").await.expect(200).json()["nodes"].clone()
}

/// Asks until the answer is as wanted.
async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(30) {
        if let Some(found) = ask().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what} did not come")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_twice_counts_once_and_gaps_are_told() {
    let server = Server::live(LiveOptions::default()).await;
    let t = now();
    let lines = |from: u64, to: u64| -> Vec<(i64, Value)> {
        (from..=to).map(|n| (t + i64::try_from(n).unwrap(), memory(&[n + 1]))).collect()
    };
    assert_eq!(acknowledged(&server, &batch("s", "a", 0, &lines(0, 4))).await, 4);
    assert_eq!(acknowledged(&server, &batch("s", "a", 0, &lines(0, 4))).await, 4, "the same again");
    assert_eq!(acknowledged(&server, &batch("s", "a", 3, &lines(3, 7))).await, 7, "some of it again");
    assert_eq!(acknowledged(&server, &batch("s", "a", 1, &lines(1, 2))).await, 7, "an old one late");
    let gap = plain(&server, &batch("s", "a", 10, &lines(10, 11))).await.expect(409);
    assert_eq!(gap.json(), json!({"acknowledged": 7}));
    let mut explained = vec![(t + 20, json!({"type": "dropped", "first": 8, "last": 9, "samples": 70}))];
    explained.extend(lines(11, 12));
    assert_eq!(acknowledged(&server, &batch("s", "a", 10, &explained)).await, 12);
    assert_eq!(acknowledged(&server, &batch("other", "b", 5, &lines(5, 5))).await, 5, "a source may begin anywhere");
    let seen = nodes(&server).await;
    assert_eq!(seen[0]["devices"][0]["used"], 13 << 20);
    assert!(seen[0]["notes"].to_string().contains("2 lines (70 samples) were lost"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_after_a_restart_and_counts_once() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "gpu-a");
    let t = now();
    let first = agent.batch(&[(t, node(2)), (t, memory(&[500, 700])), (t, ranks(2, 400, None, JOB))]);
    assert_eq!(acknowledged(&server, &first).await, 2);
    let before = nodes(&server).await;
    let server = server.restart().await;
    let after = nodes(&server).await;
    for (before, after) in [(&before[0]["devices"], &after[0]["devices"]), (&before[0]["node"], &after[0]["node"])] {
        assert_eq!(before, after);
    }
    assert_eq!(acknowledged(&server, &first).await, 2);
    assert_eq!(acknowledged(&server, &agent.batch(&[(t + SECOND, memory(&[1, 2]))])).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_may_not_send() {
    let server =
        Server::live(LiveOptions { token: Some("a-token-of-some-length".into()), ..LiveOptions::default() }).await;
    let text = || gzip(&batch("s", "a", 0, &[(now(), memory(&[1]))]));
    assert_eq!(send(&server, text(), Some("gzip"), None).await.problem(401), "/problems/token-missing");
    assert_eq!(send(&server, text(), Some("gzip"), Some("another")).await.problem(401), "/problems/token-missing");
    send(&server, text(), Some("gzip"), Some("a-token-of-some-length")).await.expect(200);

    let server = Server::live(LiveOptions::default()).await;
    let from = |peer: &'static str, forwarded: bool| {
        let mut request = request(Method::POST, "/api/v1/samples").header(header::CONTENT_ENCODING, "gzip");
        if forwarded {
            request = request.header("x-forwarded-for", "10.0.0.9");
        }
        let mut request = request.body(Body::from(text())).unwrap();
        request.extensions_mut().insert(rankscope::listener::Peer(peer.parse().unwrap()));
        request
    };
    server.send(from("127.0.0.1:5", false)).await.expect(200);
    server.send(from("[::ffff:127.0.0.1]:5", false)).await.expect(200);
    assert_eq!(server.send(from("10.0.0.9:5", false)).await.problem(403), "/problems/sender-not-allowed");
    assert_eq!(server.send(from("127.0.0.1:5", true)).await.problem(403), "/problems/sender-not-allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_bodies_are_refused_and_leave_nothing() {
    let server = Server::live(LiveOptions::default()).await;
    let t = now();
    let good = batch("s", "a", 0, &[(t, memory(&[1]))]);
    let bomb = gzip(&format!("{good}{}", " ".repeat(64 << 20)));
    assert!(bomb.len() < 1 << 20);
    assert_eq!(send(&server, bomb, Some("gzip"), None).await.problem(413), "/problems/request-too-large");
    assert_eq!(send(&server, vec![b' '; 5 << 20], None, None).await.problem(413), "/problems/request-too-large");
    let torn = gzip(&good);
    send(&server, torn[..torn.len() - 9].to_vec(), Some("gzip"), None).await.problem(400);
    send(&server, good.as_bytes().to_vec(), Some("br"), None).await.problem(415);
    let many = batch("s", "a", 0, &vec![(t, json!({"type": "end"})); 20_001]);
    assert_eq!(plain(&server, &many).await.problem(413), "/problems/request-too-large");
    for wrong in [
        String::new(),
        "\n\n".into(),
        "[1]".into(),
        "{\"type\":\"start\"}".into(),
        good.replace("rankscope.live/1", "rankscope.live/2"),
        good.replace("\"node\":\"a\"", "\"node\":\"\""),
        good.replace("\"source\":\"s\"", "\"source\":\"\""),
        good.replace("\"source\":\"s\"", &format!("\"source\":\"{}\"", "x".repeat(300))),
        good.replace("\"source\":\"s\"", "\"source\":\"a\\u0000b\""),
        good.replace("\"last\":0", "\"last\":7"),
        good.replace("\"seq\":0", "\"seq\":1"),
        good.replace("\"seq\":0", "\"seq\":-1"),
        good.replace("\"dt_us\":[0]", "\"dt_us\":[-1]"),
        good.replace("\"dt_us\":[0]", "\"dt_us\":\"soon\""),
        good.replace("[1048576]", "[1.5]"),
        format!("{good}{}\n", "[".repeat(100_000)),
    ] {
        plain(&server, &wrong).await.problem(400);
    }
    assert_eq!(nodes(&server).await, json!([]));
    assert_eq!(acknowledged(&server, &good).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_agent_has_to_say_is_refused_by_the_field() {
    let server = Server::live(LiveOptions::default()).await;
    let t = now();
    let card = |n: u64| json!({"device": n});
    let columns = |count: u64| (0..count).map(|n| json!({"subject": card(n), "used": [1]})).collect::<Vec<_>>();
    let of_rank = |more: Value| {
        let mut rank = json!({"rank": 0, "world_size": 2, "job": JOB});
        rank.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"type": "processes", "listing": "listed", "processes": [{"subject": card(0), "pid": 7, "rank": rank}]})
    };
    let long = "x".repeat(5000);
    let pid = |n: u64| json!({"subject": card(0), "pid": n});
    let cases = [
        (
            json!({"type": "memory", "dt_us": [0], "devices": [{"subject": card(4_294_967_295), "used": [1]}]}),
            "device is 4294967295; at most 1023",
        ),
        (
            json!({"type": "memory", "dt_us": [0, 1], "devices": [{"subject": card(0), "used": [1]}]}),
            "used of GPU 0 has 1 entries, and dt_us 2",
        ),
        (
            json!({"type": "memory", "dt_us": [], "devices": [{"subject": card(0), "used": [1]}]}),
            "used of GPU 0 has 1 entries, and dt_us 0",
        ),
        (json!({"type": "memory", "dt_us": [5, 1], "devices": []}), "dt_us falls"),
        (json!({"type": "memory", "dt_us": [u32::MAX], "devices": []}), "dt_us reaches 4294967295"),
        (json!({"type": "memory", "dt_us": vec![0; 20_000], "devices": []}), "dt_us has 20000 entries; at most 16384"),
        (json!({"type": "memory", "dt_us": [0], "devices": columns(3000)}), "devices has 3000 entries; at most 512"),
        (
            json!({"type": "memory", "dt_us": [0], "devices": [{"subject": {"rank": 0}, "used": [1]}]}),
            "the subject is a rank",
        ),
        (
            json!({"type": "node", "devices": (0..600).map(|n| json!({"subject": card(n)})).collect::<Vec<_>>()}),
            "devices has 600 entries",
        ),
        (json!({"type": "node", "devices": [{"subject": card(0), "name": long}]}), "name has 5000 bytes; at most 256"),
        (json!({"type": "node", "host": long}), "host has 5000 bytes"),
        (json!({"type": "node", "warnings": vec!["w"; 900]}), "warnings has 900 entries"),
        (of_rank(json!({"job": long})), "job has 5000 bytes; at most 512"),
        (of_rank(json!({"visible_devices": long})), "visible_devices has 5000 bytes; at most 4096"),
        (
            json!({"type": "processes", "listing": "listed", "processes": (0..5000).map(pid).collect::<Vec<_>>()}),
            "processes has 5000 entries; at most 4096",
        ),
        (json!({"type": "state", "subject": card(9999), "state": "lost"}), "device is 9999"),
        (json!({"type": "state", "state": "xid", "detail": long}), "detail has 5000 bytes; at most 4096"),
        (
            json!({"type": "health", "devices": [{"subject": card(0), "throttle": vec!["t"; 300]}]}),
            "throttle has 300 entries",
        ),
    ];
    for (record, said) in cases {
        let answer = plain(&server, &batch("s", "a", 0, &[(t, record)])).await.expect(400);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(said) && detail.contains("seq 0"), "{said} is not in {detail}");
    }
    let line = json!({"type": "start", "seq": 0, "x": "y".repeat(600 << 10)});
    let head = json!({"type": "batch", "format": "rankscope.probe/1", "source": "p", "rank": 0, "first": 0, "last": 0});
    let answer = plain(&server, &format!("{head}\n{line}\n")).await.expect(400).text();
    assert!(answer.contains("at most 524288"), "{answer}");
    assert_eq!(nodes(&server).await, json!([]));

    // What is long and may be is kept short.
    let name = "n".repeat(256);
    let many: Vec<Value> = (0..512).map(|n| json!({"subject": card(n), "name": name, "total": 1})).collect();
    let most = batch(
        "s",
        "a",
        0,
        &[(t, json!({"type": "node", "host": "h", "devices": many, "warnings": vec!["w".repeat(4000); 256]}))],
    );
    assert_eq!(acknowledged(&server, &most).await, 0);
    assert!(nodes(&server).await.to_string().len() < 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_has_one_node() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "gpu-a");
    acknowledged(&server, &agent.batch(&healthy(now()))).await;
    agent.node = "gpu-b".into();
    let moved = agent.batch(&[(now(), memory(&[1]))]);
    let said = plain(&server, &moved).await.expect(400).json()["detail"].as_str().unwrap().to_owned();
    assert!(said.contains("The field node") && said.contains("gpu-a"), "{said}");
    let server = server.restart().await;
    plain(&server, &moved).await.problem(400);
    let seen = nodes(&server).await;
    assert_eq!((seen.as_array().unwrap().len(), &seen[0]["node"]), (1, &json!("gpu-a")));
    acknowledged(&server, &moved.replace("gpu-b", "gpu-a")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_clocks_and_later_types_do_no_lasting_harm() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "a");
    let devices: Vec<Value> = (0..2).map(|n| json!({"subject": {"device": n}, "total": 80u64 << 30})).collect();
    let odd = agent.batch(&[
        (now(), json!({"type": "node", "host": "\u{202e}<b>", "devices": devices})),
        (now(), json!({"type": "weather", "sunny": true})),
        (now() + 3600 * SECOND, memory(&[8])),
    ]);
    assert_eq!(acknowledged(&server, &odd).await, 2);
    assert!(nodes(&server).await[0]["notes"].to_string().contains("ahead of this server's"));
    let page = server.get("/live").await.expect(200).text();
    assert!(!page.contains("<b>") && page.contains("GPU 1"));
    assert_eq!(acknowledged(&server, &agent.batch(&[(now(), memory(&[9]))])).await, 3);
    let seen = nodes(&server).await;
    assert_eq!(seen[0]["devices"][0]["used"], 9 << 20);
    assert!(seen[0].get("notes").is_none(), "the clock is right again: {seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_that_cannot_be_is_left_out_and_told_and_its_batch_is_kept() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "a");
    let card = |n: u64| json!({"device": n});
    let devices: Vec<Value> = (0..2).map(|n| json!({"subject": card(n), "total": 80u64 << 30})).collect();
    let used = |of: Vec<(u64, u64)>| {
        let columns: Vec<Value> = of.iter().map(|(n, used)| json!({"subject": card(*n), "used": [used]})).collect();
        json!({"type": "memory", "dt_us": [0], "devices": columns})
    };
    let rank = json!({"rank": 5, "world_size": 2, "job": JOB});
    let list = json!({"type": "processes", "listing": "listed",
        "processes": [{"subject": card(0), "pid": 7, "used": 1, "rank": rank}]});
    let records = [
        (now(), json!({"type": "node", "host": "a", "devices": devices})),
        (now(), used(vec![(0, 3 << 30), (1, 90 << 30)])),
        (now(), used(vec![(0, 4 << 30), (0, 5 << 30)])),
        // Of no time, and one that the driver gives where it has no figure.
        (0, used(vec![(0, 70 << 30)])),
        (now(), used(vec![(1, u64::MAX)])),
        (now(), list),
        (now(), used(vec![(0, 6 << 30)])),
    ];
    assert_eq!(acknowledged(&server, &agent.batch(&records)).await, 6);
    let seen = nodes(&server).await;
    let device = |n: usize| &seen[0]["devices"][n];
    assert_eq!((&device(0)["used"], device(1).get("used")), (&json!(6u64 << 30), None), "{seen}");
    let process = &device(0)["processes"][0];
    assert_eq!((&process["pid"], process.get("rank")), (&json!(7), None), "it is there, and nobody's rank");
    let notes = seen[0]["notes"].to_string();
    for said in [
        "2 readings were refused as impossible (more than there can be)",
        "GPU 0 stood twice in one line",
        "days before this server's",
        "PID 7 is rank 5 of a job of 2",
    ] {
        assert!(notes.contains(said), "{said}: {notes}");
    }
    let metrics = server.get("/metrics").await.expect(200).text();
    assert!(metrics.contains("rankscope_live_impossible_readings_total 5"), "{metrics}");
    assert!(server.get("/live").await.expect(200).text().contains("refused as impossible"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_for_good_is_removed_and_stays_so_over_a_restart() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agents = [Agent::new("s-a", "gpu/a"), Agent::new("s-b", "gpu-b")];
    for agent in &mut agents {
        acknowledged(&server, &agent.batch(&healthy(now()))).await;
    }
    let remove = async |server: &Server, node: &str| {
        server.call(Method::POST, "/api/v1/nodes/remove", json!({ "node": node })).await
    };
    assert!(remove(&server, "gpu/a").await.expect(409).text().contains("still-speaks"));
    remove(&server, "nobody").await.expect(404);
    assert!(!server.get("/live").await.expect(200).text().contains("node-remove"), "both speak");
    let mut events = server.stream("/api/v1/live/events").await;
    acknowledged(&server, &agents[0].batch(&[(now(), json!({"type": "end"}))])).await;
    let page = server.get("/live").await.expect(200).text();
    assert!(page.contains(r#"action="/live/nodes/remove""#) && page.contains(r#"value="gpu/a""#), "{page}");
    let answer = server.form("/live/nodes/remove", "node=gpu%2Fa").await.expect(303);
    assert_eq!(answer.header(header::LOCATION), "/live");
    let names = async |server: &Server| -> Vec<String> {
        let nodes = nodes(server).await;
        nodes.as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&server).await, ["gpu-b"]);
    let told = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            let chunk = events.next().await.unwrap().unwrap();
            if String::from_utf8_lossy(&chunk).contains(r#"{"node":"gpu/a","gone":true}"#) {
                return;
            }
        }
    });
    told.await.expect("pages that show it are told");
    drop(events);

    let server = server.restart().await;
    assert_eq!(names(&server).await, ["gpu-b"], "the log still holds what it sent");
    let mut again = Agent::new("s-c", "gpu/a");
    acknowledged(&server, &again.batch(&healthy(now()))).await;
    assert_eq!(names(&server).await, ["gpu-b", "gpu/a"]);
    let server = server.restart().await;
    assert_eq!(names(&server).await, ["gpu-b", "gpu/a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_a_gpu_is_in_the_run_and_on_its_card() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "gpu-a");
    let t = now() - 30 * SECOND;
    let state =
        |kind: &str, detail: &str| json!({"type": "state", "subject": {"device": 3}, "state": kind, "detail": detail});
    let mut records = healthy(t);
    for n in 1..4 {
        let own = 60_000 + 1000 * u64::try_from(n).unwrap();
        records.push((t + n * SECOND, memory(&used(8, own, None))));
        records.push((t + n * SECOND, ranks(8, own, None, JOB)));
    }
    acknowledged(&server, &agent.batch(&records)).await;
    let run = eventually("the run", async || {
        let runs = server.get("/api/v1/runs").await.json();
        runs["runs"].get(0).and_then(|run| run["id"].as_str().map(ToOwned::to_owned))
    })
    .await;
    let mut events = server.stream(&format!("/api/v1/runs/{run}/live")).await;
    acknowledged(
        &server,
        &agent.batch(&[
            (t + 4 * SECOND, state("xid", "Xid 79 on GPU 3.")),
            (t + 5 * SECOND, state("lost", "GPU 3 is lost: the GPU has fallen off the bus.")),
        ]),
    )
    .await;
    let path = format!("/api/v1/runs/{run}");
    let told =
        eventually("the events", async || server.get(&path).await.json()["diagnosis"].get("events").cloned()).await;
    assert_eq!((&told[0]["at"], &told[0]["kind"]), (&json!(t + 4 * SECOND), &json!("xid")));
    assert_eq!((&told[1]["kind"], &told[1]["evidence"]["artifact"]), (&json!("lost"), &json!("gpu-a.live.jsonl")));
    let report = server.get(&format!("{path}/report.json")).await.expect(200).json();
    let marks = report["figures"]["timeline"]["marks"].as_array().cloned().unwrap_or_default();
    assert!(marks.iter().any(|mark| mark["text"] == "GPU 3 lost"), "{marks:?}");
    let page = server.get(&format!("/runs/{run}")).await.expect(200).text();
    assert!(page.contains("What happened") && page.contains("fallen off the bus"));
    let markdown = server.get(&format!("{path}/report.md")).await.expect(200).text();
    assert!(markdown.contains("## What happened") && markdown.contains("Xid 79 on GPU 3"), "{markdown}");
    // It is a notice in the browsers that watch the run.
    loop {
        let chunk = tokio::time::timeout(Duration::from_secs(20), events.next()).await.unwrap().unwrap().unwrap();
        if String::from_utf8_lossy(&chunk).contains("\"text\":\"GPU 3 is lost") {
            break;
        }
    }
    let card = nodes(&server).await[0]["devices"][3].clone();
    assert_eq!(
        (&card["state"], &card["state_since"], card.get("used")),
        (&json!("lost"), &json!(t + 5 * SECOND), None)
    );
    assert_eq!(card["last_used"], 63_480u64 << 20);
    let live = server.get("/live").await.expect(200).text();
    assert!(live.contains("gpu-since") && live.contains("; last "), "{live:.6000}");
}

/// Eight healthy ranks; later seven contexts on GPU 0.
fn healthy(t: i64) -> Vec<(i64, Value)> {
    vec![(t, node(8)), (t, memory(&used(8, 60_000, None))), (t, ranks(8, 60_000, None, JOB))]
}

fn leaking(t: i64) -> Vec<(i64, Value)> {
    vec![(t, memory(&used(8, 60_000, Some(530)))), (t, ranks(8, 60_000, Some(530), JOB))]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_becomes_a_run_by_itself_and_the_finding_comes_by_itself() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "gpu-a");
    let t = now() - 20 * SECOND;
    acknowledged(&server, &agent.batch(&healthy(t))).await;
    let run = eventually("the run", async || {
        let runs = server.get("/api/v1/runs").await.json();
        runs["runs"].get(0).cloned()
    })
    .await;
    assert_eq!((&run["title"], &run["verdict"]), (&json!("Slurm job 4711 on gpu-a"), &json!("balanced")));
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    let page = format!("/runs/{}", run["id"].as_str().unwrap());
    eventually("the way from the node to the run", async || {
        (nodes(&server).await[0]["runs"][0]["id"] == run["id"]).then_some(())
    })
    .await;
    assert!(server.get("/live").await.text().contains(&page));
    assert!(server.get(&page).await.expect(200).text().contains("The job is running"));

    // The browser that listens is told.
    let events = server.stream(&format!("{path}/live")).await;
    let heard = tokio::spawn(async move {
        let mut events = events;
        let mut text = String::new();
        while let Some(Ok(chunk)) = events.next().await {
            text.push_str(&String::from_utf8_lossy(&chunk));
            if text.contains("\"ended\":true") {
                break;
            }
        }
        text
    });
    acknowledged(&server, &agent.batch(&leaking(t + 5 * SECOND))).await;
    let answer = eventually("the finding", async || {
        let answer = server.get(&path).await.expect(200).json();
        (answer["diagnosis"]["verdict"] == "imbalance").then_some(answer)
    })
    .await;
    assert_eq!(answer["version"], 2, "another verdict is another version");
    let claims = answer["diagnosis"]["findings"].to_string();
    assert!(claims.contains("Seven processes"), "{claims}");
    let item =
        answer["diagnosis"]["checklist"].as_array().unwrap().iter().find(|entry| entry["item"] == "device_visibility");
    assert_eq!(item.unwrap()["status"], "fail");
    // What a finding quotes can be opened: it is a line of the record.
    let evidence = &answer["diagnosis"]["causes"][0]["evidence"][0];
    assert_eq!(evidence["artifact"], "gpu-a.live.jsonl");
    let record = server.get(&format!("{path}/artifacts/0")).await.expect(200).text();
    let line = usize::try_from(evidence["line"].as_u64().unwrap()).unwrap();
    assert!(record.lines().nth(line - 1).unwrap().contains("\"pid\":400"), "{evidence}");

    // The record read as a file says the same.
    let again = server.upload("/api/v1/runs", &[("files", Some("gpu-a.live.jsonl"), record.as_bytes())]).await;
    assert_eq!(again.expect(201).json()["verdict"], "imbalance");

    // More of the same makes no further version; the end makes the last one.
    acknowledged(&server, &agent.batch(&leaking(t + 6 * SECOND))).await;
    acknowledged(&server, &agent.batch(&[(t + 7 * SECOND, nobody())])).await;
    acknowledged(&server, &agent.batch(&[(t + 40 * SECOND, nobody())])).await;
    let heard = tokio::time::timeout(Duration::from_secs(30), heard).await.unwrap().unwrap();
    assert!(heard.contains("event: run") && heard.contains("Seven processes"), "{heard}");
    let ended = server.get(&path).await.expect(200).json();
    assert_eq!((&ended["version"], &ended["diagnosis"]["verdict"]), (&json!(2), &json!("imbalance")));
    let late = server.get(&format!("{path}/live")).await.expect(200).text();
    assert!(late.contains("\"ended\":true"), "{late}");
    server.get("/api/v1/runs/none/live").await.problem(404);
    assert!(!server.get(&page).await.text().contains("The job is running"));
    // It is still led to, as one that has ended.
    let left = nodes(&server).await;
    let led_to = &left[0]["runs"][0];
    assert!(led_to["id"].is_string() && led_to["ended"].is_number(), "{led_to}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_over_a_restart_and_uploads_join_it() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "gpu-a");
    let t = now() - 20 * SECOND;
    acknowledged(&server, &agent.batch(&healthy(t))).await;
    let id = async |server: &Server| {
        eventually("the run", async || {
            let runs = server.get("/api/v1/runs").await.json();
            runs["runs"].get(0).and_then(|run| run["id"].as_str().map(ToOwned::to_owned))
        })
        .await
    };
    let run = id(&server).await;
    let server = server.restart().await;
    assert_eq!(id(&server).await, run);
    let path = format!("/api/v1/runs/{run}");
    let script = common::data("train.py");
    server.upload(&format!("{path}/files"), &[("files", Some("train.py"), &script)]).await.expect(201);
    acknowledged(&server, &agent.batch(&leaking(t + 5 * SECOND))).await;
    let answer = eventually("the finding", async || {
        let answer = server.get(&path).await.expect(200).json();
        (answer["diagnosis"]["verdict"] == "imbalance").then_some(answer)
    })
    .await;
    let names: Vec<&str> = answer["diagnosis"]["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["gpu-a.live.jsonl", "train.py"]);
    assert_eq!(server.get("/api/v1/runs").await.json()["runs"].as_array().unwrap().len(), 1);

    // Who deletes it is not given it back.
    server.send(request(Method::DELETE, &path).body(Body::empty()).unwrap()).await.expect(204);
    acknowledged(&server, &agent.batch(&healthy(t + 8 * SECOND))).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(server.get("/api/v1/runs").await.json()["runs"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_become_part_of_the_run_of_their_job() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "gpu-a");
    acknowledged(&server, &agent.batch(&healthy(now() - 20 * SECOND))).await;
    for rank in 0..2 {
        let start = json!({"type": "start", "seq": 0, "t": 1, "format": "rankscope.probe/1", "rank": rank, "job": "4711",
            "host": "gpu-a", "pid": 4000 + rank, "world_size": 8});
        let head = json!({"type": "batch", "format": "rankscope.probe/1", "source": format!("4711/gpu-a/{rank}/1"), "rank": rank, "first": 0, "last": 0});
        acknowledged(&server, &format!("{head}\n{start}\n")).await;
    }
    let files = eventually("the probes' files", async || {
        let run = server.get("/api/v1/runs").await.json()["runs"].get(0)?["id"].as_str()?.to_owned();
        let answer = server.get(&format!("/api/v1/runs/{run}")).await.json();
        let files = answer["files"].as_array()?.clone();
        (files.len() == 3).then_some(files)
    })
    .await;
    let names: Vec<&str> = files.iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["gpu-a.live.jsonl", "rankscope_4711_rank0.jsonl", "rankscope_4711_rank1.jsonl"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_are_told_what_changes_and_come_back_where_they_were() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "gpu-a");
    let mut events = server.stream("/api/v1/live/events").await;
    let mut next = async || {
        loop {
            let chunk = tokio::time::timeout(Duration::from_secs(10), events.next()).await.unwrap().unwrap().unwrap();
            let text = String::from_utf8_lossy(&chunk).into_owned();
            if !text.starts_with(':') {
                let id = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
                let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
                return (id, serde_json::from_str::<Value>(data).unwrap());
            }
        }
    };
    assert_eq!(next().await.1, json!([]), "how it is now comes first");
    let t = now();
    acknowledged(&server, &agent.batch(&healthy(t))).await;
    let sent = Instant::now();
    let (id, whole) = next().await;
    assert!(sent.elapsed() < Duration::from_secs(1), "{:?}", sent.elapsed());
    let html = whole[0]["html"].as_str().unwrap();
    assert!(html.contains("GPU 7") && html.contains("rank 7") && !html.contains("<script"));
    acknowledged(&server, &agent.batch(&[(t + SECOND, memory(&used(8, 61_000, None)))])).await;
    loop {
        // The run's name may come between.
        let (_, figures) = next().await;
        if figures[0].get("html").is_none() {
            assert_eq!(figures[0]["gpus"][3]["u"], 61_480u64 << 20);
            break;
        }
    }
    // A browser that was away for a while gets what it missed, once, as it is now.
    let mut back = server.stream(&format!("/api/v1/live/events?since={id}")).await;
    let chunk = back.next().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&chunk).contains("gpu-a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_takes_nothing_holds_nobody_back() {
    let server = Server::live(LiveOptions::default()).await;
    let _stuck = server.stream("/api/v1/live/events").await;
    let mut agent = Agent::new("s", "gpu-a");
    let t = now();
    for n in 0..200 {
        acknowledged(&server, &agent.batch(&[(t + n, memory(&[u64::try_from(n).unwrap()]))])).await;
    }
    let mut other = server.stream("/api/v1/live/events").await;
    let chunk = tokio::time::timeout(Duration::from_secs(5), other.next()).await.unwrap().unwrap().unwrap();
    assert!(String::from_utf8_lossy(&chunk).contains("199 MiB"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_live_data_the_rest_works() {
    let server = Server::start_with(Limits::default()).await;
    plain(&server, &batch("s", "a", 0, &[(now(), memory(&[1]))])).await.problem(503);
    let page = server.get("/live").await.expect(200).text();
    assert!(page.contains("rankscope agent --server http://127.0.0.1:3000"));
}

/// Ten samples a second of two cards; card 0 stands `high` for one sample, in the middle of second `spike`.
fn at_full_rate(t: i64, seconds: i64, spike: i64) -> Vec<(i64, Value)> {
    let mut records = vec![(t, node(2)), (t, ranks(2, 20_000, None, JOB))];
    for second in 0..seconds {
        let used = |card: i64, sample: i64| {
            let mib = if (card, second, sample) == (0, spike, 5) { 31_000 } else { 20_480 };
            u64::try_from(mib).unwrap() << 20
        };
        let column = |card: i64| {
            let used: Vec<u64> = (0..10).map(|sample| used(card, sample)).collect();
            json!({"subject": {"device": card}, "used": used})
        };
        let dt: Vec<i64> = (0..10).map(|sample| sample * 100_000).collect();
        let at = t + second * SECOND;
        records.push((at, json!({"type": "memory", "dt_us": dt, "devices": [column(0), column(1)]})));
        records.push((at + 550_000, ranks(2, 20_000, None, JOB)));
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn zooming_into_a_live_run_reads_every_sample_again_also_after_a_restart() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "gpu-a");
    let t = now() / SECOND * SECOND - 300 * SECOND;
    let text = agent.batch(&at_full_rate(t, 240, 100));
    acknowledged(&server, &text).await;
    // Another node's samples of the same cards are none of this run's.
    let mut other = Agent::new("o", "gpu-b");
    acknowledged(&server, &other.batch(&[(t + 100 * SECOND, node(2)), (t + 101 * SECOND, memory(&[70_000, 70_000]))]))
        .await;
    let path = eventually("the run", async || {
        let runs = server.get("/api/v1/runs").await.json();
        runs["runs"].get(0).map(|run| format!("/api/v1/runs/{}", run["id"].as_str().unwrap()))
    })
    .await;
    let server = server.restart().await;
    let columns = async |query: &str| {
        let answer = server.get(&format!("{path}/series{query}")).await.expect(200).json();
        assert_eq!((&answer["quantity"], &answer["axis"]), (&json!("device_used"), &json!("unix_micros")));
        answer["columns"].as_array().unwrap().clone()
    };
    let whole = columns("?points=10000").await;
    assert!(whole[0]["x"].as_array().unwrap().len() < 1000, "the whole run is reduced");
    let window = format!("?from={}&to={}&points=10000", t + 95 * SECOND, t + 105 * SECOND);
    let zoomed = columns(&window).await;
    assert_eq!(zoomed.len(), 2);
    let x: Vec<i64> = zoomed[0]["x"].as_array().unwrap().iter().map(|x| x.as_i64().unwrap()).collect();
    assert_eq!(x, (0..=100).map(|sample| t + 95 * SECOND + sample * 100_000).collect::<Vec<_>>());
    let y: Vec<u64> = zoomed[0]["y"].as_array().unwrap().iter().map(|y| y.as_u64().unwrap() >> 20).collect();
    assert_eq!((y[54], y[55], y[56]), (20_480, 31_000, 20_480));
    let drawn = server.get(&format!("{path}/charts/timeline.svg{window}&width=640").replace("&points=10000", "")).await;
    assert!(drawn.expect(200).text().starts_with("<svg"));
    let followed = server.get(&format!("{path}/charts/timeline.svg?last=10&width=640")).await.expect(200).text();
    let end = t + 240 * SECOND - 100_000;
    for edge in [format!("data-x-min=\"{}\"", end - 10 * SECOND), format!("data-x-max=\"{end}\"")] {
        assert!(followed.contains(&edge), "{edge}: {followed:.600}");
    }
    // Who has a share of the run sees what was frozen, and nothing else of the node.
    let share = server.call(Method::POST, &format!("{path}/shares"), json!({})).await.expect(201).json();
    let shared = server.get(&format!("{}/series{window}", share["url"].as_str().unwrap())).await.expect(200).json();
    assert!(shared["columns"][0]["x"].as_array().unwrap().len() < 20, "{shared}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_splits_its_process_in_the_composition_of_a_live_run() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "gpu-a");
    let t = now() - 20 * SECOND;
    acknowledged(&server, &agent.batch(&leaking(t))).await;
    let head = json!({"type": "batch", "format": "rankscope.probe/1", "source": "4711/gpu-a/0/1", "rank": 0, "first": 0, "last": 1});
    let start = json!({"type": "start", "seq": 0, "t": t - SECOND, "format": "rankscope.probe/1", "rank": 0, "job": "4711",
        "host": "gpu-a", "pid": 4000, "world_size": 8});
    let mem = json!({"device": 0, "allocated": 50_000 * (1u64 << 20), "reserved": 55_000 * (1u64 << 20)});
    let step = json!({"type": "step", "seq": 1, "t": t + SECOND, "n": 1, "step": 7, "phase": "train", "done": true, "mem": mem});
    acknowledged(&server, &format!("{head}\n{start}\n{step}\n")).await;
    let parts = eventually("the split card", async || {
        let run = server.get("/api/v1/runs").await.json()["runs"].get(0)?["id"].as_str()?.to_owned();
        let report = server.get(&format!("/api/v1/runs/{run}/report.json")).await.expect(200).json();
        let cards = report["figures"]["composition"].as_array()?.clone();
        let card = cards.into_iter().find(|card| card["subject"] == json!({"device": 0}))?;
        let parts: Vec<(String, u64)> = card["parts"]
            .as_array()?
            .iter()
            .map(|part| (part["kind"].as_str().unwrap().to_owned(), part["bytes"].as_u64().unwrap() >> 20))
            .collect();
        parts.iter().any(|(kind, _)| kind == "allocated").then_some(parts)
    })
    .await;
    let part = |kind: &str| parts.iter().find(|(known, _)| known == kind).map(|(_, mib)| *mib);
    assert_eq!(
        (part("allocated"), part("cached"), part("outside_pytorch"), part("other_ranks")),
        (Some(50_000), Some(5_000), Some(5_000), Some(7 * 530)),
        "{parts:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_tell_what_came_and_who_watches() {
    let server = Server::live(LiveOptions::default()).await;
    let metric = async |name: &str| -> u64 {
        let text = server.get("/metrics").await.expect(200).text();
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).rsplit(' ').next().unwrap().parse().unwrap()
    };
    let mut agent = Agent::new("s", "gpu-a");
    let t = now();
    let text = agent.batch(&[(t, node(2)), (t, memory(&[1, 2])), (t, memory(&[1, 2]))]);
    acknowledged(&server, &text).await;
    acknowledged(&server, &text).await;
    plain(&server, &batch("s", "gpu-a", 90, &[(t, memory(&[1]))])).await.expect(409);
    plain(&server, "nonsense").await.expect(400);
    let dropped = json!({"type": "dropped", "first": 3, "last": 9, "samples": 40});
    acknowledged(&server, &batch("s", "gpu-a", 9, &[(t, dropped)])).await;
    for (name, value) in [
        ("rankscope_live_batches_total", 2),
        ("rankscope_live_lines_total", 4),
        ("rankscope_live_samples_total", 4),
        ("rankscope_live_duplicate_batches_total", 1),
        ("rankscope_live_duplicate_lines_total", 3),
        ("rankscope_live_gaps_total", 1),
        ("rankscope_live_refused_total", 1),
        ("rankscope_live_dropped_lines_total", 7),
        ("rankscope_live_dropped_samples_total", 40),
        ("rankscope_live_nodes_connected", 1),
        ("rankscope_live_acknowledge_seconds_count", 3),
        ("rankscope_live_watchers", 0),
    ] {
        assert_eq!(metric(name).await, value, "{name}");
    }
    let stream = server.stream("/api/v1/live/events").await;
    assert_eq!(metric("rankscope_live_watchers").await, 1);
    drop(stream);
    assert_eq!(metric("rankscope_live_watchers").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_node_says_nothing_any_more_says_so_and_goes_on() {
    let server = Server::live(LiveOptions::default()).await;
    let mut agent = Agent::new("s", "gpu-a");
    acknowledged(&server, &agent.batch(&healthy(now() - 20 * SECOND))).await;
    let run = eventually("the run", async || {
        let runs = server.get("/api/v1/runs").await.json();
        runs["runs"].get(0).and_then(|run| run["id"].as_str().map(ToOwned::to_owned))
    })
    .await;
    let path = format!("/api/v1/runs/{run}");
    let mut events = server.stream(&format!("{path}/live")).await;
    let standing = eventually("its standing", async || {
        let live = server.get(&path).await.json()["live"].clone();
        (live["nodes"] == 1).then_some(live)
    })
    .await;
    assert!(standing.get("silent").is_none(), "{standing}");
    acknowledged(&server, &agent.batch(&[(now(), json!({"type": "end"}))])).await;
    let silent =
        eventually("the silence", async || server.get(&path).await.json()["live"].get("silent").cloned()).await;
    assert_eq!((&silent[0]["node"], silent.as_array().unwrap().len()), (&json!("gpu-a"), 1));
    let page = server.get(&format!("/runs/{run}")).await.expect(200).text();
    assert!(page.contains("No word from gpu-a since ") && !page.contains("The job is running"), "{page:.3000}");
    loop {
        let chunk = tokio::time::timeout(Duration::from_secs(10), events.next()).await.unwrap().unwrap().unwrap();
        if String::from_utf8_lossy(&chunk).contains("\"word\":\"No word from gpu-a since ") {
            break;
        }
    }
    // It speaks again.
    let mut again = Agent::new("s2", "gpu-a");
    acknowledged(&server, &again.batch(&healthy(now()))).await;
    eventually("the word", async || server.get(&path).await.json()["live"].get("silent").is_none().then_some(())).await;
    let page = server.get(&format!("/runs/{run}")).await.expect(200).text();
    assert!(page.contains("The job is running"));
}
