//! A provider: what it says of itself is kept for a while, its keys are fetched anew when a token is signed with one that
//! is not known, and never often.

use super::{
    address::{Issuer, may_be_asked},
    ask::Asker,
    failure::{Failure, told},
    person::{Admission, Person},
    words::{Claims, Client, Tokens},
};
use openidconnect::{
    AccessTokenHash, AuthType, AuthenticationFlow, AuthorizationCode, ClaimsVerificationError, ClientId, ClientSecret,
    CsrfToken, Nonce, OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
    SignatureVerificationError, TokenResponse,
    core::{CoreClientAuthMethod, CoreJwsSigningAlgorithm, CoreProviderMetadata, CoreResponseType},
};
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Mutex, Semaphore},
    time::timeout,
};

/// How long what a provider says of itself is believed.
const KEPT: Duration = Duration::from_hours(1);
/// Unknown keys are looked for at most so often: whoever sends odd tokens must not make us ask without end.
const RENEWED_EVERY: Duration = Duration::from_mins(1);
/// After a try that failed the next one waits so long, and who comes meanwhile hears the same.
const TRIED_EVERY: Duration = Duration::from_secs(3);
/// Sign-ins that ask the provider at the same time.
const AT_ONCE: usize = 8;
/// How long one waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// Random bytes of what must not be guessed.
const RANDOM_BYTES: u32 = 32;

/// Signatures that are believed: those with a key that the provider alone has. `none` is no signature, and the key of
/// HS256 and its like is the secret that this server has too.
const SIGNATURES: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// What is agreed with a provider.
#[derive(Clone)]
pub struct Settings {
    /// Which one.
    pub issuer: Issuer,
    /// Under which name it knows this server.
    pub client_id: String,
    /// And by which secret.
    pub client_secret: String,
    /// Where it sends people back: an address of this server that it knows.
    pub redirect: String,
    /// What people know it by.
    pub label: String,
    /// What it is asked to say, beside who it is.
    pub scopes: Vec<String>,
    /// Who may come in.
    pub admission: Admission,
    /// Authorities of its certificate instead of Mozilla's list.
    pub ca_file: Option<PathBuf>,
}

/// A sign-in that begins.
#[derive(Debug)]
pub struct Begun {
    /// Where the browser goes.
    pub address: String,
    /// Comes back with it.
    pub state: String,
    /// Comes back inside the token.
    pub nonce: String,
    /// Shows that the same server asks for the token.
    pub verifier: String,
}

/// One provider.
pub struct Provider {
    settings: Settings,
    asker: Asker,
    known: Mutex<Known>,
    turns: Arc<Semaphore>,
}

#[derive(Default)]
struct Known {
    metadata: Option<(Arc<CoreProviderMetadata>, Instant)>,
    failed: Option<(Failure, Instant)>,
    /// When an unknown key was looked for last.
    renewed: Option<Instant>,
}

impl std::fmt::Debug for Provider {
    /// Without its secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Provider({})", self.settings.issuer)
    }
}

