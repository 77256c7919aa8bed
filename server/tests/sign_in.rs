//! Sign-in with a provider: whom it lets in, and everything that must not let anybody in.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

mod common;

use axum::http::{Method, header};
use common::{
    provider::{CLIENT, Document, Id, SECRET, Way, comes},
    team::{Caller, Options, PASSWORD, Team, session_of},
};
use rankscope::{
    accounts::{NewUsers, Role},
    oidc::{Admission, Provider},
};
use serde_json::json;

async fn team(id: &Id, new_users: NewUsers) -> Team {
    Team::with(Options { sign_in: Some((id.provider(), new_users)), ..Options::default() }).await
}

type Change = Box<dyn FnOnce(&mut common::provider::Says)>;

async fn root(team: &Team) -> Caller {
    let root = team.gate.accounts.user_by_name(&"root".parse().unwrap()).await.unwrap();
    team.session(&root).await
}

/// Nobody was signed in, and nothing was kept of who came.
#[track_caller]
fn refused(answer: &common::Answer, status: u16, words: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert!(session_of(answer).is_none());
    assert!(answer.text().contains(words), "{words:?} is not in {}", answer.text());
}

#[tokio::test]
async fn who_is_new_waits_until_an_administrator_says_whose_account_it_is() {
    let id = Id::start().await;
    let team = team(&id, NewUsers::Ask).await;
    let login = team.get(&Caller::Nobody, &format!("/login?next=/runs/{}", team.run)).await.expect(200).text();
    assert!(
        login.contains("Sign in with") && login.contains("Our Id") && login.contains("type=\"password\""),
        "{login}"
    );
    let link = format!("/login/oidc?next=/runs/{}", team.run);
    assert!(login.contains(&format!("http://127.0.0.1:3000/login/oidc?next=%2Fruns%2F{}", team.run)), "{login}");

    let way = Way::begin(&team, &id, &Caller::Nobody, &link).await;
    assert_eq!(way.of_address("scope"), "openid profile email");
    assert_eq!(
        (way.of_address("code_challenge_method"), way.of_address("response_type")),
        ("S256".into(), "code".into())
    );
    assert!(way.of_address("state").len() >= 43 && way.of_address("nonce").len() >= 43);
    refused(&way.end(&team).await, 403, "ada@example.org at Our Id, and that opens no account here yet");

    let root = root(&team).await;
    let users = team.get(&root, "/settings/users").await.expect(200).text();
    assert!(users.contains("Waiting") && users.contains("ada@example.org") && users.contains("subject 1"), "{users}");
    let waiting = team.gate.accounts.identities().await.unwrap().remove(0);
    let at = |what: &str| format!("/settings/users/identities/{}/{what}", waiting.id);
    team.form(&root, &at("add"), "name=root").await.expect(400);
    team.form(&root, &at("link"), "name=nobody").await.expect(400);
    team.form(&root, &at("add"), "name=ada").await.expect(303);
    let members = format!("/settings/projects/{}/members", team.project);
    team.form(&root, &members, "name=ada&role=viewer").await.expect(303);

    let way = Way::begin(&team, &id, &Caller::Nobody, &link).await;
    let done = way.end(&team).await.expect(303);
    assert_eq!(done.header(header::LOCATION), format!("/runs/{}", team.run));
    let ended = done.headers.get_all(header::SET_COOKIE).iter().any(|cookie| {
        cookie.to_str().unwrap().starts_with("rankscope_sign_in=;") && cookie.to_str().unwrap().contains("Max-Age=0")
    });
    assert!(ended, "the mark of the browser has done its work");
    let ada = session_of(&done).unwrap();
    team.get(&ada, &format!("/runs/{}", team.run)).await.expect(200);
    team.get(&ada, "/settings/users").await.expect(403);
    let users = team.get(&root, "/settings/users").await.expect(200).text();
    assert!(!users.contains("Waiting") && users.contains("opens this account"), "{users}");

    let record = team.get(&root, "/settings/audit").await.expect(200).text();
    for words in ["with Our Id", "with Our Id: ada@example.org has no account", "Let an identity open an account"] {
        assert!(record.contains(words), "{words:?} is not in the record");
    }
    // Sessions of a provider are short, and an administrator who takes the identity away ends them.
    team.form(&root, &at("remove"), "").await.expect(303);
    team.get(&ada, "/").await.expect(303);
}

