//! Why a bucket does not do what it should, in one sentence with what to do. Of what its server answers only the code is
//! taken over: the rest may repeat parts of a signed request, and has no bounds.

use super::credentials::Source;
use object_store::client::{HttpError, HttpErrorKind};
use std::{error::Error, fmt};

/// Codes of S3 for credentials that are not valid.
const REFUSED: [&str; 6] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "NotSignedUp",
];
/// For a bucket in another region.
const ELSEWHERE: [&str; 4] =
    ["PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"];
/// For a place that has no room; each server has its own.
const FULL: [&str; 5] =
    ["QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage", "DiskFull"];

/// What is wrong, and with which place.
#[derive(Debug)]
pub struct Fault {
    place: String,
    credentials: Source,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No answer, or one that it cannot do it now.
    Away(String),
    /// Its certificate.
    Untrusted(String),
    NoBucket,
    /// Credentials that are not valid.
    Refused(String),
    /// Credentials that do not suffice.
    Denied,
    /// None could be had.
    NoCredentials,
    Elsewhere,
    Clock,
    Full(String),
    /// A setting, in its own sentence.
    Setting(String),
    /// Anything else, with what is known of it.
    Failed(String),
}

impl Kind {
    /// Of an error of the library. Whether an object is missing is not told here.
    pub fn of(error: &object_store::Error) -> Self {
        // The words of the library hold status and body of the answer, and there is no other way to them.
        let text = error.to_string();
        let code = code(&text);
        let status = status(&text);
        match (code, status) {
            (Some("NoSuchBucket"), _) => Self::NoBucket,
            (Some("RequestTimeTooSkewed"), _) => Self::Clock,
            (Some(code), _) if REFUSED.contains(&code) => Self::Refused(code.to_owned()),
            (Some(code), _) if ELSEWHERE.contains(&code) => Self::Elsewhere,
            (Some(code), _) if FULL.contains(&code) => Self::Full(code.to_owned()),
            (_, Some(401)) => Self::Refused(code.unwrap_or("status 401").to_owned()),
            (_, Some(403)) => Self::Denied,
            (_, Some(301 | 302 | 307 | 308)) => Self::Elsewhere,
            (_, Some(507)) => Self::Full("status 507".to_owned()),
            (code, Some(status)) => {
                let what = code.map_or_else(|| format!("status {status}"), |code| format!("status {status}, {code}"));
                if status >= 500 || status == 429 { Self::Away(what) } else { Self::Failed(what) }
            }
            (code, None) => match transport(error) {
                Some((_, what)) if what.contains("certificate") => Self::Untrusted(what),
                Some((HttpErrorKind::Decode | HttpErrorKind::Unknown, what)) => Self::Failed(what),
                Some((_, what)) => Self::Away(what),
                None if text.contains("redirect without LOCATION") => Self::Elsewhere,
                None => Self::Failed(code.unwrap_or("an answer that is none of S3's").to_owned()),
            },
        }
    }

    pub fn at(self, place: &str, credentials: &Source) -> Fault {
        Fault { place: place.to_owned(), credentials: credentials.clone(), kind: self }
    }
}

impl Fault {
    /// Whether the server cannot be reached at the moment.
    pub fn is_away(&self) -> bool {
        matches!(self.kind, Kind::Away(_))
    }

    /// Whether it has no room.
    pub fn is_full(&self) -> bool {
        matches!(self.kind, Kind::Full(_))
    }

