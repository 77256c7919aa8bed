//! Sign-in with `OpenID` Connect, as far as it is between this server and a provider: the authorization code flow with PKCE,
//! and what makes a token worth believing. The checks themselves are those of the crate `openidconnect`.
//!
//! Knows no route, no cookie and no row: who has an account is decided in `accounts`, how a browser gets here and back in
//! `http`.

mod address;
mod ask;
mod failure;
mod person;
mod provider;
mod words;

pub use address::Issuer;
pub use failure::Failure;
pub use person::{Admission, Person};
pub use provider::{Begun, Provider, Settings};

use std::{fmt, str::FromStr};

/// The address to which a provider sends people back, below the public address of this server.
pub const CALLBACK: &str = "/login/oidc/callback";

/// Characters of a label: it stands on a button.
const LONGEST_LABEL: usize = 40;

/// What people know a provider by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(String);

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let label = text.trim();
        let is_one = !label.is_empty()
            && label.chars().count() <= LONGEST_LABEL
            && !label.chars().any(|sign| sign != ' ' && crate::visible::is_invisible(sign));
        is_one.then(|| Self(label.to_owned())).ok_or_else(|| {
            format!("a label has 1 to {LONGEST_LABEL} characters that can be seen: it stands on the button \"Sign in with …\"")
        })
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
