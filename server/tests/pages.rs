//! Pages and forms as a browser without JavaScript uses them, and what keeps other sites out.

mod common;

use axum::{
    body::Body,
    http::{Method, header},
};
use common::{Part, Server, data, multipart, multipart_type, request};

#[tokio::test]
async fn the_whole_story_works_with_forms_alone() {
    let server = Server::start().await;
    assert!(server.get("/").await.expect(200).text().contains("type=\"file\""));
    let smi = data("nvidia-smi.txt");
    let parts: [Part<'_>; 3] =
        [("title", None, b"My run"), ("files", Some("nvidia-smi.txt"), &smi), ("text", None, b"pasted words")];
    let made = server.upload("/runs", &parts).await.expect(303);
    let page = made.header(header::LOCATION).to_owned();
    let report = server.get(&page).await.expect(200);
    assert!(report.text().contains("My run") && report.text().contains("pasted.txt"));
    assert!(server.get("/").await.text().contains("My run"));

    let added = server.upload(&format!("{page}/files"), &[("files", Some("train.py"), &data("train.py"))]).await;
    assert_eq!(added.expect(303).header(header::LOCATION), page);
    assert!(server.get(&page).await.text().contains("train.py"));

    let shared = server.form(&format!("{page}/shares"), "expires_in=604800").await.expect(303);
    assert_eq!(shared.header(header::LOCATION), format!("{page}#share"));
    let cookie = shared.header(header::SET_COOKIE);
    for word in ["HttpOnly", "SameSite=Strict", &format!("Path={page}"), "Max-Age=300"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    let pair = cookie.split(';').next().unwrap().to_owned();
    let (id, token) = pair.split_once('=').unwrap().1.split_once('.').unwrap();
    // The link is shown once, to whoever made it.
    let with_cookie = request(Method::GET, &page).header(header::COOKIE, &pair).body(Body::empty()).unwrap();
    let link = format!("http://{}/r/{token}", common::HOST);
    assert!(server.send(with_cookie).await.expect(200).text().contains(&link));
    assert!(!server.get(&page).await.text().contains(token));
    server.get(&format!("/r/{token}")).await.expect(200);

    server.form(&format!("{page}/shares/{id}/revoke"), "").await.expect(303);
    assert!(server.get(&format!("/r/{token}")).await.expect(410).text().contains("<html"));
    server.form(&format!("{page}/shares/{id}x/revoke"), "").await.expect(404);
}

/// With several threads the store answers now at once and now later; what a page says must not depend on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_head_of_a_page_is_always_whole() {
    let server = Server::start().await;
    let run = server.run_from_data().await;
    let id = run["id"].as_str().unwrap();
    let share = server.call(Method::POST, &format!("/api/v1/runs/{id}/shares"), serde_json::json!({})).await.json();
    let share = share["url"].as_str().unwrap();
    for _ in 0..20 {
        let page = server.get(share).await.expect(200).text();
        let link = format!("content=\"http://{}{share}\"", common::HOST);
        for word in ["og:title", "og:description", "og:image", &link, "noindex, nofollow"] {
            assert!(page.contains(word), "{word} is not in the head of a share");
        }
        let page = server.get(&format!("/runs/{id}")).await.expect(200).text();
        assert!(page.contains("name=\"description\"") && page.contains("name=\"robots\""));
        assert!(server.get("/").await.expect(200).text().contains("name=\"description\""));
        assert!(server.get("/runs/none").await.expect(404).text().contains("name=\"robots\""));
    }
}

#[tokio::test]
async fn wrong_turns_end_on_readable_pages() {
    let server = Server::start().await;
    for (path, status) in [("/nothing", 404), ("/runs/none", 404), ("/r/none", 404), ("/pkg/none.js", 404)] {
        let page = server.get(path).await.expect(status);
        assert!(page.text().contains("<h1"), "{path}");
    }
    let page = server.upload("/runs/none/files", &[("text", None, b"x")]).await.expect(404);
    assert!(page.header(header::CONTENT_TYPE).starts_with("text/html"));
    let page = server.form("/runs/none/shares", "expires_in=soon").await.expect(400);
    assert!(page.text().contains("<h1"));
    server.form("/nothing", "").await.expect(405);
}

#[tokio::test]
async fn every_answer_carries_the_protective_headers() {
    let server = Server::start().await;
    for path in ["/", "/api/v1/runs", "/style.css", "/healthz", "/nothing"] {
        let answer = server.get(path).await;
        assert_eq!(answer.header(header::X_CONTENT_TYPE_OPTIONS), "nosniff", "{path}");
        let policy = answer.header(header::CONTENT_SECURITY_POLICY);
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src"), "{path}: {policy}");
        assert!(!policy.contains("script-src 'unsafe-inline'"), "{path}");
        assert_eq!(answer.header(header::REFERRER_POLICY), "same-origin", "{path}");
    }
    // Inline scripts of a page carry the nonce of its policy, or there are none.
    let page = server.get("/").await;
    let policy = page.header(header::CONTENT_SECURITY_POLICY).to_owned();
    for script in page.text().split("<script").skip(1) {
        let nonce = script.split("nonce=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        assert!(policy.contains(&format!("'nonce-{nonce}'")));
    }
}

#[tokio::test]
async fn other_sites_and_other_names_are_kept_out() {
    let server = Server::start().await;
    let run = server.run_from_data().await;
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    for (name, value) in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        let forged = request(Method::DELETE, &path).header(name, value).body(Body::empty()).unwrap();
        assert_eq!(server.send(forged).await.problem(403), "/problems/foreign-origin", "{name}: {value}");
    }
    let forged = request(Method::POST, "/runs")
        .header(header::ORIGIN, "http://evil.example")
        .header(header::CONTENT_TYPE, multipart_type())
        .body(multipart(&[("text", None, b"x")]).into())
        .unwrap();
    assert!(server.send(forged).await.expect(403).text().contains("another site"));
    server.get(&path).await.expect(200);

    for host in ["evil.example", "evil.example:3000", "10.1.2.3:3000"] {
        let mut rebound = request(Method::GET, &path).body(Body::empty()).unwrap();
        rebound.headers_mut().insert(header::HOST, host.parse().unwrap());
        assert_eq!(server.send(rebound).await.problem(421), "/problems/foreign-host", "{host}");
    }
    let own = request(Method::DELETE, &path).header(header::ORIGIN, format!("http://{}", common::HOST));
    server.send(own.body(Body::empty()).unwrap()).await.expect(204);
}

#[tokio::test]
async fn the_address_of_all_runs_leads_to_their_list() {
    let server = Server::start().await;
    assert_eq!(server.get("/runs").await.expect(308).header(header::LOCATION), "/#runs");
    let found = server.get("/runs?query=night%20run").await.expect(308);
    assert_eq!(found.header(header::LOCATION), "/?query=night%20run#runs");
    assert!(server.get("/").await.expect(200).text().contains("id=\"runs\""));
}

#[tokio::test]
async fn assets_are_sent_once() {
    let server = Server::start().await;
    let style = server.get("/style.css").await.expect(200);
    assert_eq!(style.header(header::CONTENT_TYPE), "text/css; charset=utf-8");
    let again = request(Method::GET, "/style.css").header(header::IF_NONE_MATCH, style.header(header::ETAG));
    server.send(again.body(Body::empty()).unwrap()).await.expect(304);
    let head = server.send(request(Method::HEAD, "/style.css").body(Body::empty()).unwrap()).await.expect(200);
    assert!(head.body.is_empty());
}
