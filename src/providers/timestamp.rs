//! Calendar dates from seconds: RFC 3339 text, in both directions, without a calendar library.
//!
//! Not here: clocks.

/// Seconds since 1970 as `2026-01-31T23:59:59Z`. Years past 9999 are shown as the last second of it.
pub(crate) fn rfc3339(unix_seconds: u64) -> String {
    const YEAR_9999_END: u64 = 253_402_300_799;
    let seconds = unix_seconds.min(YEAR_9999_END);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Seconds since 1970 of `2026-01-31T23:59:59Z`. A fraction is dropped, an offset such as `+02:00` is taken into account. `None` for what
/// is no such text, or lies before 1970.
pub(crate) fn from_rfc3339(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let digits = text.get(range)?;
        let fits = digits.bytes().all(|byte| byte.is_ascii_digit());
        fits.then(|| digits.parse().ok())?
    };
    let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let has = |(at, mark): (usize, u8)| text.as_bytes().get(at) == Some(&mark);
    let parted = matches!(text.as_bytes().get(10)?, b'T' | b't' | b' ');
    if !parted || !marks.into_iter().all(has) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let usual = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !usual || year < 1970 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // A day that its month does not have comes back as another one.
    let whole_days = days(year, month, day);
    if civil(whole_days) != (year, month, day) {
        return None;
    }
    let rest = text.get(19..)?;
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|char: char| char.is_ascii_digit()),
        None => rest,
    };
    let seconds = whole_days * 86_400 + hour * 3600 + minute * 60 + second;
    let two_digits = |text: &str, max: u64| -> Option<u64> {
        let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = plain.then(|| text.parse().ok())??;
        (number <= max).then_some(number)
    };
    let offset = |sign: &str| -> Option<u64> {
        let (hours, minutes) = rest.strip_prefix(sign)?.split_once(':')?;
        Some(two_digits(hours, 23)? * 3600 + two_digits(minutes, 59)? * 60)
    };
    match rest {
        "Z" | "z" => Some(seconds),
        _ => match (offset("+"), offset("-")) {
            (Some(east), _) => seconds.checked_sub(east),
            (_, Some(west)) => Some(seconds + west),
            (None, None) => None,
        },
    }
}

/// The day counted from 1970-01-01; the reverse of [`civil`].
fn days(year: u64, month: u64, day: u64) -> u64 {
    const DAYS_TO_1970: u64 = 719_468;
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - DAYS_TO_1970
}

/// Year, month and day of a day counted from 1970-01-01. Years are counted from March, so that a leap day comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const ERA_DAYS: u64 = 146_097;
    let shifted = days + DAYS_TO_1970;
    let (era, day) = (shifted / ERA_DAYS, shifted % ERA_DAYS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (
        era * 400 + year + u64::from(month <= 2),
        month,
        day_of_month,
    )
}

#[cfg(test)]
mod tests {
    use super::{from_rfc3339, rfc3339};

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(rfc3339(seconds), text);
            if seconds < u64::MAX {
                assert_eq!(from_rfc3339(text), Some(seconds));
            }
        }
    }

    #[test]
    fn texts_are_read_with_fraction_and_offset_or_not_at_all() {
        let cases = [
            ("2026-01-01T00:00:00Z", Some(1_767_225_600)),
            ("2026-01-01T00:00:00.123456Z", Some(1_767_225_600)),
            ("2026-01-01T02:00:00+02:00", Some(1_767_225_600)),
            ("2025-12-31T20:30:00.5-03:30", Some(1_767_225_600)),
            ("1969-12-31T23:59:59Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-02-29T00:00:00Z", None),
            ("2026-04-31T00:00:00Z", None),
            ("2026-01-01T00:00:00++5:00", None),
            ("2026-01-01T00:00:00+5:0", None),
            ("2026-01-01T00:00:00+24:00", None),
            ("2026-01-01T00:00:00-00:60", None),
            ("2026-01-01T00:00:00", None),
            ("2026-01-01", None),
            ("tomorrow", None),
            ("\u{e9}\u{e9}26-01-01T00:00:00Z", None),
            ("2026-01-01T00:00:00+aa:00", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(from_rfc3339(text), wanted, "{text}");
        }
    }
}
