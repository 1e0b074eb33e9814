//! A time as `2026-01-31T12:00:00.000000Z`, written and read.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::core::time::WallTime;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Writes a time in the form of RFC 3339, in UTC and with microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc(pub WallTime);

impl Serialize for Utc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.unix_micros();
        let seconds = micros.div_euclid(MICROS_PER_SECOND);
        let fraction = micros.rem_euclid(MICROS_PER_SECOND);
        let days = seconds.div_euclid(SECONDS_PER_DAY);
        let second = seconds.rem_euclid(SECONDS_PER_DAY);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T")?;
        write!(f, "{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
    }
}

impl Utc {
    /// Reads `2026-01-31`, `2026-01-31T12:00Z`, `2026-01-31T12:00:00Z` and the same with one to six digits of a second's fraction.
    pub fn parse(text: &str) -> Option<Utc> {
        let (date, time) = match text.split_once('T') {
            Some((date, time)) => (date, Some(time.strip_suffix('Z')?)),
            None => (text, None),
        };
        let [year, month, day] = digits(date, '-', [4, 2, 2])?;
        let days = days_from_civil(year, month, day);
        // A day that its month does not have comes back as another one.
        if civil(days) != (year, month, day) {
            return None;
        }
        let micros = time.map_or(Some(0), micros_of_day)?;
        let at = days * SECONDS_PER_DAY * MICROS_PER_SECOND + micros;
        Some(Utc(WallTime::from_unix_micros(at)))
    }
}

/// `12:00`, `12:00:00` or `12:00:00.000000`, in microseconds.
fn micros_of_day(text: &str) -> Option<i64> {
    let (clock, fraction) = match text.split_once('.') {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (text, None),
    };
    let [hour, minute, second] = match (digits(clock, ':', [2, 2, 2]), fraction) {
        (Some(clock), _) => clock,
        (None, None) => {
            let [hour, minute] = digits(clock, ':', [2, 2])?;
            [hour, minute, 0]
        }
        (None, Some(_)) => return None,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let micros = fraction.map_or(Some(0), |fraction| {
        let places = fraction.len();
        let [value] = (1..=6)
            .contains(&places)
            .then(|| digits(fraction, '.', [places]))??;
        Some(value * 10_i64.pow(6_u32.checked_sub(u32::try_from(places).ok()?)?))
    })?;
    Some(((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + micros)
}

/// Whole numbers of just these lengths.
fn digits<const N: usize>(text: &str, separator: char, lengths: [usize; N]) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(separator);
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part = parts.next().filter(|part| part.len() == length)?;
        let plain = part.bytes().all(|byte| byte.is_ascii_digit());
        *number = plain.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Inside, years begin in March, so that the leap day
/// is the last of its year.
const fn civil(days: i64) -> (i64, i64, i64) {
    // Days from 0000-03-01, in eras of 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

/// The opposite. The month must be one; a day beyond the month's end counts into the next.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = (month + 9).rem_euclid(12);
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_microseconds() {
        let check = |micros, text: &str| {
            let time = Utc(WallTime::from_unix_micros(micros));
            assert_eq!(time.to_string(), text);
            assert_eq!(Utc::parse(text), Some(time));
        };
        check(0, "1970-01-01T00:00:00.000000Z");
        check(951_782_399_999_999, "2000-02-28T23:59:59.999999Z");
        check(951_782_400_000_000, "2000-02-29T00:00:00.000000Z");
        check(1_767_225_599_000_001, "2025-12-31T23:59:59.000001Z");
        check(4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z");
        check(-1, "1969-12-31T23:59:59.999999Z");
    }
}