impl Provider {
    /// Asks nobody yet: a server starts also while the provider is away.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        RedirectUrl::new(settings.redirect.clone())?;
        let asker = Asker::new(settings.issuer.is_here(), settings.ca_file.as_deref())?;
        Ok(Self { settings, asker, known: Mutex::default(), turns: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    /// What is agreed with it.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What people know it by.
    pub fn label(&self) -> &str {
        &self.settings.label
    }

    /// Whether it can be asked at all: its document and its keys are read, and fit.
    pub async fn try_it(&self) -> Result<(), Failure> {
        let metadata = self.metadata().await?;
        self.client(&metadata).map(drop)
    }

    /// Begins a sign-in.
    pub async fn begin(&self) -> Result<Begun, Failure> {
        let metadata = self.metadata().await?;
        let client = self.client(&metadata)?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let mut request = client
            .authorize_url(
                AuthenticationFlow::<CoreResponseType>::AuthorizationCode,
                || CsrfToken::new_random_len(RANDOM_BYTES),
                || Nonce::new_random_len(RANDOM_BYTES),
            )
            .set_pkce_challenge(challenge);
        for scope in &self.settings.scopes {
            request = request.add_scope(Scope::new(scope.clone()));
        }
        let (address, state, nonce) = request.url();
        Ok(Begun {
            address: address.into(),
            state: state.into_secret(),
            nonce: nonce.secret().clone(),
            verifier: verifier.into_secret(),
        })
    }

    /// Ends it: who has come back with this code.
    pub async fn finish(&self, code: String, verifier: String, nonce: String) -> Result<Person, Failure> {
        let metadata = self.metadata().await?;
        let client = self.client(&metadata)?;
        let (asker, asked) = (self.asker.clone(), client.clone());
        let tokens: Tokens = self
            .in_turn(move || {
                let request = asked.exchange_code(AuthorizationCode::new(code));
                let request = request.map_err(|error| Failure::NotUnderstood(told(&error)))?;
                Ok(request.set_pkce_verifier(PkceCodeVerifier::new(verifier)).request(&asker)?)
            })
            .await?;
        let nonce = Nonce::new(nonce);
        let (client, claims) = match believed(&client, &tokens, &nonce) {
            Ok(claims) => (client, claims),
            Err(Doubt { may_be_a_new_key: true, .. }) => {
                let renewed = self.renewed(&metadata).await?;
                let client = self.client(&renewed)?;
                let claims = believed(&client, &tokens, &nonce).map_err(|doubt| Failure::NotBelieved(doubt.why))?;
                (client, claims)
            }
            Err(doubt) => return Err(Failure::NotBelieved(doubt.why)),
        };
        let (issuer, admission) = (self.settings.issuer.as_str(), &self.settings.admission);
        let person = Person::of_token(&claims, issuer, &admission.groups_claim);
        let person = person.ok_or_else(|| Failure::NotBelieved("the ID token's subject is none".to_owned()))?;
        if !admission.needs_more(&person) || client.user_info_url().is_none() {
            return Ok(person);
        }
        let (asker, subject) = (self.asker.clone(), claims.subject().clone());
        let access_token = tokens.access_token().clone();
        let said = self
            .in_turn(move || {
                let request = client.user_info(access_token, Some(subject));
                Ok(request.map_err(|error| Failure::NotUnderstood(told(&error)))?.request(&asker)?)
            })
            .await?;
        Ok(person.and_what_is_said_elsewhere(&said, &admission.groups_claim))
    }

    /// Asks in a thread of its own: what waits there holds nothing else up.
    async fn in_turn<T: Send + 'static>(
        &self,
        ask: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let turn = timeout(TURN_WITHIN, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(Failure::Busy) };
        let asked = tokio::task::spawn_blocking(move || {
            let answer = ask();
            // Until here, also if nobody waits for the answer any more.
            drop(turn);
            answer
        });
        asked.await.map_err(|error| Failure::NotUnderstood(told(&error)))?
    }

    async fn metadata(&self) -> Result<Arc<CoreProviderMetadata>, Failure> {
        // Held while the provider answers: of many who come at once one asks.
        let mut known = timeout(TURN_WITHIN, self.known.lock()).await.map_err(|_| Failure::Busy)?;
        if let Some((metadata, at)) = &known.metadata
            && at.elapsed() < KEPT
        {
            return Ok(Arc::clone(metadata));
        }
        self.discover(&mut known).await
    }

    /// The provider's keys anew, unless that was done a moment ago.
    async fn renewed(&self, old: &Arc<CoreProviderMetadata>) -> Result<Arc<CoreProviderMetadata>, Failure> {
        let mut known = timeout(TURN_WITHIN, self.known.lock()).await.map_err(|_| Failure::Busy)?;
        let was_just_done = known.renewed.is_some_and(|at| at.elapsed() < RENEWED_EVERY);
        if let Some((metadata, _)) = &known.metadata
            && (!Arc::ptr_eq(metadata, old) || was_just_done)
        {
            return Ok(Arc::clone(metadata));
        }
        known.renewed = Some(Instant::now());
        self.discover(&mut known).await
    }

    async fn discover(&self, known: &mut Known) -> Result<Arc<CoreProviderMetadata>, Failure> {
        if let Some((failure, at)) = &known.failed
            && at.elapsed() < TRIED_EVERY
        {
            return Err(failure.clone());
        }
        let (asker, issuer) = (self.asker.clone(), self.settings.issuer.url().clone());
        let found = self.in_turn(move || Ok(CoreProviderMetadata::discover(&issuer, &asker)?)).await;
        match found {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                known.metadata = Some((Arc::clone(&metadata), Instant::now()));
                known.failed = None;
                Ok(metadata)
            }
            Err(failure) => {
                known.failed = Some((failure.clone(), Instant::now()));
                Err(failure)
            }
        }
    }

