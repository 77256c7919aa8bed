//! Files that arrive in several requests: kept as far as they came, whole once they are used, and nobody else's.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

mod common;

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use bytes::Bytes;
use common::{
    Answer, Server, data, multipart, multipart_type,
    team::{Caller, Team},
};
use futures_util::{StreamExt, stream};
use rankscope::{
    accounts::{Role, Scope},
    limits::Limits,
};
use std::{io, time::Duration};

const KIND: &str = "application/offset+octet-stream";
const UPLOADS: &str = "/api/v1/uploads";

fn request(caller: &Caller, method: Method, path: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let mut request = Team::by(caller, method, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

async fn begin(server: &Server, caller: &Caller, bytes: usize) -> String {
    let length = bytes.to_string();
    // `smi table.txt`
    let name = ("upload-metadata", "filename c21pIHRhYmxlLnR4dA==");
    let headers = [("tus-resumable", "1.0.0"), ("upload-length", length.as_str()), name];
    let begun = server.send(request(caller, Method::POST, UPLOADS, &headers, Body::empty())).await.expect(201);
    assert!(begun.headers.contains_key("upload-expires"));
    begun.header(header::LOCATION).to_owned()
}

async fn add(server: &Server, caller: &Caller, address: &str, from: usize, body: impl Into<Body>) -> Answer {
    let from = from.to_string();
    let headers = [("upload-offset", from.as_str()), ("content-type", KIND)];
    server.send(request(caller, Method::PATCH, address, &headers, body.into())).await
}

async fn kept(server: &Server, caller: &Caller, address: &str) -> usize {
    let answer = server.send(request(caller, Method::HEAD, address, &[], Body::empty())).await.expect(204);
    assert_eq!(answer.headers["cache-control"], "no-store");
    answer.headers["upload-offset"].to_str().unwrap().parse().unwrap()
}

async fn make_run(server: &Server, caller: &Caller, address: &str) -> Answer {
    let id = address.rsplit('/').next().unwrap();
    let sent = Team::by(caller, Method::POST, "/api/v1/runs").header(header::CONTENT_TYPE, multipart_type());
    server.send(sent.body(multipart(&[("upload", None, id.as_bytes())]).into()).unwrap()).await
}

#[tokio::test]
async fn a_file_goes_on_where_it_broke_off_and_becomes_a_run_once() {
    let server = Server::start().await;
    let me = Caller::Nobody;
    let smi = data("nvidia-smi.txt");
    let can = server.send(request(&me, Method::OPTIONS, UPLOADS, &[], Body::empty())).await.expect(204);
    assert_eq!(can.headers["tus-version"], "1.0.0");
    assert!(can.headers["tus-extension"].to_str().unwrap().contains("creation"));

    let address = begin(&server, &me, smi.len()).await;
    assert_eq!(kept(&server, &me, &address).await, 0);
    assert_eq!(add(&server, &me, &address, 0, smi[..700].to_vec()).await.expect(204).headers["upload-offset"], "700");
    assert_eq!(make_run(&server, &me, &address).await.problem(409), "/problems/not-whole");

    // The connection breaks: what had arrived counts.
    let pieces = [Ok(Bytes::copy_from_slice(&smi[700..1500])), Err(io::Error::other("gone"))];
    add(&server, &me, &address, 700, Body::from_stream(stream::iter(pieces))).await.expect(400);
    assert_eq!(kept(&server, &me, &address).await, 1500);
    // Whoever does not know is told where to go on.
    let twice = add(&server, &me, &address, 700, smi[700..].to_vec()).await;
    assert_eq!((twice.status.as_u16(), &twice.headers["upload-offset"]), (409, &"1500".parse().unwrap()));
    // Longer than it was begun: nothing of it is taken.
    let too_long = Body::from_stream(stream::iter([Ok::<_, io::Error>(Bytes::from([&smi[1500..], b"x"].concat()))]));
    add(&server, &me, &address, 1500, too_long).await.expect(413);
    assert_eq!(kept(&server, &me, &address).await, 1500);
    add(&server, &me, &address, 1500, smi[1500..].to_vec()).await.expect(204);

    let made = make_run(&server, &me, &address).await.expect(201).json();
    assert_eq!(made["artifacts"][0]["name"], "smi table.txt");
    let file = server.get(&format!("/api/v1/runs/{}/artifacts/0", made["id"].as_str().unwrap())).await.expect(200);
    assert_eq!(file.body, smi);
    assert_eq!(made["verdict"], "imbalance");
    // It is used up.
    make_run(&server, &me, &address).await.expect(400);
    server.send(request(&me, Method::HEAD, &address, &[], Body::empty())).await.expect(404);
}

#[tokio::test]
async fn a_file_that_does_not_go_on_is_let_go_of_with_what_came() {
    let limits = Limits { upload_idle: Duration::from_millis(50), max_file_bytes: 5000, ..Limits::default() };
    let server = Server::start_with(limits).await;
    let me = Caller::Nobody;
    let begun = async |headers: &[(&str, &str)], status: u16| {
        server.send(request(&me, Method::POST, UPLOADS, headers, Body::empty())).await.expect(status);
    };
    begun(&[("upload-length", "5001")], 413).await;
    for wrong in ["", "-1", "a", "99999999999999999999999"] {
        begun(&[("upload-length", wrong)], 400).await;
    }
    begun(&[("upload-length", "5"), ("tus-resumable", "0.2.2")], 412).await;

    let address = begin(&server, &me, 100).await;
    let stalls = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"0123456789"))]).chain(stream::pending());
    add(&server, &me, &address, 0, Body::from_stream(stalls)).await.expect(408);
    assert_eq!(kept(&server, &me, &address).await, 10);
    let text = [("upload-offset", "10"), ("content-type", "text/plain")];
    server.send(request(&me, Method::PATCH, &address, &text, Body::from("x"))).await.expect(415);
    server.send(request(&me, Method::DELETE, &address, &[], Body::empty())).await.expect(204);
    add(&server, &me, &address, 10, "x").await.expect(404);
}