#[tokio::test]
async fn a_session_is_made_anew_and_ends_after_a_day() {
    let id = Id::start().await;
    let team = team(&id, NewUsers::Account).await;
    let first = session_of(&Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await.end(&team).await.expect(303));
    let Some(Caller::Session(first)) = first else { panic!() };
    let way = Way::begin(&team, &id, &Caller::Session(first.clone()), "/login/oidc").await;
    let planted = format!("rankscope_session={first}");
    let again = comes(&team, &way.back(), &[&way.cookie, &planted]).await.expect(303);
    let Some(Caller::Session(second)) = session_of(&again) else { panic!() };
    assert_ne!(first, second);
    team.get(&Caller::Session(first), "/settings").await.expect(303);
    let second = Caller::Session(second);
    team.get(&second, "/settings").await.expect(200);
    let user = team.gate.accounts.user_by_name(&"ada@example.org".parse().unwrap()).await.unwrap();
    team.gate.accounts.age_sessions(&user.id, rankscope::accounts::LONGEST_BY_PROVIDER).await.unwrap();
    team.get(&second, "/settings").await.expect(303);
}

#[tokio::test]
async fn a_token_that_does_not_hold_signs_nobody_in() {
    let id = Id::start().await;
    let team = team(&id, NewUsers::Viewer).await;
    let claims = |claims: serde_json::Value| move |says: &mut common::provider::Says| says.claims = claims;
    let head = |head: serde_json::Value| move |says: &mut common::provider::Says| says.head = Some(head);
    let wrong: Vec<(&str, Change)> = vec![
        ("another nonce", Box::new(claims(json!({ "nonce": "of somebody else's sign-in" })))),
        ("no nonce", Box::new(claims(json!({ "nonce": null })))),
        ("another application's", Box::new(claims(json!({ "aud": "another" })))),
        ("also another application's", Box::new(claims(json!({ "aud": [CLIENT, "another"] })))),
        ("made for another application", Box::new(claims(json!({ "azp": "another" })))),
        ("another issuer", Box::new(claims(json!({ "iss": "https://id.example.org" })))),
        ("ended", Box::new(claims(json!({ "exp": 1_000_000_000 })))),
        ("without an end", Box::new(claims(json!({ "exp": null })))),
        ("without a subject", Box::new(claims(json!({ "sub": null })))),
        ("an empty subject", Box::new(claims(json!({ "sub": "" })))),
        ("a subject without end", Box::new(claims(json!({ "sub": "x".repeat(300) })))),
        ("of another access token", Box::new(claims(json!({ "at_hash": "AAAAAAAAAAAAAAAAAAAAAA" })))),
        ("unsigned", Box::new(head(json!({ "alg": "none" })))),
        ("unsigned, with a key", Box::new(head(json!({ "alg": "none", "kid": "key 0" })))),
        ("signed with the secret", Box::new(head(json!({ "alg": "HS256" })))),
        ("signed in a way that is not known", Box::new(head(json!({ "alg": "XS1", "kid": "key 0" })))),
        (
            "with a head that must be understood",
            Box::new(head(json!({ "alg": "EdDSA", "kid": "key 0", "crit": ["x"] }))),
        ),
        ("left out", Box::new(|says| says.without_token = true)),
    ];
    for (n, (what, change)) in wrong.into_iter().enumerate() {
        let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
        id.now(change);
        let answer = way.end(&team).await;
        assert_eq!(answer.status, 503, "{what}: {}", answer.text());
        assert!(session_of(&answer).is_none(), "{what}");
        assert!(team.gate.accounts.identities().await.unwrap().is_empty(), "{what}");
        id.now(|says| (says.claims, says.head, says.without_token) = (json!({}), None, false));
        // The limit on tries is another test's.
        team.gate.by_address.give_back(&"127.0.0.1".parse().unwrap());
        assert_eq!(id.asked("/token"), u32::try_from(n).unwrap() + 1, "{what}");
    }
    // The same token, as it should be.
    Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await.end(&team).await.expect(303);
}

