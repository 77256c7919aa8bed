//! Requests of somebody who does not belong here, each with the right refusal.

mod common;

use axum::{
    body::Body,
    http::{Method, header},
};
use common::{
    Part, multipart, multipart_type,
    team::{Caller, Options, PASSWORD, Team, from, session_of},
};
use futures_util::stream;
use rankscope::{
    access::Proxies,
    accounts::{Role, Scope},
    limits::Limits,
    live::LiveOptions,
};
use std::{fmt::Write, time::Duration};

const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test]
async fn other_sites_change_nothing_with_a_visitors_cookie() {
    let team = Team::start().await;
    let Caller::Session(secret) = team.member("ed", Role::Editor).await else { unreachable!() };
    let shares = format!("/runs/{}/shares", team.run);
    let forged = async |path: &str, headers: &[(&str, &str)]| {
        let mut request = common::request(Method::POST, path)
            .header(header::COOKIE, format!("rankscope_session={secret}"))
            .header(header::CONTENT_TYPE, FORM);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        team.server.send(request.body("expires_in=never".into()).unwrap()).await
    };
    for headers in [
        &[][..],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "http://127.0.0.1:3000"), ("sec-fetch-site", "cross-site")],
        &[("origin", "http://127.0.0.1:4000")],
        &[("referer", "http://127.0.0.1:3000/")],
    ] {
        for path in [shares.as_str(), "/settings/tokens", "/logout", "/api/v1/runs"] {
            let refused = forged(path, headers).await;
            assert_eq!(refused.status, 403, "{path} {headers:?}: {}", refused.text());
        }
    }
    assert!(team.server.service.store.shares(&team.run).await.unwrap().is_empty());
    forged(&shares, &[("origin", "http://127.0.0.1:3000"), ("sec-fetch-site", "same-origin")]).await.expect(303);
    assert_eq!(team.server.service.store.shares(&team.run).await.unwrap().len(), 1);

    // Nor can they sign a visitor in under their own name.
    let sign_in = common::request(Method::POST, "/login")
        .header(header::CONTENT_TYPE, FORM)
        .header(header::ORIGIN, "https://evil.example")
        .body(format!("name=mallory&password={PASSWORD}").into())
        .unwrap();
    assert_eq!(team.server.send(sign_in).await.status, 403);
}

#[tokio::test]
async fn a_session_that_somebody_else_knows_is_never_begun() {
    let team = Team::start().await;
    let ada = team.user("ada", false, &[]).await;
    team.gate.accounts.set_password(&ada, PASSWORD.into()).await.unwrap();
    let planted = Caller::Session("a-secret-that-mallory-knows".into());
    let fields = format!("name=ada&password={}", PASSWORD.replace(' ', "+"));
    let entered = team.form(&planted, "/login", &fields).await.expect(303);
    let Some(Caller::Session(new)) = session_of(&entered) else { panic!("no session") };
    assert_ne!(new, "a-secret-that-mallory-knows");
    team.get(&planted, "/settings").await.expect(303);
    team.get(&Caller::Session(new.clone()), "/settings").await.expect(200);

    // Signing in anew ends the session before it, also somebody else's on the same browser.
    let again = team.form(&Caller::Session(new.clone()), "/login", &fields).await.expect(303);
    assert!(session_of(&again).is_some());
    team.get(&Caller::Session(new), "/settings").await.expect(303);
}

#[tokio::test]
async fn with_https_the_cookie_is_bound_to_this_host() {
    let options = Options { public_url: Some("https://scope.example.org".parse().unwrap()), ..Options::default() };
    let team = Team::with(options).await;
    let ada = team.user("ada", false, &[]).await;
    team.gate.accounts.set_password(&ada, PASSWORD.into()).await.unwrap();
    let entered = common::request(Method::POST, "/login")
        .header(header::CONTENT_TYPE, FORM)
        .header(header::ORIGIN, "https://scope.example.org")
        .body(format!("name=ada&password={}", PASSWORD.replace(' ', "+")).into())
        .unwrap();
    let entered = team.server.send(entered).await.expect(303);
    let cookie = entered.header(header::SET_COOKIE).to_owned();
    assert!(cookie.starts_with("__Host-rankscope_session=") && cookie.ends_with("; Secure"), "{cookie}");
    let secret = cookie.split('=').nth(1).unwrap().split(';').next().unwrap();
    let ask = async |name: &str| {
        let request = common::request(Method::GET, "/settings").header(header::COOKIE, format!("{name}={secret}"));
        team.server.send(request.body(Body::empty()).unwrap()).await.status.as_u16()
    };
    assert_eq!(ask("__Host-rankscope_session").await, 200);
    assert_eq!(ask("rankscope_session").await, 303, "a neighbour under the same domain could have planted it");
}