#[tokio::test]
async fn what_somebody_sends_is_nobody_elses() {
    let team = Team::start().await;
    let user = team.user("ed", false, &[(&team.project, Role::Editor)]).await;
    let editor = team.session(&user).await;
    let other = team.member("bo", Role::Editor).await;
    let viewer = team.member("vi", Role::Viewer).await;
    let token = team.token(&user, &team.project, &[Scope::Upload]).await;
    let reader = team.token(&user, &team.project, &[Scope::Read]).await;
    let smi = data("nvidia-smi.txt");
    for (caller, status) in [(&viewer, 403), (&reader, 403), (&Caller::Nobody, 401)] {
        let begun = request(caller, Method::POST, UPLOADS, &[("upload-length", "5")], Body::empty());
        team.server.send(begun).await.expect(status);
    }
    for (owner, strangers) in [(&editor, [&other, &token]), (&token, [&other, &editor])] {
        let address = begin(&team.server, owner, smi.len()).await;
        add(&team.server, owner, &address, 0, smi.clone()).await.expect(204);
        // Also not who stands behind a token, nor a token for its owner: each sends for itself.
        for stranger in strangers {
            team.server.send(request(stranger, Method::HEAD, &address, &[], Body::empty())).await.expect(404);
            add(&team.server, stranger, &address, smi.len(), "").await.expect(404);
            team.server.send(request(stranger, Method::DELETE, &address, &[], Body::empty())).await.expect(404);
            make_run(&team.server, stranger, &address).await.expect(400);
        }
        let made = make_run(&team.server, owner, &address).await.expect(201).json();
        let run = made["id"].as_str().unwrap();
        assert_eq!(team.server.service.store.project_of_run(run).await.unwrap(), team.project);
    }
}
