//! A range of time as a visitor writes it: dates in UTC, seconds since 1970, or how long ago.

use std::fmt;

const MICROS: i64 = 1_000_000;
/// The last second of the year 9999.
const LAST: i64 = 253_402_300_799;

/// From one second to another, both since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    from: i64,
    to: i64,
}

impl Span {
    /// Reads both ends; an empty end is now, an empty beginning an hour before it.
    ///
    /// Errors: a sentence for whoever wrote it.
    pub fn parse(from: &str, to: &str, now: i64) -> Result<Self, String> {
        let now = now.div_euclid(MICROS);
        let to = if to.trim().is_empty() { now } else { parse(to, now)? };
        let from = if from.trim().is_empty() { to.saturating_sub(3600) } else { parse(from, now)? };
        if from >= to {
            return Err("The range ends before it begins. Give From as the earlier time.".to_owned());
        }
        Ok(Self { from, to })
    }

    /// First second.
    pub fn from(self) -> i64 {
        self.from
    }

    /// Last second.
    pub fn to(self) -> i64 {
        self.to
    }

    /// Its length.
    pub fn seconds(self) -> i64 {
        self.to - self.from
    }
}

/// `2026-11-30 14:00 to 2026-11-30 16:00 UTC`
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minute = |seconds: i64| {
            let text = rankscope_app::time_iso(rankscope_model::UnixMicros(seconds.saturating_mul(MICROS)));
            text.get(..16).unwrap_or(&text).replace('T', " ")
        };
        write!(f, "{} to {} UTC", minute(self.from), minute(self.to))
    }
}

/// Seconds since 1970 of `now`, `now-2h`, `-90m`, `1700000000`, `2026-11-30`, `2026-11-30 14:00`, `2026-11-30T14:00:05Z`.
pub fn parse(text: &str, now: i64) -> Result<i64, String> {
    let text = text.trim();
    let wrong = || {
        let shown: String = text.chars().take(40).collect();
        format!("{shown:?} is no time. Write 2026-11-30 14:00 (UTC), now, now-2h, or seconds since 1970.")
    };
    if text == "now" {
        return Ok(now);
    }
    if let Some(back) = text.strip_prefix("now").unwrap_or(text).strip_prefix('-') {
        return ago(back.trim()).and_then(|back| now.checked_sub(back)).filter(|at| *at >= 0).ok_or_else(wrong);
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().filter(|at| (0..=LAST).contains(at)).ok_or_else(wrong);
    }
    date(text).ok_or_else(wrong)
}

/// `2h`, `90m`, `30s`, `1d`.
fn ago(text: &str) -> Option<i64> {
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return None,
    };
    let number = text.strip_suffix(unit)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse::<i64>().ok().filter(|_| is_number)?.checked_mul(seconds)
}

fn date(text: &str) -> Option<i64> {
    let text = text.strip_suffix(['Z', 'z']).or_else(|| text.strip_suffix(" UTC")).unwrap_or(text);
    let (day, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, sign: char, widths: &[usize]| -> Option<Vec<i64>> {
        let parts: Vec<&str> = text.split(sign).collect();
        let fit = parts.len() <= widths.len()
            && parts
                .iter()
                .zip(widths)
                .all(|(part, width)| part.len() == *width && part.bytes().all(|b| b.is_ascii_digit()));
        fit.then(|| parts.iter().filter_map(|part| part.parse().ok()).collect())
    };
    // A fraction of a second changes nothing here.
    let clock = clock.trim().split_once('.').map_or(clock.trim(), |(clock, _)| clock);
    let day = numbers(day, '-', &[4, 2, 2])?;
    let clock = numbers(clock, ':', &[2, 2, 2])?;
    let (&[year, month, day], [hour, minute, rest @ ..]) = (day.as_slice(), clock.as_slice()) else { return None };
    let second = rest.first().copied().unwrap_or(0);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let long = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1970..=9999).contains(&year) || !(1..=long).contains(&day) || *hour > 23 || *minute > 59 || second > 60 {
        return None;
    }
    // Days since 1970 in the Gregorian calendar, counted in years that begin in March.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_764_500_000;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("now", NOW),
            ("now-2h", NOW - 7200),
            (" -90m ", NOW - 5400),
            ("now-1d", NOW - 86_400),
            ("1700000000", 1_700_000_000),
            ("1970-01-01", 0),
            ("2000-02-29 23:59", 951_868_740),
            ("2025-11-30T10:53:20Z", NOW),
            ("2025-11-30T10:53:20.750Z", NOW),
            ("2025-11-30 10:53:20 UTC", NOW),
            ("9999-12-31 23:59:59", LAST),
        ] {
            assert_eq!(parse(text, NOW), Ok(seconds), "{text}");
        }
        for wrong in [
            "",
            "yesterday",
            "2025-02-29",
            "2025-13-01",
            "2025-11-31",
            "2025-11-30 24:00",
            "2025-11-30T10",
            "25-11-30",
            "now+1h",
            "now-",
            "-1y",
            "--1h",
            "-+5s",
            "99999999999999999999",
            "2025-11-30T10:00+01:00",
            "1969-12-31",
        ] {
            assert!(parse(wrong, NOW).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_range_has_a_length_and_defaults() {
        let span = Span::parse("", "", NOW * MICROS).unwrap();
        assert_eq!((span.from(), span.to(), span.seconds()), (NOW - 3600, NOW, 3600));
        assert_eq!(span.to_string(), "2025-11-30 09:53 to 2025-11-30 10:53 UTC");
        assert!(Span::parse("now", "now-1h", NOW * MICROS).unwrap_err().contains("before"));
        assert!(Span::parse("now", "now", NOW * MICROS).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_judged(text in ".{0,30}") {
            let _ = Span::parse(&text, &text, NOW * MICROS);
        }

        #[test]
        fn dates_come_back_as_they_were_written(seconds in 0..LAST) {
            let text = rankscope_app::time_iso(rankscope_model::UnixMicros(seconds * MICROS));
            prop_assert_eq!(parse(&text, 0), Ok(seconds), "{}", text);
        }
    }
}