#[tokio::test]
async fn passwords_are_not_guessed_in_bulk_and_names_not_found_out() {
    let proxies = Proxies { networks: vec!["127.0.0.0/8".parse().unwrap()], user_header: None };
    let team = Team::with(Options { proxies, ..Options::default() }).await;
    for name in ["ada", "bo"] {
        let user = team.user(name, false, &[]).await;
        team.gate.accounts.set_password(&user, PASSWORD.into()).await.unwrap();
    }
    let enter = async |name: &str, password: &str, address: &str| {
        let request = common::request(Method::POST, "/login").header(header::CONTENT_TYPE, FORM);
        let fields = format!("name={name}&password={}", password.replace(' ', "+"));
        team.server.send(from(request.body(fields.into()).unwrap(), address)).await
    };
    let words = |answer: &common::Answer| {
        let text = answer.text();
        let alert = text.split("role=\"alert\"").nth(1).unwrap().split("</p>").next().unwrap().to_owned();
        (answer.status, alert.split("<span>").nth(1).unwrap_or_default().to_owned())
    };
    let known = words(&enter("ada", "guess", "203.0.113.1").await);
    assert_eq!(known, words(&enter("nobody", "guess", "203.0.113.1").await));
    assert_eq!(known, words(&enter("%3Cscript%3E", "guess", "203.0.113.1").await));
    assert_eq!(known, words(&enter("", "", "203.0.113.1").await));

    // From one address: after some tries also a right one has to wait; from another it need not.
    let mut tries = 0;
    while enter("nobody", "guess", "203.0.113.1").await.status != 429 {
        tries += 1;
        assert!(tries < 100, "never held up");
    }
    assert!(tries > 10, "held up after {tries}");
    let held_up = enter("bo", PASSWORD, "203.0.113.1").await.expect(429);
    let wait: u64 = held_up.header(header::RETRY_AFTER).parse().unwrap();
    assert!((1..=6).contains(&wait), "{wait}");
    assert_eq!(enter("bo", PASSWORD, "203.0.113.2").await.status, 303);
    // From many addresses at one account: only that account waits.
    let mut last = 0;
    while enter("ada", "guess", &format!("198.51.100.{last}")).await.status != 429 {
        last += 1;
        assert!(last < 200, "never held up");
    }
    assert_eq!(enter("ada", PASSWORD, "192.0.2.1").await.status, 429);
    assert_eq!(enter("bo", PASSWORD, "192.0.2.1").await.status, 303);
    // And an account that is not there waits just so.
    let mut last = 0;
    while enter("ghost", "guess", &format!("192.0.3.{last}")).await.status != 429 {
        last += 1;
        assert!(last < 200, "never held up");
    }
    assert_eq!(enter("ghost", PASSWORD, "192.0.2.1").await.status, 429);
    // Good sign-ins are never held up, however many.
    for _ in 0..25 {
        assert_eq!(enter("bo", PASSWORD, "192.0.2.7").await.status, 303);
    }
    let record = team.gate.accounts.audit(500).await.unwrap();
    let failed = record.iter().find(|entry| entry.action == "Sign-in failed").unwrap();
    assert_eq!(failed.subject, "an unknown name");
    assert!(failed.address.starts_with("192.0.3."), "{failed:?}");
}

#[tokio::test]
async fn secrets_are_not_guessed_and_good_ones_never_wait() {
    let team = Team::start().await;
    let ed = team.user("ed", false, &[(&team.project, Role::Editor)]).await;
    let token = team.token(&ed, &team.project, &[Scope::Read]).await;
    let share = team.server.service.store.create_share(&team.run, None, None).await.unwrap().token;
    let until_held_up = async |caller: &Caller, path: &str, first: u16| {
        for tries in 0..300 {
            let status = team.get(caller, path).await.status.as_u16();
            if status == 429 {
                return tries;
            }
            assert_eq!(status, first, "{path}");
        }
        panic!("never held up: {path}");
    };
    assert!(until_held_up(&Caller::Nobody, "/r/guess", 404).await > 20);
    for guess in ["/setup/guess", "/r/guess/preview.png", "/r/guess/series"] {
        assert!(until_held_up(&Caller::Nobody, guess, 404).await < 20, "{guess}: all guesses count together");
    }
    assert!(until_held_up(&Caller::Token("rks_guess".into()), "/api/v1/runs", 401).await < 20);
    team.get(&Caller::Nobody, &format!("/r/{share}")).await.expect(200);
    team.get(&Caller::Nobody, &format!("/r/{share}/preview.png")).await.expect(200);
    team.get(&token, "/api/v1/runs").await.expect(200);
    for scheme in ["Basic YTpi", "Bearer", "Bearer ", "bearer rks_guess", "Token x"] {
        let request = common::request(Method::GET, "/api/v1/runs").header(header::AUTHORIZATION, scheme);
        let status = team.server.send(request.body(Body::empty()).unwrap()).await.status.as_u16();
        assert!(status == 401 || status == 429, "{scheme}: {status}");
    }
}

#[tokio::test]
async fn the_token_of_all_senders_is_not_guessed_either() {
    let token = "a token from a file".to_owned();
    let options = LiveOptions { token: Some(token.clone()), ..LiveOptions::default() };
    let team = Team::with(Options { live: Some(options), ..Options::default() }).await;
    let send = async |token: &str| {
        let sent = Team::by(&Caller::Token(token.to_owned()), Method::POST, "/api/v1/samples");
        team.server.send(sent.body("no batch".into()).unwrap()).await
    };
    let mut tries = 0;
    while send("guess").await.status != 429 {
        tries += 1;
        assert!(tries < 100, "never held up");
    }
    assert!(tries > 20, "held up after {tries}");
    assert_eq!(send("guess").await.problem(429), "/problems/too-many-tries");
    // The right one is listened to all the same; this is no batch.
    assert_eq!(send(&token).await.status, 400);
}

