//! Knowing that nothing has changed: a short text beside a result that says what it was made from.

use anyhow::{Context, Result};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// A digest of `parts`. Good for telling changes, not for security; another compiler may give another digest, which
/// costs one needless step.
pub fn of(parts: &[&[u8]]) -> String {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Whether the result beside `stamp` was made from the same parts.
pub fn is_current(stamp: &Path, fingerprint: &str) -> bool {
    fs::read_to_string(stamp).is_ok_and(|kept| kept == fingerprint)
}

/// Keeps the fingerprint beside a finished result.
pub fn keep(stamp: &Path, fingerprint: &str) -> Result<()> {
    fs::write(stamp, fingerprint).with_context(|| format!("cannot write {}", stamp.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"ab"]), of(&[b"ab", b""]));
    }

    #[test]
    fn only_the_kept_fingerprint_is_current() {
        let folder = tempfile::tempdir().unwrap();
        let stamp = folder.path().join("stamp");
        assert!(!is_current(&stamp, "a"));
        keep(&stamp, "a").unwrap();
        assert!(is_current(&stamp, "a"));
        assert!(!is_current(&stamp, "b"));
    }
}