#[tokio::test]
async fn keys_that_are_new_are_fetched_and_forged_ones_not_without_end() {
    let id = Id::start().await;
    let team = team(&id, NewUsers::Account).await;
    let enter = async || Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await.end(&team).await;
    enter().await.expect(303);
    enter().await.expect(303);
    assert_eq!((id.asked("/.well-known/openid-configuration"), id.asked("/jwks")), (1, 1), "kept");
    id.now(|says| (says.signs_with, says.names) = (1, 1));
    enter().await.expect(303);
    assert_eq!(id.asked("/jwks"), 2);
    // A key that it does not name, and one that signs under another's name.
    for head in [json!({ "alg": "EdDSA", "kid": "key 7" }), json!({ "alg": "EdDSA", "kid": "key 1" })] {
        let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
        id.now(|says| (says.signs_with, says.head) = (0, Some(head)));
        refused(&way.end(&team).await, 503, "does not hold");
        id.now(|says| (says.signs_with, says.head) = (1, None));
    }
    assert_eq!(id.asked("/jwks"), 2, "looked for a moment ago");
}

#[tokio::test]
async fn a_sign_in_comes_back_once_to_its_own_browser() {
    let id = Id::start().await;
    let team = team(&id, NewUsers::Account).await;
    let words = "not begun in this browser";
    let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
    // Somebody else's link: no mark, or the mark of the victim's own sign-in.
    refused(&comes(&team, &way.back(), &[]).await, 400, words);
    let other = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
    refused(&comes(&team, &way.back(), &[&other.cookie]).await, 400, words);
    for path in ["/login/oidc/callback", "/login/oidc/callback?code=x", "/login/oidc/callback?code=x&state=guess"] {
        refused(&comes(&team, path, &[&way.cookie]).await, 400, words);
    }
    assert_eq!(id.asked("/token"), 0, "nobody was asked for it");

    let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
    way.end(&team).await.expect(303);
    refused(&way.end(&team).await, 400, words);
    assert_eq!(id.asked("/token"), 1, "a code is shown once");
    let late = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
    team.gate.accounts.age_pending().await.unwrap();
    refused(&late.end(&team).await, 400, words);

    let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
    refused(
        &comes(&team, &format!("{}&iss=https://evil.example", way.back()), &[&way.cookie]).await,
        503,
        "does not hold",
    );
    refused(&way.end(&team).await, 400, words);
    let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
    comes(&team, &format!("{}&iss={}", way.back(), id.issuer), &[&way.cookie]).await.expect(303);
}

#[tokio::test]
async fn what_the_provider_refuses_is_told() {
    let id = Id::start().await;
    let team = team(&id, NewUsers::Account).await;
    for (error, status, words) in [
        ("access_denied", 403, "did not let you in"),
        ("temporarily_unavailable", 503, "does not answer"),
        ("invalid_scope", 503, "do not understand each other"),
        ("%3Cscript%3E%20", 503, "do not understand each other"),
    ] {
        let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc?next=/live").await;
        let back = format!("/login/oidc/callback?error={error}&error_description=x&state={}", way.of_address("state"));
        let answer = comes(&team, &back, &[&way.cookie]).await;
        refused(&answer, status, words);
        assert!(answer.text().contains("type=\"password\"") && answer.text().contains("value=\"/live\""), "{error}");
        assert!(!answer.text().contains("<script>"), "{error}");
    }
    for (status, said, words) in [
        (400, json!({ "error": "invalid_grant" }), "Begin it once more"),
        (401, json!({ "error": "invalid_client" }), "do not understand each other"),
        (200, json!({ "token_type": "Bearer" }), "do not understand each other"),
        (500, json!("oh"), "do not understand each other"),
    ] {
        let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
        id.now(|says| says.instead = Some((status.try_into().unwrap(), said)));
        let answer = way.end(&team).await;
        assert!(session_of(&answer).is_none() && answer.text().contains(words), "{status}: {}", answer.text());
        id.now(|says| says.instead = None);
    }
    assert_eq!(id.asked("/token"), 4);
}