#[tokio::test]
async fn names_are_text_wherever_they_are_shown() {
    let team = Team::start().await;
    let root = team.gate.accounts.user_by_name(&"root".parse().unwrap()).await.unwrap();
    let root = team.session(&root).await;
    let markup = "\"><script>alert(1)</script><img src=x onerror=alert(1)>";
    let encoded = markup.bytes().fold(String::new(), |mut encoded, byte| {
        write!(encoded, "%{byte:02X}").unwrap();
        encoded
    });
    team.form(&root, "/settings/users", &format!("name={encoded}")).await.expect(400);
    team.form(&root, "/settings/projects", &format!("name={encoded}")).await.expect(303);
    let hostile =
        team.gate.accounts.projects().await.unwrap().into_iter().find(|project| project.name.contains("script"));
    let hostile = hostile.unwrap().id;
    team.form(&root, "/settings/tokens", &format!("name={encoded}&project={hostile}&read=yes")).await.expect(303);
    team.form(&root, &format!("/runs/{}/project", team.run), &format!("project={hostile}")).await.expect(303);
    team.form(&root, "/login", &format!("name={encoded}&password=x&next={encoded}")).await.expect(401);
    for path in [
        "/",
        "/settings",
        "/settings/projects",
        "/settings/audit",
        &format!("/settings/projects/{hostile}/retention"),
        &format!("/settings/projects/{hostile}/retention?days={encoded}&size={encoded}"),
        &format!("/runs/{}", team.run),
        &format!("/runs/{}", team.other_run),
        &format!("/login?next={encoded}"),
        &format!("/?query={encoded}"),
    ] {
        let page = team.get(&root, path).await.expect(200);
        assert!(!page.text().contains("<script>alert") && !page.text().contains("<img src=x"), "{path}");
        let policy = page.header(header::CONTENT_SECURITY_POLICY);
        assert!(
            !policy.contains("script-src 'unsafe-inline'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
    }
}

#[tokio::test]
async fn forms_lead_nowhere_else() {
    let team = Team::start().await;
    let ada = team.user("ada", false, &[]).await;
    team.gate.accounts.set_password(&ada, PASSWORD.into()).await.unwrap();
    for next in
        ["https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%2F%5Cevil.example", "%2F%0D%0ASet-Cookie%3A+a%3Db"]
    {
        let fields = format!("name=ada&password={}&next={next}", PASSWORD.replace(' ', "+"));
        let entered = team.form(&Caller::Nobody, "/login", &fields).await.expect(303);
        assert_eq!(entered.header(header::LOCATION), "/", "{next}");
    }
}

#[tokio::test]
async fn bodies_too_large_or_too_slow_are_given_up() {
    let limits = Limits {
        answer_within: Duration::from_millis(1500),
        upload_idle: Duration::from_millis(300),
        body_within: Duration::from_millis(300),
        ..Limits::default()
    };
    let team = Team::with(Options { limits, ..Options::default() }).await;
    let large = format!("name=ada&password={}", "x".repeat(100_000));
    for path in ["/login", "/setup/guess"] {
        let answer = team.form(&Caller::Nobody, path, &large).await;
        assert_eq!(answer.status, 413, "{path}");
    }
    let stalled = || Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let slow = common::request(Method::POST, "/login").header(header::CONTENT_TYPE, FORM).body(stalled()).unwrap();
    assert_eq!(team.server.send(slow).await.status, 408);

    // Who may not upload is refused before a byte of the body is read.
    let viewer = team.member("vi", Role::Viewer).await;
    for (caller, status) in [(Caller::Nobody, 401), (viewer, 403)] {
        let upload = Team::by(&caller, Method::POST, "/api/v1/runs").header(header::CONTENT_TYPE, multipart_type());
        let sent = tokio::time::timeout(Duration::from_secs(20), team.server.send(upload.body(stalled()).unwrap()));
        assert_eq!(sent.await.unwrap().status, status);
    }
    let editor = team.member("ed", Role::Editor).await;
    let upload = Team::by(&editor, Method::POST, "/api/v1/runs").header(header::CONTENT_TYPE, multipart_type());
    assert_eq!(team.server.send(upload.body(stalled()).unwrap()).await.problem(408), "/problems/too-slow");
    let long = "p".repeat(5000);
    let parts: [Part<'_>; 2] = [("project", None, long.as_bytes()), ("text", None, b"x")];
    let upload = Team::by(&editor, Method::POST, "/api/v1/runs").header(header::CONTENT_TYPE, multipart_type());
    let sent = team.server.send(upload.body(multipart(&parts).into()).unwrap()).await;
    assert_eq!(sent.problem(400), "/problems/invalid-request");
}
