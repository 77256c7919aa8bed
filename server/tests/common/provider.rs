//! A provider of sign-ins for tests of what goes wrong: it signs whatever it is told to, also what no provider would. The
//! browser tests have a real one.

use super::{
    Answer, HOST,
    team::{Caller, Team},
};
use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD};
use openidconnect::{
    JsonWebKeyId, PrivateSigningKey,
    core::{CoreEdDsaPrivateSigningKey, CoreJwsSigningAlgorithm},
    url::{Url, form_urlencoded},
};
use rankscope::oidc::{Admission, CALLBACK, Provider, Settings};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

pub const CLIENT: &str = "rankscope";
pub const SECRET: &str = "the secret of the tests";
pub const CODE: &str = "a code";
/// Made for these tests; nothing else was ever signed with them.
const KEYS: [&str; 2] = [
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJow37O1eys8zYaI+uRPoLzz2m8Fmv5oaq+F4yOeiyQp\n-----END PRIVATE KEY-----\n",
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAqMRTf+mNyhTWAG+ouqzAgICZVRjTkyksLYdHsXH4aF\n-----END PRIVATE KEY-----\n",
];

/// What it answers.
pub struct Says {
    /// Parts of the ID token that are others than usual; `null` leaves one out.
    pub claims: Value,
    /// The head of the ID token, if it is another than usual.
    pub head: Option<Value>,
    /// Which of its keys signs.
    pub signs_with: usize,
    /// Which of its keys it names.
    pub names: usize,
    /// What it says of a person when it is asked; nothing without it.
    pub of_person: Option<Value>,
    /// What the token endpoint says instead.
    pub instead: Option<(StatusCode, Value)>,
    /// Leaves the ID token out.
    pub without_token: bool,
    /// Answers in the place of its document.
    pub document: Option<Document>,
    challenge: String,
    nonce: String,
}

/// What stands where its document should be.
#[derive(Clone)]
pub enum Document {
    Elsewhere(String),
    Large,
    Is(Value),
}

/// A provider that runs.
#[derive(Clone)]
pub struct Id {
    pub issuer: String,
    says: Arc<Mutex<Says>>,
    asked: Arc<Mutex<HashMap<String, u32>>>,
}

impl Id {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let says = Says {
            claims: json!({}),
            head: None,
            signs_with: 0,
            names: 0,
            of_person: None,
            instead: None,
            without_token: false,
            document: None,
            challenge: String::new(),
            nonce: String::new(),
        };
        let id = Self {
            issuer: format!("http://{}", listener.local_addr().unwrap()),
            says: Arc::new(Mutex::new(says)),
            asked: Arc::default(),
        };
        let router = Router::new().fallback(answer).with_state(id.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        id
    }

    /// As a server is set up for it.
    pub fn settings(&self) -> Settings {
        Settings {
            issuer: self.issuer.parse().unwrap(),
            client_id: CLIENT.into(),
            client_secret: SECRET.into(),
            redirect: format!("http://{HOST}{CALLBACK}"),
            label: "Our Id".into(),
            scopes: vec!["profile".into(), "email".into()],
            admission: Admission { groups_claim: "groups".into(), ..Admission::default() },
            ca_file: None,
        }
    }

    pub fn provider(&self) -> Provider {
        Provider::new(self.settings()).unwrap()
    }

    /// Changes what it says from now on.
    pub fn now(&self, change: impl FnOnce(&mut Says)) {
        change(&mut self.says.lock().unwrap());
    }

