//! Times as `date` and `nvidia-smi` print them: `Wed Dec 16 10:41:07 2020`.
//!
//! They carry no zone. Read as if it were UTC they are good for order and distance within one file.

use rankscope_model::UnixMicros;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The time, if `text` is one and nothing else. A zone before the year (`date` prints one) is passed over.
pub(crate) fn parse(text: &str) -> Option<UnixMicros> {
    let mut words = text.split_ascii_whitespace();
    words.next().filter(|day| DAYS.contains(day))?;
    let month_name = words.next()?;
    let (month, _) = (1i64..).zip(MONTHS).find(|(_, name)| *name == month_name)?;
    let day: u32 = number(words.next()?, 1, 31)?;
    let mut time = words.next()?.split(':');
    let hour = number(time.next()?, 0, 23)?;
    let minute = number(time.next()?, 0, 59)?;
    let second = number(time.next()?, 0, 60)?;
    if time.next().is_some() {
        return None;
    }
    let mut year = words.next()?;
    if year.bytes().all(|b| b.is_ascii_alphabetic()) {
        year = words.next()?;
    }
    let year = number(year, 1970, 9999)?;
    if words.next().is_some() {
        return None;
    }
    let days = days_since_epoch(i64::from(year), month, i64::from(day));
    let seconds = ((days * 24 + i64::from(hour)) * 60 + i64::from(minute)) * 60 + i64::from(second);
    Some(UnixMicros(seconds * 1_000_000))
}

fn number(text: &str, min: u32, max: u32) -> Option<u32> {
    text.parse().ok().filter(|n| (min..=max).contains(n))
}

/// Days from 1970-01-01 in the Gregorian calendar. Counting years from March puts the leap day last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_utc() {
        assert_eq!(parse("Thu Jan  1 00:00:00 1970"), Some(UnixMicros(0)));
        assert_eq!(parse("Wed Dec 16 10:41:07 2020"), Some(UnixMicros(1_608_115_267_000_000)));
        assert_eq!(parse("Wed Dec 16 10:41:07 CET 2020"), Some(UnixMicros(1_608_115_267_000_000)));
        assert_eq!(parse("Thu Feb 29 23:59:59 2024       "), Some(UnixMicros(1_709_251_199_000_000)));
    }

    #[test]
    fn other_text_is_no_time() {
        for text in
            ["", "Wed", "Wed Dec 16", "Wed Dec 16 10:41 2020", "Wed Dec 16 10:41:07 2020 x", "Wed Dec 45 10:41:07 2020"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
