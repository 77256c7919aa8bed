//! Which passwords people may choose.

use crate::errors::{Problem, Result};

/// Fewest signs. Length is what makes guessing long; no mix of signs is asked for (NIST SP 800-63B).
const SHORTEST: usize = 12;
/// Most bytes, so that no one is hashed for ever.
pub const LONGEST_BYTES: usize = 1024;

/// Whether a password may be chosen by the user of this name.
pub fn check_choice(name: &str, password: &str) -> Result<()> {
    if password.chars().count() < SHORTEST {
        return Err(Problem::invalid(format!("A password has at least {SHORTEST} characters.")));
    }
    if password.len() > LONGEST_BYTES {
        return Err(Problem::invalid(format!("A password has at most {LONGEST_BYTES} bytes.")));
    }
    let mut signs = password.chars();
    let first = signs.next();
    if password.eq_ignore_ascii_case(name) || signs.all(|sign| Some(sign) == first) {
        return Err(Problem::invalid("This password is guessed at once. Choose another."));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_guessed_at_once_is_refused() {
        for bad in ["short", "aaaaaaaaaaaaaaaa", "ada@example.org", &"x y".repeat(1000)] {
            assert!(check_choice("Ada@example.org", bad).is_err(), "{bad}");
        }
        check_choice("ada", "correct horse battery").unwrap();
    }
}
