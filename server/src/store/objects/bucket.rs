//! Objects in a bucket of S3, or of a server that speaks as it does.
//!
//! Every request carries the SHA-256 of its body, which the server compares with what has arrived. Each is tried up to
//! five times within a minute where another try is safe; the waits of one try are limited by the transport.

use super::{
    address::{BucketSettings, Style},
    credentials::{self, Source},
    fault::Kind,
    multipart::{self, Broken},
    transport::Transport,
};
use crate::store::{ANSWERS_WITHIN, Staged, StoreError, new_id};
use futures_util::{StreamExt, TryStreamExt};
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider, Checksum},
    path::Path as Key,
    prefix::PrefixStore,
};
use std::{
    env, fmt,
    fs::{self, File},
    io::Write,
    path::Path,
    time::Duration,
};
use tokio::time::timeout;

/// Written at each start, and read to see whether the bucket answers. It stays.
const CHECK: &str = "rankscope-check";
const CHECK_TEXT: &str = "rankscope writes this at its start to see whether the bucket takes objects.\n";

/// How often and how long a request is tried again.
const RETRY: RetryConfig = RetryConfig {
    backoff: BackoffConfig { init_backoff: Duration::from_millis(200), max_backoff: Duration::from_secs(5), base: 3.0 },
    max_retries: 4,
    retry_timeout: Duration::from_mins(1),
};
/// For whoever asks whether it answers.
const ONCE: RetryConfig = RetryConfig { max_retries: 0, ..RETRY };

pub struct Bucket {
    store: PrefixStore<AmazonS3>,
    /// Does not try again, so that who asks whether it answers hears it at once.
    impatient: PrefixStore<AmazonS3>,
    /// Gives the credentials.
    provider: AwsCredentialProvider,
    place: String,
    credentials: Source,
}

impl Bucket {
    /// Reads what the settings name; asks nobody.
    pub fn new(settings: &BucketSettings) -> Result<Self, StoreError> {
        let endpoint = settings.endpoint.as_ref();
        let place =
            endpoint.map_or_else(|| settings.url.to_string(), |endpoint| format!("{} at {endpoint}", settings.url));
        let wrong = |why: String| StoreError::bucket(Kind::Setting(why).at(&place, &Source::Environment));
        let (builder, credentials) =
            credentials::give(AmazonS3Builder::new(), settings.credentials_file.as_deref(), |name| env::var(name).ok())
                .map_err(wrong)?;
        let style = settings.style.unwrap_or(match endpoint {
            // A name with dots is not covered by the certificate of the host.
            None if !settings.url.bucket.contains('.') => Style::Host,
            _ => Style::Path,
        });
        if endpoint.is_some_and(super::Endpoint::is_plain) && !settings.plain_http {
            let why = "its server would be asked without TLS: give it an https:// address, or say objects-plain-http \
                where nobody else is on the way";
            return Err(wrong(why.to_owned()));
        }
        let mut builder = builder
            .with_bucket_name(&settings.url.bucket)
            .with_virtual_hosted_style_request(style == Style::Host)
            .with_checksum_algorithm(Checksum::SHA256)
            // One request for many keys is not understood everywhere, and a run has few.
            .with_disable_bulk_delete(true)
            .with_client_options(ClientOptions::new().with_allow_http(settings.plain_http))
            .with_http_connector(Transport::new(settings.ca_file.as_deref()).map_err(wrong)?);
        if let Some(endpoint) = endpoint {
            let endpoint = match style {
                Style::Path => endpoint.clone(),
                Style::Host => endpoint.with_bucket(&settings.url.bucket).map_err(wrong)?,
            };
            builder = builder.with_endpoint(endpoint.to_string());
        }
        if let Some(region) = &settings.region {
            builder = builder.with_config(AmazonS3ConfigKey::Region, region);
        }
        let built = |retry| {
            let store = builder.clone().with_retry(retry).build();
            store.map_err(|error| StoreError::bucket(Kind::of(&error).at(&place, &credentials)))
        };
        let prefixed = |store| PrefixStore::new(store, settings.url.prefix.as_str());
        let impatient = built(ONCE)?;
        Ok(Self {
            store: prefixed(built(patience())?),
            provider: impatient.credentials().clone(),
            impatient: prefixed(impatient),
            place,
            credentials,
        })
    }

    /// Whether it gives, takes, lists and removes objects.
    pub async fn try_out(&self) -> Result<(), StoreError> {
        self.look().await?;
        let trying = async {
            let key = Key::from(CHECK);
            self.impatient.put(&key, PutPayload::from_static(CHECK_TEXT.as_bytes())).await?;
            self.impatient.get(&key).await?.bytes().await?;
            match self.impatient.delete(&Key::from(format!("{CHECK}-{}", new_id()))).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        };
        self.in_time(trying).await
    }

    /// Whether there are credentials and the bucket is there; changes nothing.
    pub async fn look(&self) -> Result<(), StoreError> {
        let got = timeout(2 * ANSWERS_WITHIN, self.provider.get_credential()).await;
        if !matches!(got, Ok(Ok(_))) {
            return Err(self.fault(Kind::NoCredentials));
        }
        let listing = async { self.impatient.list(Some(&Key::from("runs"))).next().await.transpose().map(drop) };
        self.in_time(listing).await
    }

