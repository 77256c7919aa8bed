//! Passwords of people and of shares: Argon2id, on threads of their own, a few at a time. Knows neither users nor shares.
//!
//! The parameters are those that OWASP's Password Storage Cheat Sheet names first for Argon2id: 19 MiB of memory, two
//! passes, one lane.

use crate::errors::{Problem, ProblemKind, Result};
use argon2::{
    Algorithm, Argon2, Params, Version,
    password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString},
};
use std::time::Duration;
use tokio::{sync::Semaphore, time::timeout};

/// Memory in KiB.
const MEMORY_KIB: u32 = 19_456;
/// Passes over it.
const PASSES: u32 = 2;
/// Lanes.
const LANES: u32 = 1;

/// Passwords that are hashed at the same time; each takes a core and the memory above. One for the whole process: it is
/// the process that has cores and memory.
static TURNS: Semaphore = Semaphore::const_new(2);
/// A turn must come within this.
const TURN_WITHIN: Duration = Duration::from_secs(10);

/// The hash of no password, with the parameters above: who is not known takes as long as who is.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5LWtub3dzLWl0$\
    AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// The PHC string of a password, with a fresh salt.
pub async fn hash(password: String) -> Result<String> {
    in_turn(move || {
        let salt = SaltString::encode_b64(&rand::random::<[u8; 16]>()).map_err(Problem::internal)?;
        Ok(hasher()?.hash_password(password.as_bytes(), &salt).map_err(Problem::internal)?.to_string())
    })
    .await
}

/// Whether a password is the one of this PHC string. Without one: no, after the same time.
pub async fn is_right(stored: Option<String>, password: String) -> Result<bool> {
    in_turn(move || {
        let stored = stored.as_deref().unwrap_or(NOBODY);
        let stored = PasswordHash::new(stored).map_err(Problem::internal)?;
        // The comparison inside takes the same time for every difference.
        Ok(hasher()?.verify_password(password.as_bytes(), &stored).is_ok())
    })
    .await
}

async fn in_turn<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let Ok(turn) = timeout(TURN_WITHIN, TURNS.acquire()).await else {
        let detail = "Many passwords are being checked at this moment. Try again in a few seconds.";
        return Err(Problem::new(ProblemKind::Unavailable, detail).because("no turn to hash a password"));
    };
    let turn = turn.map_err(Problem::internal)?;
    // Not to be ended from outside: the turn stays taken until the thread is done.
    tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    })
    .await
    .map_err(Problem::internal)?
}

fn hasher() -> Result<Argon2<'static>> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(Problem::internal)?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn passwords_are_known_again_and_hashes_say_their_parameters() {
        let stored = hash("correct horse battery".into()).await.unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(is_right(Some(stored.clone()), "correct horse battery".into()).await.unwrap());
        assert!(!is_right(Some(stored.clone()), "correct horse batterY".into()).await.unwrap());
        assert_ne!(hash("correct horse battery".into()).await.unwrap(), stored, "salted");
        assert!(
            is_right(Some("nonsense".into()), "correct horse battery".into()).await.is_err(),
            "no hash is no refusal"
        );
    }

    #[tokio::test]
    async fn nobody_takes_as_long_as_somebody() {
        let stored = hash("correct horse battery".into()).await.unwrap();
        let time = async |stored: Option<String>| {
            let mut best = Duration::MAX;
            for _ in 0..5 {
                let started = Instant::now();
                assert!(!is_right(stored.clone(), "guess".into()).await.unwrap());
                best = best.min(started.elapsed());
            }
            best
        };
        let (somebody, nobody) = (time(Some(stored)).await, time(None).await);
        assert!(nobody > somebody / 10 && somebody > nobody / 10, "{somebody:?} {nobody:?}");
    }
}
