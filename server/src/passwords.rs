//! Passwords of shares: hashing, checking, and the proof that a visitor has given the right one.
//!
//! The proof is a hash over the token and the stored hash: whoever knows only the token cannot make it, no secret of
//! the server is needed, and it ends with the share. Knows no HTTP and no store.

use crate::errors::{Problem, ProblemKind, Result};
use argon2::{
    Argon2,
    password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString},
};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Characters of a password, at least; guesses are slow, but not that slow.
const LEAST_CHARS: usize = 6;
/// Bytes of a password, at most.
const MOST_BYTES: usize = 256;
/// Wrong guesses at one share before it takes none for a while.
const MOST_GUESSES: u32 = 10;
/// How long that lasts.
const PAUSE: Duration = Duration::from_mins(10);

/// The hash of a password, with a fresh salt. Slow on purpose: not for an async thread.
pub fn hash(password: &str) -> Result<String> {
    if password.chars().count() < LEAST_CHARS || password.len() > MOST_BYTES {
        return Err(Problem::invalid(format!("The password must have {LEAST_CHARS} to {MOST_BYTES} characters.")));
    }
    let salt = SaltString::encode_b64(&rand::random::<[u8; 16]>()).map_err(Problem::internal)?;
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt).map_err(Problem::internal)?;
    Ok(hash.to_string())
}

/// Whether a password is the one of a hash. Slow on purpose: not for an async thread.
pub fn is_right(password: &str, hash: &str) -> bool {
    password.len() <= MOST_BYTES
        && PasswordHash::new(hash)
            .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
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
            Some((count, _)) if *count >= MOST_GUESSES => {
                let detail = "The password was wrong too often. Wait ten minutes, or ask the owner for a new link.";
                Err(Problem::new(ProblemKind::TooManyGuesses, detail))
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
    fn only_the_right_password_opens_and_no_hash_repeats() {
        let (one, other) = (hash("correct horse").unwrap(), hash("correct horse").unwrap());
        assert!(one.starts_with("$argon2id$") && one != other);
        assert!(is_right("correct horse", &one) && !is_right("correct hors", &one) && !is_right("", &one));
        assert!(!is_right("correct horse", "nonsense"));
        assert!(hash("short").is_err() && hash(&"x".repeat(300)).is_err());
        assert!(is_proof(&proof("token", &one), "token", &one));
        assert!(!is_proof(&proof("token", &other), "token", &one) && !is_proof("", "token", &one));
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
