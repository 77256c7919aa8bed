//! Times as `date` and `nvidia-smi` print them, `Wed Dec 16 10:41:07 2020`, and as logs do, `2020-12-16 10:41:07,250`.
//!
//! They carry no zone. Read as if it were UTC they are good for order and distance within one file.

use rankscope_model::UnixMicros;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The time, if `text` is one and nothing else. A zone before the year (`date` prints one) is passed over.
pub(crate) fn parse(text: &str) -> Option<UnixMicros> {
    // Every line of a log comes here; most are told by their first letter.
    if !text.starts_with(['M', 'T', 'W', 'F', 'S']) {
        return None;
    }
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
    let seconds = seconds_since_epoch(days, hour, minute, second);
    Some(UnixMicros(seconds.saturating_mul(1_000_000)))
}

/// `2025-11-12T11:25:13.4961658Z`, `2021-11-30 15:02:10,123` at the beginning of `text`. The zone,
/// which logs hardly ever print, is passed over.
pub(crate) fn parse_stamp(text: &str) -> Option<UnixMicros> {
    let digits = |from: usize, to: usize, min, max| {
        let part = text.get(from..to)?;
        part.bytes().all(|b| b.is_ascii_digit()).then(|| number(part, min, max))?
    };
    let sign = |at: usize, signs: &[u8]| text.as_bytes().get(at).is_some_and(|b| signs.contains(b));
    if !(sign(4, b"-/") && sign(7, b"-/") && sign(10, b" T") && sign(13, b":") && sign(16, b":")) {
        return None;
    }
    let days = days_since_epoch(
        i64::from(digits(0, 4, 1970, 9999)?),
        i64::from(digits(5, 7, 1, 12)?),
        i64::from(digits(8, 10, 1, 31)?),
    );
    let (hour, minute, second) = (digits(11, 13, 0, 23)?, digits(14, 16, 0, 59)?, digits(17, 19, 0, 60)?);
    let seconds = seconds_since_epoch(days, hour, minute, second);
    let fraction = text.get(19..).and_then(|rest| rest.strip_prefix([',', '.'])).unwrap_or_default();
    let (micros, _) =
        fraction.bytes().take(6).take_while(u8::is_ascii_digit).fold((0i64, 100_000i64), |(sum, unit), b| {
            (sum.saturating_add(i64::from(b.saturating_sub(b'0')).saturating_mul(unit)), unit / 10)
        });
    Some(UnixMicros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
}

fn number(text: &str, min: u32, max: u32) -> Option<u32> {
    text.parse().ok().filter(|n| (min..=max).contains(n))
}

fn seconds_since_epoch(days: i64, hour: u32, minute: u32, second: u32) -> i64 {
    let hours = days.saturating_mul(24).saturating_add(i64::from(hour));
    let minutes = hours.saturating_mul(60).saturating_add(i64::from(minute));
    minutes.saturating_mul(60).saturating_add(i64::from(second))
}

/// Days from 1970-01-01 in the Gregorian calendar. Counting years from March puts the leap day last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) =
        if month > 2 { (year, month.saturating_sub(3)) } else { (year.saturating_sub(1), month.saturating_add(9)) };
    let leap_days = (year / 4).saturating_sub(year / 100).saturating_add(year / 400);
    let day_of_year = (month.saturating_mul(153).saturating_add(2) / 5).saturating_add(day).saturating_sub(1);
    year.saturating_mul(365).saturating_add(leap_days).saturating_add(day_of_year).saturating_sub(719_468)
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
    fn stamps_of_logs_are_read_to_the_microsecond() {
        assert_eq!(parse_stamp("1970-01-01 00:00:00"), Some(UnixMicros(0)));
        assert_eq!(parse_stamp("2020-12-16T10:41:07.25Z text"), Some(UnixMicros(1_608_115_267_250_000)));
        assert_eq!(parse_stamp("2020-12-16 10:41:07,250 INFO"), Some(UnixMicros(1_608_115_267_250_000)));
        assert_eq!(parse_stamp("2020/12/16 10:41:07.1234567"), Some(UnixMicros(1_608_115_267_123_456)));
        for text in
            ["2020-12-16", "2020-13-16 10:41:07", "2020-12-16 10:41", "x020-12-16 10:41:07", "２０20-12-16 10:41:07"]
        {
            assert_eq!(parse_stamp(text), None, "{text}");
        }
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
