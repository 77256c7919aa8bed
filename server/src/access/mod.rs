//! Who may do what: one table of rules ([`rules`]) and the gate that enforces it before anything else is done.
//!
//! Whatever the table does not allow is refused. Knows addresses and accounts; knows no page and no SQL.

mod cookies;
mod gate;
mod path;
mod principal;
mod proxy;
mod rules;
mod scoped;

pub use cookies::{
    begin_sign_in_cookie, end_session_cookie, end_sign_in_cookie, session_cookie, session_secret, sign_in_secret,
};
pub use gate::{Client, Gate, Granted, WithoutUsers, bucket_of, gate, too_many_tries};
pub use principal::{Principal, SignedIn, Via, Who};
pub use proxy::Proxies;
pub use rules::{ROWS, Row, Rule, find};
pub use scoped::Scoped;