    /// Whether it answers, and what was written at the start is there.
    pub async fn check(&self) -> Result<(), StoreError> {
        let key = Key::from(CHECK);
        let reading = async { self.impatient.get(&key).await?.bytes().await.map(drop) };
        match self.in_time(reading).await {
            Err(StoreError::Missing) => {
                let why = format!("{CHECK}, which was written at the start, is gone: was the bucket emptied?");
                Err(self.fault(Kind::Setting(why)))
            }
            other => other,
        }
    }

    async fn in_time(&self, asking: impl Future<Output = object_store::Result<()>>) -> Result<(), StoreError> {
        match timeout(ANSWERS_WITHIN, asking).await {
            Ok(answer) => answer.map_err(|error| self.told(&error)),
            Err(_) => Err(self.fault(Kind::Away(format!("nothing came for {} s", ANSWERS_WITHIN.as_secs())))),
        }
    }

    pub fn store(&self) -> &dyn ObjectStore {
        &self.store
    }

    /// Sends the file; it goes when all of it is there.
    pub async fn adopt(&self, key: &Key, staged: Staged) -> Result<(), StoreError> {
        let path = staged.path()?.to_path_buf();
        let opening = move || File::open(path).and_then(|file| file.metadata().map(|facts| (file, facts.len())));
        let (file, bytes) = tokio::task::spawn_blocking(opening).await.map_err(StoreError::task)??;
        multipart::send(&self.store, key, file, bytes).await.map_err(|broken| match broken {
            Broken::File(error) => error.into(),
            Broken::Bucket(error) => self.told(&error),
        })?;
        if bytes > multipart::PART {
            let there = self.store.head(key).await.map_err(|error| self.told(&error))?.size;
            if there != bytes {
                return Err(self.fault(Kind::Failed(format!("{there} bytes of {bytes} arrived of {key}"))));
            }
        }
        drop(staged);
        Ok(())
    }

    /// Copies it: nothing else keeps its bytes when it is removed meanwhile.
    pub async fn hold(&self, key: &Key, target: &Path) -> Result<bool, StoreError> {
        let found = match self.store.get(key).await.map_err(|error| self.told(&error)) {
            Ok(found) => found,
            Err(StoreError::Missing) => return Ok(false),
            Err(error) => return Err(error),
        };
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = File::create_new(target)?;
        let mut pieces = found.into_stream();
        while let Some(piece) = pieces.try_next().await.map_err(|error| self.told(&error))? {
            file = tokio::task::spawn_blocking(move || file.write_all(&piece).map(|()| file))
                .await
                .map_err(StoreError::task)??;
        }
        Ok(true)
    }

    pub async fn delete_below(&self, prefix: &Key) -> Result<(), StoreError> {
        let listed = self.store.list(Some(prefix));
        let keys = listed.map_ok(|found| found.location).boxed();
        self.delete_all(keys).await
    }

    pub async fn delete(&self, keys: Vec<Key>) -> Result<(), StoreError> {
        self.delete_all(futures_util::stream::iter(keys.into_iter().map(Ok)).boxed()).await
    }

    async fn delete_all(
        &self,
        keys: futures_util::stream::BoxStream<'static, object_store::Result<Key>>,
    ) -> Result<(), StoreError> {
        let mut deleted = self.store.delete_stream(keys);
        while let Some(one) = deleted.next().await {
            match one.map_err(|error| self.told(&error)) {
                Ok(_) | Err(StoreError::Missing) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A copy under another key, and then the end of the first.
    pub async fn set_aside(&self, key: &Key) -> Result<bool, StoreError> {
        match self.store.head(key).await.map_err(|error| self.told(&error)) {
            Ok(_) => {}
            Err(StoreError::Missing) => return Ok(false),
            Err(error) => return Err(error),
        }
        let aside = Key::from(format!("{key}.before-{}", new_id()));
        self.store.copy(key, &aside).await.map_err(|error| self.told(&error))?;
        self.store.delete(key).await.map_err(|error| self.told(&error))?;
        Ok(true)
    }

    /// An error of the library, in our words.
    pub fn told(&self, error: &Error) -> StoreError {
        let kind = Kind::of(error);
        // Also a bucket that is not there is answered with 404.
        if matches!(error, Error::NotFound { .. }) && kind != Kind::NoBucket {
            return StoreError::Missing;
        }
        self.fault(kind)
    }

    fn fault(&self, kind: Kind) -> StoreError {
        StoreError::bucket(kind.at(&self.place, &self.credentials))
    }
}

/// Tests that take a server away do not wait as long.
fn patience() -> RetryConfig {
    let soon = BackoffConfig { init_backoff: Duration::from_millis(20), ..RETRY.backoff };
    if cfg!(test) { RetryConfig { backoff: soon, max_retries: 2, ..RETRY } } else { RETRY }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

/// Without what the library holds: its own words name keys of access.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("place", &self.place)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}