#[tokio::test]
async fn without_the_provider_passwords_go_on() {
    let id = Id::start().await;
    let nowhere = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", nowhere.local_addr().unwrap());
    drop(nowhere);
    let provider =
        Provider::new(rankscope::oidc::Settings { issuer: issuer.parse().unwrap(), ..id.settings() }).unwrap();
    let team = Team::with(Options { sign_in: Some((provider, NewUsers::Account)), ..Options::default() }).await;
    let ada = team.user("ada", false, &[(&team.project, Role::Viewer)]).await;
    team.gate.accounts.set_password(&ada, PASSWORD.into()).await.unwrap();
    let page = team.get(&Caller::Nobody, "/login/oidc?next=/live").await;
    refused(&page, 503, "Our Id does not answer");
    assert!(page.text().contains("type=\"password\"") && page.text().contains("value=\"/live\""));
    assert!(!page.text().contains(issuer.trim_start_matches("http://")), "where it is is for the log");
    let form = format!("name=ada&password={}", PASSWORD.replace(' ', "+"));
    assert!(session_of(&team.form(&Caller::Nobody, "/login", &form).await.expect(303)).is_some());
}

#[tokio::test]
async fn only_a_sound_document_is_believed_and_no_redirect_is_followed() {
    let id = Id::start().await;
    let elsewhere = Id::start().await;
    let sound = json!({
        "issuer": id.issuer, "authorization_endpoint": format!("{}/authorize", id.issuer),
        "token_endpoint": format!("{}/token", id.issuer), "jwks_uri": format!("{}/jwks", id.issuer),
        "response_types_supported": ["code"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["EdDSA"],
    });
    let with = |name: &str, value: serde_json::Value| {
        let mut document = sound.clone();
        document[name] = value;
        Document::Is(document)
    };
    for document in [
        Document::Elsewhere(format!("{}/.well-known/openid-configuration", elsewhere.issuer)),
        Document::Large,
        Document::Is(json!({})),
        with("issuer", json!(elsewhere.issuer)),
        with("jwks_uri", json!("http://169.254.169.254/latest")),
        with("jwks_uri", json!("file:///etc/passwd")),
        with("authorization_endpoint", json!("javascript:alert(1)")),
        with("token_endpoint", serde_json::Value::Null),
    ] {
        id.now(|says| says.document = Some(document));
        let failure = id.provider().try_it().await.unwrap_err();
        assert!(!failure.cause().is_empty() && failure.cause().len() < 2000, "{failure:?}");
    }
    id.now(|says| says.document = Some(Document::Is(sound)));
    id.provider().try_it().await.unwrap();
    assert_eq!(elsewhere.asked("/.well-known/openid-configuration"), 0);
    let failed = id.asked("/.well-known/openid-configuration");
    id.now(|says| says.document = Some(Document::Is(json!({}))));
    let provider = id.provider();
    for _ in 0..5 {
        provider.try_it().await.unwrap_err();
    }
    assert_eq!(id.asked("/.well-known/openid-configuration"), failed + 1, "who comes in a crowd is answered at once");
}

#[tokio::test]
async fn links_of_other_sites_begin_nothing_and_lead_nowhere_else() {
    let id = Id::start().await;
    let team = team(&id, NewUsers::Account).await;
    for site in ["cross-site", "same-site"] {
        let request = common::request(Method::GET, "/login/oidc?next=/live").header("sec-fetch-site", site);
        let answer = team.server.send(request.body(axum::body::Body::empty()).unwrap()).await.expect(303);
        assert_eq!(answer.header(header::LOCATION), "/login?next=/live", "here a person presses the button");
        assert!(answer.headers.get(header::SET_COOKIE).is_none());
    }
    for next in ["https://evil.example", "//evil.example", "/%5Cevil.example", "javascript:alert(1)"] {
        let way = Way::begin(&team, &id, &Caller::Nobody, &format!("/login/oidc?next={next}")).await;
        assert_eq!(way.end(&team).await.expect(303).header(header::LOCATION), "/", "{next}");
    }
    let mut limited = false;
    for _ in 0..25 {
        let answer = team.get(&Caller::Nobody, "/login/oidc").await;
        limited |= answer.status == 429;
        assert!(!limited || answer.headers.contains_key(header::RETRY_AFTER));
    }
    assert!(limited, "ways that are begun and not ended are counted as tries");
}

#[tokio::test]
async fn domains_and_groups_keep_strangers_out() {
    let id = Id::start().await;
    let admission =
        Admission { domains: vec!["example.org".into()], groups: vec!["ml".into()], groups_claim: "roles".into() };
    let provider = Provider::new(rankscope::oidc::Settings { admission, ..id.settings() }).unwrap();
    let team = Team::with(Options { sign_in: Some((provider, NewUsers::Viewer)), ..Options::default() }).await;
    let enter = async |claims: serde_json::Value, of_person: Option<serde_json::Value>| {
        let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
        id.now(|says| (says.claims, says.of_person) = (claims, of_person));
        way.end(&team).await
    };
    let person = |more: serde_json::Value| {
        let mut person = json!({ "sub": "subject 1" });
        person.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Some(person)
    };
    refused(&enter(json!({ "email": "ada@example.com", "roles": ["ml"] }), None).await, 403, "example.com is in none");
    refused(
        &enter(json!({ "email_verified": false, "roles": ["ml"] }), person(json!({}))).await,
        403,
        "no verified one",
    );
    refused(&enter(json!({ "roles": ["ops"] }), None).await, 403, "to none of them");
    refused(&enter(json!({}), person(json!({}))).await, 403, "says nothing of your groups");
    refused(&enter(json!({}), person(json!({ "sub": "subject 2", "roles": ["ml"] }))).await, 503, "does not hold");
    refused(&enter(json!({}), None).await, 503, "do not understand");
    assert!(team.gate.accounts.identities().await.unwrap().is_empty(), "nobody of them waits either");
    let record = team.gate.accounts.audit(10).await.unwrap();
    assert!(record.iter().any(|entry| entry.subject == "with Our Id: ada@example.com may not come in"), "{record:?}");

    // What the token leaves out is asked for.
    let said = person(json!({ "email": "ada@example.org", "email_verified": "true", "roles": ["ml", "x"] }));
    let done = enter(json!({ "email": null, "email_verified": null }), said).await.expect(303);
    assert!(team.get(&session_of(&done).unwrap(), "/").await.expect(200).text().contains("ada@example.org"));
}

#[tokio::test]
async fn an_account_with_a_password_is_opened_only_when_its_owner_says_so() {
    let id = Id::start().await;
    let team = team(&id, NewUsers::Account).await;
    let ada = team.user("ada@example.org", false, &[(&team.project, Role::Viewer)]).await;
    team.gate.accounts.set_password(&ada, PASSWORD.into()).await.unwrap();
    // The same verified address is not the same person.
    let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
    refused(&way.end(&team).await, 403, "opens no account here yet");

    let session = team.session(&ada).await;
    let Caller::Session(secret) = &session else { panic!() };
    let own = format!("rankscope_session={secret}");
    assert!(team.get(&session, "/settings").await.expect(200).text().contains("/login/oidc?link=yes"));
    team.get(&Caller::Nobody, "/login/oidc?link=yes").await.expect(401);
    // Coming back without the session, or with somebody else's, adds nothing.
    let bo = team.user("bo", false, &[]).await;
    let bo = team.session(&bo).await;
    let Caller::Session(of_bo) = &bo else { panic!() };
    let way = Way::begin(&team, &id, &session, "/login/oidc?link=yes").await;
    refused(&comes(&team, &way.back(), &[&way.cookie]).await, 401, "Sign in first");
    let way = Way::begin(&team, &id, &session, "/login/oidc?link=yes").await;
    let as_bo = format!("rankscope_session={of_bo}");
    refused(&comes(&team, &way.back(), &[&way.cookie, &as_bo]).await, 400, "somebody else");

    let way = Way::begin(&team, &id, &session, "/login/oidc?link=yes").await;
    let shown = comes(&team, &way.back(), &[&way.cookie, &own]).await.expect(303);
    assert_eq!(shown.header(header::LOCATION), "/settings");
    assert!(session_of(&shown).is_none());
    let page = team.get(&session, "/settings").await.expect(200).text();
    assert!(page.contains("only when you say that it is yours"), "{page}");
    let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
    refused(&way.end(&team).await, 403, "opens no account here yet");
    let identity = team.gate.accounts.identities().await.unwrap().remove(0);
    let at = |what: &str| format!("/settings/identities/{}/{what}", identity.id);
    team.form(&bo, &at("link"), "").await.expect(400);
    team.form(&bo, &at("remove"), "").await.expect(400);
    team.form(&session, &at("link"), "").await.expect(303);
    let done = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await.end(&team).await.expect(303);
    team.get(&session_of(&done).unwrap(), &format!("/runs/{}", team.run)).await.expect(200);

    // It is nobody else's from now on, and goes when its owner says so.
    let way = Way::begin(&team, &id, &bo, "/login/oidc?link=yes").await;
    refused(&comes(&team, &way.back(), &[&way.cookie, &as_bo]).await, 400, "opens another account already");
    team.form(&session, &at("remove"), "").await.expect(303);
    let way = Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await;
    refused(&way.end(&team).await, 403, "opens no account here yet");
}

/// What `config check` says of a provider, and whether a server would start.
async fn checked(issuer: String, secret: &str) -> (String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, secret).unwrap();
    let data = folder.path().join("data");
    let checked = tokio::task::spawn_blocking(move || {
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_rankscope"));
        check.args(["config", "check", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        check.args(["--public-url", "https://rankscope.example.org", "--oidc-client-id", CLIENT, "--oidc-issuer"]);
        check.arg(issuer).arg("--oidc-client-secret-file").arg(file).output().unwrap()
    });
    let checked = checked.await.unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(!said.contains(SECRET), "{said}");
    (said, checked.status.success())
}

#[tokio::test]
async fn config_check_asks_the_provider() {
    let id = Id::start().await;
    let (said, would_start) = checked(id.issuer.clone(), SECRET).await;
    assert!(would_start && said.contains("answers with its document and its keys"), "{said}");
    assert!(said.contains("https://rankscope.example.org/login/oidc/callback"), "{said}");
    assert!(said.contains("note   oidc-client-secret-file"), "{said}");
    let (said, would_start) = checked(id.issuer.clone(), " \n").await;
    assert!(!would_start && said.contains("holds no secret of a provider"), "{said}");
    let (said, would_start) = checked(format!("{}/", id.issuer), SECRET).await;
    assert!(!would_start && said.contains("oidc-issuer must be what it names"), "{said}");
    let (said, would_start) = checked("http://127.0.0.1:9".into(), SECRET).await;
    assert!(would_start && said.contains("until it does, nobody can sign in with it"), "{said}");
}

#[tokio::test]
async fn a_server_without_a_provider_has_no_such_way_and_a_disabled_account_none_either() {
    let without = Team::start().await;
    assert!(!without.get(&Caller::Nobody, "/login").await.expect(200).text().contains("Sign in with"));
    without.get(&Caller::Nobody, "/login/oidc").await.expect(404);
    without.get(&Caller::Nobody, "/login/oidc/callback?code=x&state=y").await.expect(404);

    let id = Id::start().await;
    let team = team(&id, NewUsers::Viewer).await;
    Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await.end(&team).await.expect(303);
    let ada = team.gate.accounts.user_by_name(&"ada@example.org".parse().unwrap()).await.unwrap();
    team.gate.accounts.set_disabled(&ada.id, true).await.unwrap();
    refused(&Way::begin(&team, &id, &Caller::Nobody, "/login/oidc").await.end(&team).await, 403, "disabled");
    assert!(!format!("{:?}", id.provider()).contains(SECRET));
}
