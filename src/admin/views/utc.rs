//! A time as `2026-01-31T12:00:00.000000Z`.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::core::time::WallTime;

/// Writes a time in the form of RFC 3339, in UTC and with microseconds.
#[derive(Clone, Copy)]
pub(super) struct Utc(pub WallTime);

impl Serialize for Utc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.unix_micros();
        let (seconds, fraction) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T")?;
        write!(f, "{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_microseconds() {
        let check = |micros, text: &str| {
            let time = WallTime::from_unix_micros(micros);
            assert_eq!(Utc(time).to_string(), text);
        };
        check(0, "1970-01-01T00:00:00.000000Z");
        check(951_782_399_999_999, "2000-02-28T23:59:59.999999Z");
        check(951_782_400_000_000, "2000-02-29T00:00:00.000000Z");
        check(1_767_225_599_000_001, "2025-12-31T23:59:59.000001Z");
        check(4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z");
        check(-1, "1969-12-31T23:59:59.999999Z");
    }
}
