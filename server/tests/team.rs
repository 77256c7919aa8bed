//! A team at work: people and programs do what they may, and see what is theirs.

mod common;

use axum::http::{Method, header};
use common::{
    live,
    team::{Caller, Options, PASSWORD, Team, from, session_of},
};
use rankscope::{
    access::Proxies,
    accounts::{DEFAULT_PROJECT, Role, Scope},
    live::LiveOptions,
};
use serde_json::json;

#[tokio::test]
async fn lists_and_pages_hold_what_is_ones_own() {
    let team = Team::start().await;
    let viewer = team.member("vi", Role::Viewer).await;
    let titles = |answer: common::Answer| {
        let json = answer.expect(200).json();
        json["runs"].as_array().unwrap().iter().map(|run| run["title"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(titles(team.get(&viewer, "/api/v1/runs").await), ["our run"]);
    for query in ["their", "their%20run", "%27%20OR%201%3D1%20--", "%25", "x%27)%20OR%20(1=1"] {
        let found = titles(team.get(&viewer, &format!("/api/v1/runs?query={query}")).await);
        assert!(found.iter().all(|title| title == "our run"), "{query}: {found:?}");
    }
    let home = team.get(&viewer, "/").await.expect(200).text();
    assert!(home.contains("our run") && !home.contains("their run"), "{home}");
    assert!(home.contains("Sign out") && home.contains(">vi<"));
    assert!(!home.contains("<form class=\"evidence"), "who may only read is offered no upload");
    let page = team.get(&viewer, &format!("/runs/{}", team.run)).await.expect(200).text();
    assert!(page.contains("Ours"));
    let forms = |page: &str| ["Create link", "Move there", "Rename", "Delete this run"].map(|form| page.contains(form));
    assert_eq!(forms(&page), [false; 4], "who may only read is offered nothing else");
    let editor = team.member("ed", Role::Editor).await;
    let page = team.get(&editor, &format!("/runs/{}", team.run)).await.expect(200).text();
    assert_eq!(forms(&page), [true, false, true, false], "one project is no place to move to");
    let admin = team.member("ad", Role::Admin).await;
    let page = team.get(&admin, &format!("/runs/{}", team.run)).await.expect(200).text();
    assert_eq!(forms(&page), [true, false, true, true]);
    let choice = team.get(&viewer, "/compare").await.expect(200).text();
    assert!(!choice.contains("their run"));

    // Somebody else's run is like one that never was.
    let theirs = team.get(&viewer, &format!("/api/v1/runs/{}", team.other_run)).await;
    let none = team.get(&viewer, "/api/v1/runs/0198-none").await;
    assert_eq!((theirs.status, theirs.text()), (none.status, none.text()));
    let theirs = team.get(&viewer, &format!("/compare?base={}&head={}", team.run, team.other_run)).await;
    let none = team.get(&viewer, &format!("/compare?base={}&head=0198-none", team.run)).await;
    assert_eq!((theirs.status, theirs.text()), (none.status, none.text()));
    assert_eq!(theirs.status, 404);
    let twice = format!("/api/v1/compare?base={}&head={}&head={}", team.run, team.run, team.other_run);
    assert_eq!(team.get(&viewer, &twice).await.status, 404);
}

#[tokio::test]
async fn runs_go_to_projects_and_move_between_them() {
    let team = Team::start().await;
    let roles = [(team.project.as_str(), Role::Editor), (team.other.as_str(), Role::Editor)];
    let both = team.user("bo", false, &roles).await;
    let both = team.session(&both).await;
    let editor = team.member("ed", Role::Editor).await;
    let home = team.get(&both, "/").await.text();
    assert!(home.contains("<select") && home.contains("Ours") && home.contains("Theirs"), "{home}");
    assert!(!team.get(&editor, "/").await.text().contains("name=\"project\""), "one project is no choice");

    let made = team.try_upload(&editor, None, "without a choice").await.expect(201).json();
    let made = made["id"].as_str().unwrap();
    assert_eq!(team.server.service.store.project_of_run(made).await.unwrap(), team.project);
    assert_eq!(team.try_upload(&editor, Some(&team.other), "x").await.problem(400), "/problems/invalid-request");
    assert_eq!(team.try_upload(&editor, Some("' OR 1=1"), "x").await.problem(400), "/problems/invalid-request");

    let address = format!("/runs/{}/project", team.run);
    team.form(&editor, &address, &format!("project={}", team.other)).await.expect(400);
    let page = team.get(&both, &format!("/runs/{}", team.run)).await.text();
    assert!(page.contains("Move there") && page.contains("Theirs"));
    team.form(&both, &address, &format!("project={}", team.other)).await.expect(303);
    team.get(&editor, &format!("/runs/{}", team.run)).await.expect(404);
    team.get(&both, &format!("/runs/{}", team.run)).await.expect(200);
}

#[tokio::test]
async fn a_proof_of_a_fix_shows_nothing_of_another_project() {
    let team = Team::start().await;
    let editor = team.member("ed", Role::Editor).await;
    let after = format!("/api/v1/runs/{}/after", team.run);
    team.json(&editor, Method::POST, &after, json!({ "run": team.other_run })).await.problem(404);
    let form = format!("/runs/{}/after", team.run);
    team.form(&editor, &form, &format!("run={}", team.other_run)).await.expect(404);
    // Named by who sees both, it stays hidden from who sees one.
    team.server.service.store.attach_after(&team.run, &team.other_run).await.unwrap();
    let item = team.get(&editor, &format!("/api/v1/runs/{}/checklist/verified", team.run)).await.expect(200).text();
    assert!(!item.contains(&team.other_run) && !item.contains("their run"), "{item}");
    let page = team.get(&editor, &format!("/runs/{}/checklist/verify", team.run)).await.expect(200).text();
    assert!(!page.contains(&team.other_run) && !page.contains("their run"));
}

#[tokio::test]
async fn rights_end_at_the_next_request() {
    let team = Team::start().await;
    let editor = team.member("ed", Role::Editor).await;
    let name = "ed".parse().unwrap();
    let rename = async || {
        let path = format!("/api/v1/runs/{}", team.run);
        team.json(&editor, Method::PATCH, &path, json!({ "title": "our run" })).await.status.as_u16()
    };
    assert_eq!(rename().await, 204);
    team.gate.accounts.set_member(&team.project, &name, Some(Role::Viewer)).await.unwrap();
    assert_eq!(rename().await, 403);
    team.gate.accounts.set_member(&team.project, &name, None).await.unwrap();
    assert_eq!(rename().await, 404);
    let user = team.gate.accounts.user_by_name(&name).await.unwrap();
    team.gate.accounts.set_disabled(&user.id, true).await.unwrap();
    assert_eq!(rename().await, 401);
}

#[tokio::test]
async fn people_sign_in_and_out_and_change_their_password() {
    let team = Team::start().await;
    let ada = team.user("ada", false, &[(&team.project, Role::Editor)]).await;
    team.gate.accounts.set_password(&ada, PASSWORD.into()).await.unwrap();
    let start = team.get(&Caller::Nobody, &format!("/runs/{}?version=1", team.run)).await.expect(303);
    let login = start.header(header::LOCATION).to_owned();
    assert!(login.starts_with("/login?next=/runs/"), "{login}");
    let form = team.get(&Caller::Nobody, &login).await.expect(200);
    assert!(form.text().contains(&format!("value=\"/runs/{}?version=1\"", team.run)), "{}", form.text());
    assert_eq!(form.header(header::CACHE_CONTROL), "no-store");

    let enter = async |password: &str| {
        let fields = format!("name=Ada&password={}&next=/runs/{}", password.replace(' ', "+"), team.run);
        team.form(&Caller::Nobody, "/login", &fields).await
    };
    let wrong = enter("wrong horse battery").await.expect(401);
    assert!(wrong.text().contains("The name or the password is not right.") && session_of(&wrong).is_none());
    let right = enter(PASSWORD).await.expect(303);
    assert_eq!(right.header(header::LOCATION), format!("/runs/{}", team.run));
    let cookie = right.header(header::SET_COOKIE);
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax") && cookie.contains("Path=/;"), "{cookie}");
    let (here, there) = (session_of(&right).unwrap(), session_of(&enter(PASSWORD).await).unwrap());
    team.get(&here, "/settings").await.expect(200);

    let change = async |current: &str, new: &str| {
        let fields = format!("current={}&password={}", current.replace(' ', "+"), new.replace(' ', "+"));
        team.form(&here, "/settings/password", &fields).await
    };
    assert!(change("guess", "another horse battery").await.expect(400).text().contains("is not right"));
    assert!(change(PASSWORD, "short").await.expect(400).text().contains("at least 12"));
    let changed = change(PASSWORD, "another horse battery").await.expect(303);
    let here_now = session_of(&changed).unwrap();
    team.get(&there, "/settings").await.expect(303);
    team.get(&here, "/settings").await.expect(303);
    team.get(&here_now, "/settings").await.expect(200);
    enter(PASSWORD).await.expect(401);

    let out = team.form(&here_now, "/logout", "").await.expect(303);
    assert!(out.header(header::SET_COOKIE).contains("Max-Age=0"));
    team.get(&here_now, "/settings").await.expect(303);
}

#[tokio::test]
async fn administrators_add_people_who_choose_their_own_password() {
    let team = Team::start().await;
    let root = team.gate.accounts.user_by_name(&"root".parse().unwrap()).await.unwrap();
    let root = team.session(&root).await;
    let added = team.form(&root, "/settings/users", "name=New.One").await.expect(303);
    let carried = added.headers.get_all(header::SET_COOKIE).iter().map(|cookie| cookie.to_str().unwrap());
    let carried = carried.filter_map(|cookie| cookie.split(';').next()).collect::<Vec<_>>().join("; ");
    let Caller::Session(secret) = &root else { unreachable!() };
    let page = Team::by(&Caller::Nobody, Method::GET, "/settings/users");
    let page = page.header(header::COOKIE, format!("rankscope_session={secret}; {carried}"));
    let page = team.server.send(page.body(axum::body::Body::empty()).unwrap()).await.expect(200);
    let ended =
        page.headers.get_all(header::SET_COOKIE).iter().any(|cookie| cookie.to_str().unwrap().contains("Max-Age=0"));
    assert!(ended, "the page that shows the link ends its cookie");
    let text = page.text();
    let link = text.split("http://127.0.0.1:3000/setup/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert!(!team.get(&root, "/settings/users").await.text().contains(&link), "shown once");

    let path = format!("/setup/{link}");
    assert!(team.get(&Caller::Nobody, &path).await.expect(200).text().contains("new.one"));
    assert!(team.form(&Caller::Nobody, &path, "password=short").await.expect(400).text().contains("at least 12"));
    let fields = "password=correct+horse+battery&name=root";
    let done = team.form(&Caller::Nobody, &path, fields).await.expect(303);
    let new = session_of(&done).unwrap();
    assert!(team.get(&new, "/").await.expect(200).text().contains("new.one"));
    team.form(&Caller::Nobody, &path, fields).await.expect(404);
    team.get(&Caller::Nobody, &path).await.expect(404);

    // Membership, then rights, by the forms.
    team.get(&new, &format!("/runs/{}", team.run)).await.expect(404);
    let members = format!("/settings/projects/{}/members", team.project);
    team.form(&root, &members, "name=new.one&role=admin").await.expect(303);
    team.get(&new, &format!("/runs/{}", team.run)).await.expect(200);
    let projects = team.get(&new, "/settings/projects").await.expect(200).text();
    assert!(projects.contains("Ours") && !projects.contains("Theirs"));
    team.form(&root, &members, "name=new.one&role=owner").await.expect(400);
    team.form(&root, &members, "name=ghost&role=viewer").await.expect(400);
    let user = team.gate.accounts.user_by_name(&"new.one".parse().unwrap()).await.unwrap();
    team.form(&root, &format!("/settings/users/{}/administrator", user.id), "to=yes").await.expect(303);
    team.get(&new, "/settings/users").await.expect(200);
    team.form(&root, &format!("/settings/users/{}/disabled", user.id), "to=yes").await.expect(303);
    team.get(&new, "/").await.expect(303);
    team.form(&root, &format!("/settings/users/{}/disabled", user.id), "to=perhaps").await.expect(400);

    let record = team.get(&root, "/settings/audit").await.expect(200).text();
    for word in [
        "Added a user",
        "new.one",
        "Set a password",
        "Signed in",
        "as admin of Ours",
        "Made an administrator",
        "Disabled a user",
    ] {
        assert!(record.contains(word), "{word} is not in the record");
    }
    assert!(!record.contains(&link));
}

#[tokio::test]
async fn programs_use_tokens_within_their_scopes() {
    let team = Team::start().await;
    let ed = team.user("ed", false, &[(&team.project, Role::Editor)]).await;
    let session = team.session(&ed).await;
    let fields = format!("name=ci&project={}&upload=yes&ends=3600", team.project);
    let made = team.form(&session, "/settings/tokens", &fields).await.expect(303);
    let cookie = made.header(header::SET_COOKIE).to_owned();
    let token = cookie.split_once("token.").unwrap().1.split(';').next().unwrap().to_owned();
    let token = Caller::Token(token);
    let run = team.try_upload(&token, None, "from a script").await.expect(201).json();
    let run = run["id"].as_str().unwrap();
    assert_eq!(team.server.service.store.project_of_run(run).await.unwrap(), team.project);
    assert_eq!(team.get(&token, &format!("/api/v1/runs/{run}")).await.problem(403), "/problems/not-allowed");
    assert_eq!(team.try_upload(&token, Some(&team.other), "x").await.problem(400), "/problems/invalid-request");
    let page = team.get(&session, "/settings").await.expect(200).text();
    assert!(page.contains("ci") && page.contains("last used") && !page.contains("rks_"));

    let id = team.gate.accounts.tokens_of(&ed.id).await.unwrap()[0].id.clone();
    let bo = team.member("bo", Role::Admin).await;
    team.form(&bo, &format!("/settings/tokens/{id}/revoke"), "").await.expect(404);
    team.form(&session, &format!("/settings/tokens/{id}/revoke"), "").await.expect(303);
    let refused = team.try_upload(&token, None, "x").await;
    assert_eq!(refused.header(header::WWW_AUTHENTICATE), "Bearer");
    assert_eq!(refused.problem(401), "/problems/sign-in-needed");

    // Nobody makes a token for more than he may himself.
    let viewer = team.member("vi", Role::Viewer).await;
    let ask = |scope: &str| format!("name=x&project={}&{scope}=yes", team.project);
    team.form(&viewer, "/settings/tokens", &ask("upload")).await.expect(403);
    team.form(&viewer, "/settings/tokens", &ask("samples")).await.expect(403);
    team.form(&viewer, "/settings/tokens", &ask("read")).await.expect(303);
    team.form(&viewer, "/settings/tokens", &format!("name=x&project={}&read=yes", team.other)).await.expect(400);
    team.form(&viewer, "/settings/tokens", &format!("name=x&project={}", team.project)).await.expect(400);
    // A token is no session: it opens no page.
    let token = team.token(&ed, &team.project, &Scope::ALL).await;
    team.get(&token, "/").await.expect(403);
    team.get(&token, "/settings").await.expect(403);
}

#[tokio::test]
async fn samples_come_with_a_token_and_are_seen_by_members_of_the_default_project() {
    let team = Team::with(Options { live: Some(LiveOptions::default()), ..Options::default() }).await;
    let ed = team.user("ed", false, &[(DEFAULT_PROJECT, Role::Editor), (&team.project, Role::Editor)]).await;
    let agent = team.token(&ed, DEFAULT_PROJECT, &[Scope::Samples]).await;
    let elsewhere = team.token(&ed, &team.project, &[Scope::Samples]).await;
    let mut source = live::Agent::new("a", "node-7");
    let batch = source.batch(&[(live::now(), live::node(2))]);
    let send = async |caller: &Caller| {
        let sent = Team::by(caller, Method::POST, "/api/v1/samples").body(batch.clone().into()).unwrap();
        team.server.send(sent).await
    };
    // Being on this machine is no reason to be listened to, and neither is a seat in a browser.
    assert_eq!(send(&Caller::Nobody).await.problem(401), "/problems/token-missing");
    assert_eq!(send(&Caller::Token("rks_guess".into())).await.problem(401), "/problems/token-missing");
    let session = team.session(&ed).await;
    assert_eq!(send(&session).await.problem(403), "/problems/not-allowed");
    let page = async |who: &Caller| team.get(who, "/live").await.expect(200).text();
    let viewer = team.session(&team.user("vi", false, &[(DEFAULT_PROJECT, Role::Viewer)]).await).await;
    assert!(
        page(&session).await.contains("3 times, ") && page(&session).await.contains("it may not send live data here")
    );
    send(&Caller::Nobody).await.problem(401);
    let told = page(&session).await;
    assert!(told.contains("4 times, ") && told.contains("it shows no token that this server knows"), "{told}");
    assert!(!page(&viewer).await.contains("was turned away"), "addresses are for those who may do something");
    send(&elsewhere).await.problem(404);
    assert!(page(&session).await.contains("5 times, "));
    send(&agent).await.expect(200);

    let nodes = team.get(&session, "/api/v1/nodes").await.expect(200).json();
    assert_eq!(nodes["nodes"][0]["node"], "node-7", "{nodes}");
    assert!(team.get(&session, "/live").await.expect(200).text().contains("node-7"));
    team.get(&agent, "/api/v1/nodes").await.problem(403);
    let stranger = team.member("st", Role::Admin).await;
    team.get(&stranger, "/api/v1/nodes").await.problem(404);
    team.get(&stranger, "/live").await.expect(404);
    team.get(&stranger, "/api/v1/live/events").await.problem(404);
}

#[tokio::test]
async fn notes_carry_the_name_of_who_has_signed_in() {
    let team = Team::start().await;
    let editor = team.member("ed", Role::Editor).await;
    let item = format!("/runs/{}/checklist/device_visibility", team.run);
    team.form(&editor, &format!("{item}/notes"), "status=holds&note=seen&author=root").await.expect(303);
    let path = format!("/api/v1{item}");
    team.json(&editor, Method::POST, &path, json!({ "note": "again", "author": "root" })).await.expect(201);
    let notes = team.get(&editor, &path).await.expect(200).json();
    let authors: Vec<_> = notes["notes"].as_array().unwrap().iter().map(|note| note["author"].clone()).collect();
    assert_eq!(authors, ["ed", "ed"]);
}

#[tokio::test]
async fn shares_stay_open_to_who_has_the_link_and_are_recorded() {
    let team = Team::start().await;
    let editor = team.member("ed", Role::Editor).await;
    let path = format!("/api/v1/runs/{}/shares", team.run);
    let share = team.json(&editor, Method::POST, &path, json!({ "expires_in": 3600 })).await.expect(201).json();
    let url = share["url"].as_str().unwrap();
    let page = team.get(&Caller::Nobody, url).await.expect(200).text();
    assert!(page.contains("read-only") && !page.contains("Ours"), "a share shows no project");
    team.get(&Caller::Nobody, &format!("{url}/preview.png")).await.expect(200);
    team.get(&Caller::Nobody, &format!("{url}/charts/imbalance.svg")).await.expect(200);
    let share = format!("/api/v1/shares/{}", share["id"].as_str().unwrap());
    let other = team.user("ot", false, &[(&team.other, Role::Admin)]).await;
    let other = team.session(&other).await;
    team.json(&other, Method::DELETE, &share, json!({})).await.problem(404);
    team.json(&editor, Method::DELETE, &share, json!({})).await.expect(204);
    team.get(&Caller::Nobody, url).await.expect(410);
    let admin = team.member("ad", Role::Admin).await;
    let run = format!("/api/v1/runs/{}", team.run);
    team.json(&admin, Method::DELETE, &run, json!({})).await.expect(204);
    let record = team.gate.accounts.audit(10).await.unwrap();
    let done: Vec<_> = record.iter().map(|entry| (entry.user_name.as_str(), entry.action.as_str())).collect();
    assert!(done.contains(&("ed", "Shared a report")) && done.contains(&("ed", "Revoked a share")), "{done:?}");
    assert_eq!(done[0], ("ad", "Deleted a run"));
}

#[tokio::test]
async fn trusted_proxies_say_who_comes_and_nobody_else_does() {
    let proxies =
        Proxies { networks: vec!["10.1.0.0/16".parse().unwrap()], user_header: Some("x-remote-user".parse().unwrap()) };
    let team = Team::with(Options { proxies, ..Options::default() }).await;
    team.user("ada", false, &[(&team.project, Role::Viewer)]).await;
    let ask = async |address: &str, method: Method, path: &str, origin: bool| {
        let mut request = common::request(method, path).header("x-remote-user", "Ada");
        if origin {
            request = request.header(header::ORIGIN, "http://127.0.0.1:3000");
        }
        team.server.send(from(request.body(axum::body::Body::empty()).unwrap(), address)).await.status.as_u16()
    };
    let run = format!("/runs/{}", team.run);
    assert_eq!(ask("10.1.2.3", Method::GET, &run, false).await, 200);
    assert_eq!(ask("10.1.2.3", Method::GET, &format!("/runs/{}", team.other_run), false).await, 404);
    for stranger in ["10.2.0.1", "127.0.0.1", "203.0.113.9"] {
        assert_eq!(ask(stranger, Method::GET, &run, false).await, 303, "{stranger}");
    }
    // What a proxy adds by itself is no proof that its user wanted the change.
    assert_eq!(ask("10.1.2.3", Method::POST, "/settings/tokens", false).await, 403);
    assert_eq!(ask("10.1.2.3", Method::POST, "/settings/tokens", true).await, 400);
}

#[tokio::test]
async fn how_long_runs_are_kept_is_seen_before_it_is_set_and_decided_by_its_admins() {
    let team = Team::start().await;
    let admin = team.member("ada", Role::Admin).await;
    let editor = team.member("ed", Role::Editor).await;
    let page = format!("/settings/projects/{}/retention", team.project);
    team.get(&editor, &page).await.expect(403);
    team.form(&editor, &page, "days=1&size=").await.expect(403);
    team.get(&admin, &format!("/settings/projects/{}/retention", team.other)).await.expect(404);
    assert!(team.get(&admin, "/settings/projects").await.text().contains(&page));

    let shown = team.get(&admin, &page).await.expect(200).text();
    assert!(shown.contains("kept until somebody deletes them") && !shown.contains("Set these limits"), "{shown}");
    let asked = team.get(&admin, &format!("{page}?days=&size=1KiB")).await.expect(200).text();
    for words in ["our run", "too many bytes", "1 run of 1 would be deleted", "Set these limits"] {
        assert!(asked.contains(words), "{words}: {asked}");
    }
    assert!(!asked.contains("their run"));
    let asked = team.get(&admin, &format!("{page}?days=30&size=")).await.expect(200).text();
    assert!(
        asked.contains("Nothing of the 1 run would be deleted now") && asked.contains("Set these limits"),
        "{asked}"
    );
    let asked = team.get(&admin, &format!("{page}?days=soon&size=")).await.expect(200).text();
    assert!(asked.contains("is not a whole number of days") && !asked.contains("Set these limits"), "{asked}");
    team.form(&admin, &page, "days=&size=lots").await.expect(400);
    assert!(team.get(&admin, &page).await.text().contains("kept until somebody deletes them"), "asking sets nothing");

    team.form(&admin, &page, "days=&size=1KiB").await.expect(303);
    let shown = team.get(&admin, &page).await.expect(200).text();
    assert!(shown.contains("1 run is past the limits and is deleted") && shown.contains("value=\"1KiB\""), "{shown}");
    let store = &team.server.service.store;
    assert_eq!(store.take_job("x").await.unwrap(), None, "there is an hour to think again");
    // With a link to it the run stays.
    let share =
        team.json(&admin, Method::POST, &format!("/api/v1/runs/{}/shares", team.run), json!({})).await.expect(201);
    let spared = team.get(&admin, &page).await.expect(200).text();
    assert!(spared.contains("a link to it works") && spared.contains("Nothing is past the limits now"), "{spared}");
    drop(share);
    team.form(&admin, &page, "days=&size=").await.expect(303);
    let root = team.gate.accounts.user_by_name(&"root".parse().unwrap()).await.unwrap();
    let root = team.session(&root).await;
    let record = team.get(&root, "/settings/audit").await.text();
    assert!(record.contains("Ours: no limit, 1024 bytes") && record.contains("Ours: no limit, no limit"), "{record}");
}

#[tokio::test]
async fn files_are_read_again_by_editors_and_the_page_says_so_until_it_is_done() {
    let team = Team::start().await;
    let editor = team.member("ed", Role::Editor).await;
    let viewer = team.member("vi", Role::Viewer).await;
    let page = format!("/runs/{}", team.run);
    let form = format!("{page}/read-again");
    team.form(&viewer, &form, "").await.expect(403);
    assert!(!team.get(&viewer, &page).await.text().contains("Read the files again"));
    assert!(team.get(&editor, &page).await.text().contains("Read the files again"));
    team.form(&editor, &form, "").await.expect(303);
    for caller in [&editor, &viewer] {
        let shown = team.get(caller, &page).await.expect(200).text();
        assert!(shown.contains("being read in the background") && shown.contains("http-equiv=\"refresh\""), "{shown}");
    }
    let run = format!("/api/v1{page}");
    assert_eq!(team.get(&viewer, &run).await.json()["waiting"], 1);
    let (end, ends) = tokio::sync::watch::channel(false);
    let working = tokio::spawn(rankscope::jobs::work(std::sync::Arc::clone(&team.server.service), ends));
    while team.get(&viewer, &run).await.json()["waiting"] != 0 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    end.send_replace(true);
    working.await.unwrap();
    assert_eq!(team.get(&viewer, &run).await.json()["version"], 2);
    let shown = team.get(&editor, &page).await.expect(200).text();
    assert!(!shown.contains("being read in the background"));
    // What it says is what it said: nothing was changed between.
    let before = team.get(&viewer, &format!("{run}?version=1")).await.json();
    assert_eq!(team.get(&viewer, &run).await.json()["diagnosis"], before["diagnosis"]);
}
