//! Sizes such as `32MiB` and durations such as `30d`: read from text, and written in the shortest exact form.

/// Suffixes of sizes, largest first.
const SIZES: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];
/// Suffixes of durations in milliseconds, largest first.
const SPANS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Bytes: `32MiB`, `512KiB`, `1GiB`, `100B` or a bare number.
pub fn parse_size(text: &str) -> Option<u64> {
    match split(text)? {
        (number, "") => Some(number),
        (number, unit) => scale(number, unit, &SIZES),
    }
}

/// Milliseconds: `30d`, `12h`, `5m`, `10s`, `250ms`. A unit is required.
pub fn parse_span(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    scale(number, unit, &SPANS)
}

/// The shortest exact form of a size.
pub fn show_size(bytes: u64) -> String {
    show(bytes, &SIZES)
}

/// The shortest exact form of a duration in milliseconds.
pub fn show_span(millis: u64) -> String {
    show(millis, &SPANS)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    Some((number.parse().ok()?, unit.trim_start_matches(' ')))
}

fn scale(number: u64, unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

fn show(value: u64, units: &[(&str, u64)]) -> String {
    let fitting = units
        .iter()
        .find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor))
        .or(units.last());
    match fitting {
        Some((unit, factor)) => format!("{}{unit}", value / factor),
        None => value.to_string(),
    }
}

/// Microseconds since 1970-01-01 UTC of a date, which means its beginning in UTC, or of a date and time with its offset (RFC 3339).
pub fn parse_date(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once(['T', 't']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let days = days(year, month, day)?;
    let seconds = time.map_or(Some(0), seconds)?;
    (days * 86_400 + seconds).checked_mul(1_000_000)
}

/// Numbers of so many digits each.
fn fields<const N: usize>(text: &str, divider: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(divider);
    let mut numbers = [0; N];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next()?;
        let digits = part.len() == width && part.bytes().all(|b| b.is_ascii_digit());
        *number = part.parse().ok().filter(|_| digits)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Days from 1970-01-01 in the Gregorian calendar, or `None` for a day that no month has. Inside, years begin in March.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    };
    if !(1..=12).contains(&month) || !(1..=longest).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    Some(era * 146_097 + of_era - 719_468)
}

/// Seconds of `12:30:00`, with or without a fraction, which is dropped, less its offset: `Z` or `+02:00`.
fn seconds(text: &str) -> Option<i64> {
    let (time, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let at = text.rfind(['+', '-'])?;
            let (time, offset) = text.split_at_checked(at)?;
            let ahead = if offset.starts_with('-') { -60 } else { 60 };
            let [hours, minutes] = fields(offset.get(1..)?, ':', [2, 2])?;
            (hours < 24 && minutes < 60).then_some(())?;
            (time, ahead * (hours * 60 + minutes))
        }
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = fields(time, ':', [2, 2, 2])?;
    let sound = hour < 24 && minute < 60 && second < 60;
    let digits = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    (sound && digits).then_some(hour * 3600 + minute * 60 + second - offset)
}
