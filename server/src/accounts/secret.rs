//! Secrets that are shown or sent once: 256 random bits, of which only the SHA-256 is stored.
//!
//! A secret is found by its hash in an index, never compared sign by sign, so the time of a look-up tells nothing of it.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// A new secret, in signs that may stand in an address.
pub fn new_secret() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// What is stored of a secret.
pub fn hash(secret: &str) -> String {
    crate::hex(&Sha256::digest(secret.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_have_256_bits_and_are_never_the_same() {
        let (a, b) = (new_secret(), new_secret());
        assert_eq!(URL_SAFE_NO_PAD.decode(&a).unwrap().len(), 32);
        assert_ne!(a, b);
        assert_eq!(hash(&a).len(), 64);
        assert_ne!(hash(&a), hash(&b));
    }
}
