//! Why a sign-in did not come about. The visitor learns what to do, the operator, in the log, what was wrong.

use super::ask::Unanswered;
use crate::errors::{Problem, ProblemKind};
use openidconnect::{
    DiscoveryError, RequestTokenError, StandardErrorResponse, UserInfoError, core::CoreErrorResponseType,
};
use std::{error::Error, fmt::Write};

/// Characters of what is told of another's fault.
const TOLD_CHARS: usize = 500;

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The provider does not answer.
    Away(String),
    /// Too many sign-ins wait for it.
    Busy,
    /// It answers something else than was agreed, or does not know this server.
    NotUnderstood(String),
    /// It does not take the code (any more).
    CodeNotTaken(String),
    /// What it sent does not hold.
    NotBelieved(String),
}

impl Failure {
    /// For operators.
    pub fn cause(&self) -> &str {
        match self {
            Self::Away(why) | Self::NotUnderstood(why) | Self::CodeNotTaken(why) | Self::NotBelieved(why) => why,
            Self::Busy => "too many sign-ins wait for the provider's answers",
        }
    }

    /// For visitors.
    pub fn problem(&self, label: &str) -> Problem {
        let (kind, detail) = match self {
            Self::Away(_) => (
                ProblemKind::ProviderFailed,
                format!("{label} does not answer. Try again in a moment, or sign in with a password if you have one."),
            ),
            Self::Busy => (
                ProblemKind::ProviderFailed,
                format!("Too many people sign in with {label} at this moment. Try again in a few seconds."),
            ),
            Self::NotUnderstood(_) => (
                ProblemKind::ProviderFailed,
                format!(
                    "{label} and this server do not understand each other. Whoever runs the server finds the reason in its \
                     log. With a password you can sign in meanwhile."
                ),
            ),
            Self::CodeNotTaken(_) => (
                ProblemKind::InvalidRequest,
                format!("{label} does not know this sign-in any more. Begin it once more."),
            ),
            Self::NotBelieved(_) => (
                ProblemKind::ProviderFailed,
                format!(
                    "What {label} has sent does not hold, so nobody was signed in. Whoever runs the server finds the reason \
                     in its log."
                ),
            ),
        };
        Problem::new(kind, detail).because(self.cause())
    }
}

impl From<&Unanswered> for Failure {
    fn from(unanswered: &Unanswered) -> Self {
        let why = told(unanswered);
        match unanswered {
            Unanswered::Away(..) => Self::Away(why),
            Unanswered::NotPrivate(_) | Unanswered::Redirect(..) | Unanswered::TooLarge(_) => Self::NotUnderstood(why),
        }
    }
}

impl From<DiscoveryError<Unanswered>> for Failure {
    fn from(error: DiscoveryError<Unanswered>) -> Self {
        match &error {
            DiscoveryError::Request(unanswered) => unanswered.into(),
            DiscoveryError::Response(status, ..) if status.is_server_error() => Self::Away(told(&error)),
            DiscoveryError::Validation(why) => Self::NotUnderstood(told_text(&format!(
                "the provider's own document names another issuer: {why}. oidc-issuer must be what it names, sign by sign"
            ))),
            _ => Self::NotUnderstood(told(&error)),
        }
    }
}

impl From<RequestTokenError<Unanswered, StandardErrorResponse<CoreErrorResponseType>>> for Failure {
    fn from(error: RequestTokenError<Unanswered, StandardErrorResponse<CoreErrorResponseType>>) -> Self {
        match &error {
            RequestTokenError::Request(unanswered) => unanswered.into(),
            RequestTokenError::ServerResponse(said) => match said.error() {
                CoreErrorResponseType::InvalidGrant => Self::CodeNotTaken(told(&error)),
                CoreErrorResponseType::InvalidClient | CoreErrorResponseType::UnauthorizedClient => {
                    Self::NotUnderstood(told_text(&format!(
                        "{said}: the provider does not take oidc-client-id with what is in oidc-client-secret-file"
                    )))
                }
                _ => Self::NotUnderstood(told(&error)),
            },
            _ => Self::NotUnderstood(told(&error)),
        }
    }
}

impl From<UserInfoError<Unanswered>> for Failure {
    fn from(error: UserInfoError<Unanswered>) -> Self {
        match &error {
            UserInfoError::Request(unanswered) => unanswered.into(),
            UserInfoError::ClaimsVerification(_) => Self::NotBelieved(told(&error)),
            _ => Self::NotUnderstood(told(&error)),
        }
    }
}

/// An error with its causes, for the log: the provider's own words may be among them, codes and tokens are not.
pub fn told(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(under) = cause {
        let _ = write!(text, ": {under}"); // writing into a String cannot fail
        cause = under.source();
    }
    told_text(&text)
}

fn told_text(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).take(TOLD_CHARS).collect()
}