    /// How often a path was asked for.
    pub fn asked(&self, path: &str) -> u32 {
        self.asked.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    fn id_token(says: &Says, issuer: &str) -> String {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": issuer, "sub": "subject 1", "aud": CLIENT, "iat": at, "exp": at + 300, "nonce": says.nonce,
            "email": "ada@example.org", "email_verified": true,
        });
        for (name, value) in says.claims.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        let usual = json!({ "alg": "EdDSA", "kid": format!("key {}", says.names), "typ": "JWT" });
        let head = says.head.clone().unwrap_or(usual);
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let text = format!("{}.{}", part(&head), part(&claims));
        let signature = if head["alg"] == "none" { Vec::new() } else { signature(&head, says.signs_with, &text) };
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn signature(head: &Value, key: usize, text: &str) -> Vec<u8> {
    if head["alg"] == "HS256" {
        let key = openidconnect::core::CoreHmacKey::new(SECRET);
        return key.sign(&CoreJwsSigningAlgorithm::HmacSha256, text.as_bytes()).unwrap();
    }
    signing_key(key).sign(&CoreJwsSigningAlgorithm::EdDsa, text.as_bytes()).unwrap()
}

fn signing_key(n: usize) -> CoreEdDsaPrivateSigningKey {
    CoreEdDsaPrivateSigningKey::from_ed25519_pem(KEYS[n], Some(JsonWebKeyId::new(format!("key {n}")))).unwrap()
}

async fn answer(State(id): State<Id>, method: Method, uri: Uri, headers: HeaderMap, body: String) -> Response {
    *id.asked.lock().unwrap().entry(uri.path().to_owned()).or_default() += 1;
    let says = id.says.lock().unwrap();
    let issuer = &id.issuer;
    match (method.as_str(), uri.path()) {
        ("GET", "/.well-known/openid-configuration") => match says.document.clone() {
            Some(Document::Elsewhere(to)) => (StatusCode::FOUND, [(header::LOCATION, to)]).into_response(),
            Some(Document::Large) => {
                ([(header::CONTENT_TYPE, "application/json")], "[".repeat(1 << 20)).into_response()
            }
            Some(Document::Is(document)) => Json(document).into_response(),
            None => Json(json!({
                "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"), "userinfo_endpoint": format!("{issuer}/userinfo"),
                "jwks_uri": format!("{issuer}/jwks"), "response_types_supported": ["code"],
                "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["EdDSA"],
            }))
            .into_response(),
        },
        ("GET", "/jwks") => {
            let mut key = serde_json::to_value(signing_key(says.signs_with).as_verification_key()).unwrap();
            key["kid"] = format!("key {}", says.names).into();
            Json(json!({ "keys": [key] })).into_response()
        }
        ("POST", "/token") => {
            if let Some((status, instead)) = says.instead.clone() {
                return (status, Json(instead)).into_response();
            }
            let form: HashMap<String, String> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
            let refused = |error: &str| (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response();
            let of_client = STANDARD.encode(format!("{CLIENT}:{}", SECRET.replace(' ', "+")));
            if headers.get(header::AUTHORIZATION).is_none_or(|shown| shown != format!("Basic {of_client}").as_str()) {
                return refused("invalid_client");
            }
            let verifier = form.get("code_verifier").map_or("", String::as_str);
            let is_same = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)) == says.challenge;
            let comes_back = form.get("redirect_uri") == Some(&format!("http://{HOST}{CALLBACK}"));
            if !is_same || !comes_back || form.get("code").is_none_or(|code| code != CODE) {
                return refused("invalid_grant");
            }
            let mut tokens = json!({ "access_token": "an access token", "token_type": "Bearer", "expires_in": 300 });
            if !says.without_token {
                tokens["id_token"] = Id::id_token(&says, issuer).into();
            }
            Json(tokens).into_response()
        }
        ("GET", "/userinfo")
            if headers.get(header::AUTHORIZATION).is_some_and(|shown| shown == "Bearer an access token") =>
        {
            says.of_person.clone().map_or(StatusCode::NOT_FOUND.into_response(), |person| Json(person).into_response())
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// A browser on its way through the provider.
pub struct Way {
    /// What it was given before it left.
    pub cookie: String,
    /// What it was sent to.
    pub address: Url,
}

impl Way {
    /// Presses the button.
    pub async fn begin(team: &Team, id: &Id, caller: &Caller, link: &str) -> Self {
        let answer = team.get(caller, link).await.expect(303);
        Self::of(id, &answer)
    }

    pub fn of(id: &Id, answer: &Answer) -> Self {
        let address: Url = answer.header(header::LOCATION).parse().unwrap();
        assert!(address.as_str().starts_with(&format!("{}/authorize?", id.issuer)), "{address}");
        let cookie = answer.header(header::SET_COOKIE).to_owned();
        for part in ["rankscope_sign_in=", "HttpOnly", "SameSite=Lax", "Path=/;", "Max-Age=600"] {
            assert!(cookie.contains(part), "{part} is not in {cookie}");
        }
        let way = Self { cookie: cookie.split(';').next().unwrap().to_owned(), address };
        id.now(|says| (says.challenge, says.nonce) = (way.of_address("code_challenge"), way.of_address("nonce")));
        way
    }

    /// A part of the address at the provider.
    pub fn of_address(&self, name: &str) -> String {
        self.address.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap()
    }

    /// Where the provider sends the browser back.
    pub fn back(&self) -> String {
        format!("{CALLBACK}?code={}&state={}", CODE.replace(' ', "+"), self.of_address("state"))
    }

    /// Comes back, as it was sent.
    pub async fn end(&self, team: &Team) -> Answer {
        comes(team, &self.back(), &[&self.cookie]).await
    }
}

/// A browser from another site with these cookies.
pub async fn comes(team: &Team, path: &str, cookies: &[&str]) -> Answer {
    let request = super::request(Method::GET, path).header("sec-fetch-site", "cross-site");
    let request = request.header(header::COOKIE, cookies.join("; "));
    team.server.send(request.body(Body::empty()).unwrap()).await
}
