//! The values that device tools print: sizes, shares, switches, the names of cards.
//!
//! What a tool prints in place of a value is `None`, never zero. Knows no layout.

use rankscope_model::{Bytes, GIB, KIB, MIB};

/// `12269 MiB`, `12269MiB`, `24.0GiB`, `855` with the unit of its column. A tool that says MB counts MiB.
///
/// `None` for everything else, among it what tools print in place of a value.
pub(crate) fn memory(text: &str, column_unit: Option<u64>) -> Option<Bytes> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, word) = text.split_at(end);
    let unit = match word.trim_start() {
        "" => column_unit?,
        word => unit(word)?,
    };
    if number.len() > 20 || number.is_empty() {
        return None;
    }
    number.parse::<f64>().ok().and_then(|value| Bytes::from_float(value, unit))
}

/// Whether a text is a size that cannot be: negative, not a number, or more than any machine has.
pub(crate) fn is_impossible(text: &str, column_unit: Option<u64>) -> bool {
    let text = text.trim();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (number, word) = text.split_at(end);
    let has_unit = if word.is_empty() { column_unit.is_some() } else { unit(word.trim_start()).is_some() };
    has_unit && number.len() <= 32 && number.parse::<f64>().is_ok() && memory(text, column_unit).is_none()
}

/// The bytes of a unit, in binary whatever its prefix.
pub(crate) fn unit(word: &str) -> Option<u64> {
    Some(match word {
        "MiB" | "MB" | "M" | "Mb" => MIB,
        "GiB" | "GB" | "G" => GIB,
        "KiB" | "KB" | "kB" | "K" => KIB,
        "B" | "bytes" => 1,
        _ => return None,
    })
}

/// `38 %`, `38%`, `38`.
pub(crate) fn percent(text: &str) -> Option<u8> {
    text.trim().trim_end_matches('%').trim_end().parse().ok().filter(|p| *p <= 100)
}

/// `Enabled`, `On`, `Yes`, and their contraries.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text.trim() {
        "Enabled" | "On" | "Yes" => Some(true),
        "Disabled" | "Off" | "No" => Some(false),
        _ => None,
    }
}

/// A text with something in it, and not what is printed where there is no value.
pub(crate) fn word(text: &str) -> Option<String> {
    let text = text.trim();
    (!is_absent(text)).then(|| text.to_owned())
}

/// What tools print in place of a value: `N/A`, `[Not Supported]`, `Insufficient Permissions`, nothing.
pub(crate) fn is_absent(text: &str) -> bool {
    let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
    inner.is_empty()
        || inner == "-"
        || inner == "ERR!"
        || inner.eq_ignore_ascii_case("N/A")
        || [
            "Not Supported",
            "Not Found",
            "Insufficient Permissions",
            "Unknown Error",
            "GPU is lost",
            "GPU requires reset",
        ]
        .iter()
        .any(|words| inner.eq_ignore_ascii_case(words))
        || inner.starts_with("Requested functionality has been deprecated")
        || inner.starts_with("Not available in WDDM")
        || inner.starts_with("Unable to determine")
}

/// `GPU-…` or `MIG-…` as the tools write it.
pub(crate) fn is_uuid(text: &str) -> bool {
    let rest = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-"));
    rest.is_some_and(|rest| {
        rest.len() >= 8
            && rest.len() <= 80
            && rest.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b'-' | b'/' | b'G' | b'P' | b'U'))
    })
}

/// `00000000:1A:00.0`, `0000:02:00.0`.
pub(crate) fn is_bus_id(word: &str) -> bool {
    let mut parts = word.split(':');
    let (Some(domain), Some(bus), Some(rest), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let hex = |text: &str| !text.is_empty() && text.len() <= 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
    matches!(domain.len(), 4 | 8)
        && hex(domain)
        && hex(bus)
        && rest.split_once('.').is_some_and(|(d, f)| hex(d) && hex(f))
}

/// A bus id in one form, because tools write its domain with four digits or eight.
pub(crate) fn plain_bus_id(text: &str) -> Option<String> {
    let text = text.trim();
    is_bus_id(text).then(|| text.trim_start_matches('0').to_ascii_lowercase())
}

/// A UUID in one form, because exporters drop `GPU-` and the case.
pub(crate) fn plain_uuid(text: &str) -> Option<String> {
    let text = text.trim();
    // Anonymised dumps print zeros for every card: that tells none apart.
    let tells = text.bytes().any(|b| matches!(b, b'1'..=b'9' | b'a'..=b'f'));
    (tells && !is_absent(text) && text.len() <= 96)
        .then(|| text.strip_prefix("GPU-").unwrap_or(text).to_ascii_lowercase())
}

/// A GPU index; larger numbers are something else.
pub(crate) fn index(text: &str) -> Option<u32> {
    let text = text.trim();
    (text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_own_unit_or_that_of_the_column() {
        assert_eq!(memory("12269 MiB", None), Some(Bytes(12269 * MIB)));
        assert_eq!(memory("12269MB", None), Some(Bytes(12269 * MIB)));
        assert_eq!(memory("1.5GiB", None), Some(Bytes(3 * GIB / 2)));
        assert_eq!(memory("855", Some(MIB)), Some(Bytes(855 * MIB)));
        assert_eq!(memory("855", None), None);
        for text in ["", "[N/A]", "N/A", "12 W", "1.2.3 MiB", "12 Mi"] {
            assert_eq!(memory(text, Some(MIB)), None, "{text}");
            assert!(!is_impossible(text, Some(MIB)), "{text}");
        }
        for text in ["-5 MiB", "-5", "nan", "99999999999999999999 MiB", "99999999999 MiB"] {
            assert_eq!(memory(text, Some(MIB)), None, "{text}");
            assert!(is_impossible(text, Some(MIB)), "{text}");
        }
        assert!(!is_impossible("-5", None) && !is_impossible("12 MiB", None));
    }

    #[test]
    fn what_stands_for_nothing_is_nothing() {
        for text in ["", " N/A", "[N/A]", "[Not Supported]", "[Insufficient Permissions]", "[Unknown Error]", "-"] {
            assert!(is_absent(text), "{text}");
        }
        assert!(!is_absent("0"));
        assert_eq!(switch("Requested functionality has been deprecated"), None);
        assert_eq!(percent("[N/A]"), None);
        assert_eq!(percent("101 %"), None);
        assert_eq!(percent("38 %"), Some(38));
    }

    #[test]
    fn cards_have_one_name_in_all_tools() {
        assert_eq!(plain_bus_id("00000000:1A:00.0"), plain_bus_id("0000:1a:00.0"));
        assert_ne!(plain_bus_id("00000000:1A:00.0"), plain_bus_id("00000000:1B:00.0"));
        assert_eq!(plain_uuid("GPU-09CB2925-9d01"), plain_uuid("09cb2925-9d01"));
        assert_eq!(plain_uuid("GPU-00000000-0000-0000-0000-000000000000"), None);
        assert!(is_uuid("GPU-09cb2925-9d01-5ca4-810b-6cdebe86b71a"));
        assert!(!is_uuid("GPU-Util"));
    }
}