    fn client(&self, metadata: &CoreProviderMetadata) -> Result<Client, Failure> {
        let front = metadata.authorization_endpoint().as_str();
        if !may_be_asked(front, self.settings.issuer.is_here()) {
            return Err(Failure::NotUnderstood(format!("{front} begins no sign-in: it must begin with https://")));
        }
        if metadata.token_endpoint().is_none() {
            return Err(Failure::NotUnderstood("the provider names no token endpoint".to_owned()));
        }
        let secret = ClientSecret::new(self.settings.client_secret.clone());
        let client = Client::from_provider_metadata(
            metadata.clone(),
            ClientId::new(self.settings.client_id.clone()),
            Some(secret),
        );
        let redirect = RedirectUrl::new(self.settings.redirect.clone());
        let redirect = redirect.map_err(|error| Failure::NotUnderstood(told(&error)))?;
        Ok(client.set_redirect_uri(redirect).set_auth_type(way_of_the_secret(metadata)))
    }
}

/// In a header, which every provider must take, unless this one says that it does not.
fn way_of_the_secret(metadata: &CoreProviderMetadata) -> AuthType {
    let takes = |way: &CoreClientAuthMethod| {
        metadata.token_endpoint_auth_methods_supported().is_none_or(|ways| ways.contains(way))
    };
    let in_header = takes(&CoreClientAuthMethod::ClientSecretBasic);
    if !in_header && takes(&CoreClientAuthMethod::ClientSecretPost) {
        AuthType::RequestBody
    } else {
        AuthType::BasicAuth
    }
}

/// Why a token is not believed.
struct Doubt {
    why: String,
    may_be_a_new_key: bool,
}

impl From<ClaimsVerificationError> for Doubt {
    fn from(error: ClaimsVerificationError) -> Self {
        use SignatureVerificationError::{CryptoError, NoMatchingKey};
        let may_be_a_new_key =
            matches!(error, ClaimsVerificationError::SignatureVerification(NoMatchingKey | CryptoError(_)));
        Self { why: format!("the ID token does not hold: {}", told(&error)), may_be_a_new_key }
    }
}

/// What the ID token says, if its signature, issuer, audience, end and nonce are right, and it belongs to the access
/// token beside it.
fn believed(client: &Client, tokens: &Tokens, nonce: &Nonce) -> Result<Claims, Doubt> {
    let doubt = |why: &str| Doubt { why: why.to_owned(), may_be_a_new_key: false };
    let token = tokens.id_token().ok_or_else(|| doubt("there is no ID token in the answer"))?;
    let verifier = client.id_token_verifier().set_allowed_algs(SIGNATURES);
    let claims = token.claims(&verifier, nonce)?;
    if let Some(party) = claims.authorized_party()
        && **party != **client.client_id()
    {
        return Err(doubt("the ID token was made for another application (azp)"));
    }
    if let Some(expected) = claims.access_token_hash() {
        let of_signature = |error: SignatureVerificationError| Doubt { why: told(&error), may_be_a_new_key: false };
        let algorithm = token.signing_alg().map_err(of_signature)?;
        let key = token.signing_key(&verifier).map_err(of_signature)?;
        let found = AccessTokenHash::from_token(tokens.access_token(), algorithm, key);
        let found = found.map_err(|error| doubt(&told(&error)))?;
        if found != *expected {
            return Err(doubt("the ID token belongs to another access token (at_hash)"));
        }
    }
    Ok(claims.clone())
}