    /// For visitors, who are told nothing of names and addresses.
    pub fn told(&self) -> &'static str {
        match self.kind {
            Kind::Away(_) => "The bucket with this server's files does not answer. Try again in a moment.",
            Kind::Full(_) => {
                "The bucket with this server's files is full, so nothing was changed. Its operator must make room."
            }
            Kind::NoBucket => "The bucket with this server's files is not there. Its operator finds more in the log.",
            Kind::Refused(_) | Kind::Denied | Kind::NoCredentials => {
                "The bucket with this server's files refuses its credentials. Its operator finds more in the log."
            }
            _ => "The bucket with this server's files cannot be used. Its operator finds the reason in the log.",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, credentials, kind } = self;
        match kind {
            Kind::Away(why) => write!(
                f,
                "{place} does not answer ({why}): see that its server runs, and that objects-endpoint and \
                 objects-region name it"
            ),
            Kind::Untrusted(why) => write!(
                f,
                "the server of {place} cannot be trusted ({why}): name the file with the authority of its certificate \
                 with objects-ca-file"
            ),
            Kind::NoBucket => write!(f, "the bucket of {place} is not there: make it, or name another with --objects"),
            Kind::Refused(code) => write!(
                f,
                "the server of {place} does not know the credentials ({code}); they are from {credentials}: see that they \
                 are those of this server and still valid"
            ),
            Kind::Denied => write!(
                f,
                "the credentials for {place} do not suffice; they are from {credentials}: they must allow s3:ListBucket for \
                 the bucket, and s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload for its objects"
            ),
            Kind::NoCredentials => write!(
                f,
                "there are no credentials for {place}; tried: {credentials}. Set AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY, or name a file with objects-credentials-file, or give this machine or pod a role"
            ),
            Kind::Elsewhere => {
                write!(f, "{place} is in another region: set objects-region (or AWS_REGION) to the bucket's")
            }
            Kind::Clock => write!(f, "the clocks of this machine and of the server of {place} differ: set them right"),
            Kind::Full(code) => write!(f, "{place} has no room ({code}): make some, or raise its limit"),
            Kind::Setting(why) => write!(f, "{place}: {why}"),
            Kind::Failed(what) => write!(f, "{place} failed ({what})"),
        }
    }
}

impl Error for Fault {}

/// What stands in an error's `<Code>`.
fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (!code.is_empty() && code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(code)
}

/// The status of an answer that was not as wished.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// What went wrong on the way, in the words of `transport`.
fn transport(error: &object_store::Error) -> Option<(HttpErrorKind, String)> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return Some((http.kind(), http.source().map(ToString::to_string).unwrap_or_default()));
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Kind {
        Kind::of(&object_store::Error::Generic { store: "S3", source: text.to_owned().into() })
    }

    #[test]
    fn answers_are_told_apart_and_nothing_but_their_code_is_taken_over() {
        let answer = |status: &str, code: &str| {
            let secret = "<CanonicalRequest>x-amz-security-token:hunter2</CanonicalRequest>";
            format!("Server returned non-2xx status code: {status}: <Error><Code>{code}</Code>{secret}</Error>")
        };
        for (status, code, kind) in [
            ("404 Not Found", "NoSuchBucket", Kind::NoBucket),
            ("403 Forbidden", "SignatureDoesNotMatch", Kind::Refused("SignatureDoesNotMatch".into())),
            ("403 Forbidden", "InvalidAccessKeyId", Kind::Refused("InvalidAccessKeyId".into())),
            ("403 Forbidden", "AccessDenied", Kind::Denied),
            ("403 Forbidden", "RequestTimeTooSkewed", Kind::Clock),
            ("301 Moved Permanently", "PermanentRedirect", Kind::Elsewhere),
            ("507 Insufficient Storage", "XMinioStorageFull", Kind::Full("XMinioStorageFull".into())),
            ("503 Service Unavailable", "SlowDown", Kind::Away("status 503, SlowDown".into())),
            ("400 Bad Request", "BadDigest", Kind::Failed("status 400, BadDigest".into())),
            ("400 Bad Request", "hun ter2", Kind::Failed("status 400".into())),
        ] {
            let told = of(&answer(status, code));
            assert_eq!(told, kind, "{status} {code}");
            let fault = told.at("s3://team", &Source::Environment);
            for text in [fault.to_string(), format!("{fault:?}"), fault.told().to_owned()] {
                assert!(!text.contains("hunter2"), "{text}");
            }
        }
        assert_eq!(of("Received redirect without LOCATION, this"), Kind::Elsewhere);
        assert_eq!(of("hunter2"), Kind::Failed("an answer that is none of S3's".into()));
    }
}
