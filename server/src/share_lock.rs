//! The lock of a share: which passwords it may have, how often they may be guessed, and the proof that a visitor has given
//! the right one.
//!
//! The proof is a hash over the token and the stored hash: whoever knows only the token cannot make it, no secret of
//! the server is needed, and it ends with the share. Knows no HTTP and no store.

use crate::errors::{Problem, ProblemKind, Result};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Characters of a password, at least; guesses are slow, but not that slow.
const LEAST_CHARS: usize = 6;
/// Bytes of a password, at most.
pub const MOST_BYTES: usize = 256;
/// Wrong guesses at one share before it takes none for a while.
const MOST_GUESSES: u32 = 10;
/// How long that lasts.
const PAUSE: Duration = Duration::from_mins(10);

/// Whether a share may have this password.
pub fn check_choice(password: &str) -> Result<()> {
    if password.chars().count() < LEAST_CHARS || password.len() > MOST_BYTES {
        return Err(Problem::invalid(format!("The password must have {LEAST_CHARS} to {MOST_BYTES} characters.")));
    }
    Ok(())
}

/// What a visitor shows from then on.
pub fn proof(token: &str, hash: &str) -> String {
    let mut digest = Sha256::new();
    digest.update(b"rankscope share proof\n");
    digest.update(token.as_bytes());
    digest.update(b"\n");
    digest.update(hash.as_bytes());
    crate::hex(&digest.finalize())
}

/// Whether a visitor's proof is that of a share. Compared as hashes, so that time tells nothing.
pub fn is_proof(shown: &str, token: &str, hash: &str) -> bool {
    Sha256::digest(shown.as_bytes()) == Sha256::digest(proof(token, hash).as_bytes())
}

/// Wrong guesses by share. Lives in memory: a restart forgives.
#[derive(Debug, Default)]
pub struct Guesses(Mutex<HashMap<String, (u32, Instant)>>);

impl Guesses {
    /// Refuses when a share was guessed at too often lately.
    pub fn check(&self, share: &str) -> Result<()> {
        let mut guesses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guesses.retain(|_, (_, since)| since.elapsed() < PAUSE);
        match guesses.get(share) {
            Some((count, since)) if *count >= MOST_GUESSES => {
                let detail = "The password was wrong too often. Wait ten minutes, or ask the owner for a new link.";
                let wait = PAUSE.saturating_sub(since.elapsed());
                Err(Problem::new(ProblemKind::TooManyGuesses, detail).retry_after(wait))
            }
            _ => Ok(()),
        }
    }

    /// Counts a wrong guess.
    pub fn wrong(&self, share: &str) {
        let mut guesses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guesses.entry(share.to_owned()).or_insert((0, Instant::now())).0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_belong_to_one_token_and_one_password() {
        let (one, other) = ("$argon2id$one", "$argon2id$other");
        assert!(is_proof(&proof("token", one), "token", one));
        assert!(!is_proof(&proof("token", other), "token", one) && !is_proof("", "token", one));
        assert!(!is_proof(&proof("nekot", one), "token", one));
        assert!(check_choice("short").is_err() && check_choice(&"x".repeat(300)).is_err());
        check_choice("secret").unwrap();
    }

    #[test]
    fn too_many_guesses_pause_one_share() {
        let guesses = Guesses::default();
        for _ in 0..MOST_GUESSES {
            guesses.check("a").unwrap();
            guesses.wrong("a");
        }
        assert_eq!(guesses.check("a").unwrap_err().kind(), ProblemKind::TooManyGuesses);
        guesses.check("b").unwrap();
    }
}
