//! A server with accounts: two projects with a run each, and people and programs of every kind.

use super::{Answer, HOST, Server, data, multipart, multipart_type, request};
use axum::{
    body::Body,
    http::{Method, Request, header},
};
use rankscope::{
    access::{Gate, Proxies, WithoutUsers},
    accounts::{Accounts, NewUsers, Role, Scope, Scopes, User},
    http::{AppState, Front, PublicUrl, router},
    intake,
    limits::Limits,
    listener::Peer,
    live::{Live, LiveOptions},
    multipart::Form,
    oidc::Provider,
    service::Service,
    store::Store,
};
use std::{net::IpAddr, sync::Arc};

pub const PASSWORD: &str = "correct horse battery";

pub struct Team {
    pub server: Server,
    pub gate: Arc<Gate>,
    /// Where most are members, and its run.
    pub project: String,
    pub run: String,
    /// Where only the stranger is, and its run.
    pub other: String,
    pub other_run: String,
}

/// How a request shows who sends it.
#[derive(Debug, Clone)]
pub enum Caller {
    Nobody,
    Session(String),
    Token(String),
}

#[derive(Default)]
pub struct Options {
    pub limits: Limits,
    pub public_url: Option<PublicUrl>,
    pub proxies: Proxies,
    /// With whom people sign in, and what becomes of who is new.
    pub sign_in: Option<(Provider, NewUsers)>,
    /// Takes live data, as `serve` does.
    pub live: Option<LiveOptions>,
}

impl Team {
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    pub async fn with(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let gate = Arc::new(Gate::new(Accounts::of(&store), WithoutUsers::SetUp, options.proxies));
        let service = Arc::new(Service::new(store, options.limits));
        let front = Front::new(HOST.parse().unwrap(), options.public_url);
        let mut state = AppState::new(Arc::clone(&service), front).with_gate(Arc::clone(&gate));
        if let Some(options) = options.live {
            state = state.with_live(Live::open(&folder.path().join("live"), options).unwrap());
        }
        if let Some((provider, new_users)) = options.sign_in {
            state = state.with_sign_in(provider, new_users);
        }
        let server = Server { router: router(state), service, folder, live: None };
        let mut team = Self {
            server,
            gate,
            project: String::new(),
            run: String::new(),
            other: String::new(),
            other_run: String::new(),
        };
        team.user("root", true, &[]).await;
        team.project = team.gate.accounts.add_project("Ours").await.unwrap().id;
        team.other = team.gate.accounts.add_project("Theirs").await.unwrap().id;
        team.run = team.run_in(&team.project, "our run").await;
        team.other_run = team.run_in(&team.other, "their run").await;
        team
    }

    /// A run that nobody had to send.
    async fn run_in(&self, project: &str, title: &str) -> String {
        let service = &self.server.service;
        let form = multipart(&[("files", Some("nvidia-smi.txt"), &data("nvidia-smi.txt"))]);
        let form = Form::new(multipart_type().as_bytes(), form.into(), u64::MAX, Limits::default().pace()).unwrap();
        let mut upload = intake::receive(form, &service.store, &service.limits).await.unwrap();
        (upload.title, upload.project) = (Some(title.to_owned()), Some(project.to_owned()));
        service.create_run(upload).await.unwrap().report.run.id.clone()
    }

    /// A user who is this in these projects.
    pub async fn user(&self, name: &str, is_admin: bool, roles: &[(&str, Role)]) -> User {
        let accounts = &self.gate.accounts;
        let user = accounts.add_user(&name.parse().unwrap(), is_admin).await.unwrap();
        for (project, role) in roles {
            accounts.set_member(project, &name.parse().unwrap(), Some(*role)).await.unwrap();
        }
        user
    }

    /// The same, signed in.
    pub async fn member(&self, name: &str, role: Role) -> Caller {
        let user = self.user(name, false, &[(&self.project, role)]).await;
        self.session(&user).await
    }

    pub async fn session(&self, user: &User) -> Caller {
        Caller::Session(self.gate.accounts.start_session(&user.id).await.unwrap().secret)
    }

    pub async fn token(&self, user: &User, project: &str, scopes: &[Scope]) -> Caller {
        let scopes = Scopes::new(scopes);
        Caller::Token(self.gate.accounts.add_token(&user.id, project, "t", &scopes, None).await.unwrap().token)
    }

    /// A run of our own test data.
    pub async fn upload(&self, caller: &Caller, project: &str, title: &str) -> String {
        let answer = self.try_upload(caller, Some(project), title).await.expect(201).json();
        answer["id"].as_str().unwrap().to_owned()
    }

    pub async fn try_upload(&self, caller: &Caller, project: Option<&str>, title: &str) -> Answer {
        let smi = data("nvidia-smi.txt");
        let mut parts = vec![("title", None, title.as_bytes()), ("files", Some("nvidia-smi.txt"), smi.as_slice())];
        if let Some(project) = project {
            parts.push(("project", None, project.as_bytes()));
        }
        let sent = Self::by(caller, Method::POST, "/api/v1/runs").header(header::CONTENT_TYPE, multipart_type());
        self.server.send(sent.body(multipart(&parts).into()).unwrap()).await
    }

    /// A request as the caller's browser or program sends it.
    pub fn by(caller: &Caller, method: Method, path: &str) -> axum::http::request::Builder {
        let request = request(method, path);
        match caller {
            Caller::Nobody => request,
            Caller::Session(secret) => request
                .header(header::COOKIE, format!("rankscope_session={secret}"))
                .header(header::ORIGIN, format!("http://{HOST}")),
            Caller::Token(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
        }
    }

    pub async fn get(&self, caller: &Caller, path: &str) -> Answer {
        self.server.send(Self::by(caller, Method::GET, path).body(Body::empty()).unwrap()).await
    }

    pub async fn form(&self, caller: &Caller, path: &str, form: &str) -> Answer {
        let sent =
            Self::by(caller, Method::POST, path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.server.send(sent.body(form.to_owned().into()).unwrap()).await
    }

    pub async fn json(&self, caller: &Caller, method: Method, path: &str, json: serde_json::Value) -> Answer {
        let sent = Self::by(caller, method, path).header(header::CONTENT_TYPE, "application/json");
        self.server.send(sent.body(json.to_string().into()).unwrap()).await
    }
}

/// Puts a request onto a connection from this address.
pub fn from(mut request: Request<Body>, address: &str) -> Request<Body> {
    let address: IpAddr = address.parse().unwrap();
    request.extensions_mut().insert(Peer((address, 40000).into()));
    request
}

/// The session that an answer begins.
pub fn session_of(answer: &Answer) -> Option<Caller> {
    let cookies = answer.headers.get_all(header::SET_COOKIE).iter().map(|cookie| cookie.to_str().unwrap());
    let mut secrets = cookies.filter_map(|cookie| cookie.split(';').next()?.strip_prefix("rankscope_session="));
    secrets.find(|secret| !secret.is_empty()).map(|secret| Caller::Session(secret.to_owned()))
}
