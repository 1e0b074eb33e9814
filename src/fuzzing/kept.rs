//! What comes from disk, from clocks and from whoever gives credentials: spooled records, dates, answers with tokens, compressed bodies,
//! streams of lines and of elements.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use super::choice;
use crate::core::limits::PUSHBACK_MAX;
use crate::core::time::WallTime;
use crate::ledger::spool::{decode, encode};
use crate::ledger::store::Piece;
use crate::policy::identity::Grant;
use crate::policy::secret::Secret;
use crate::providers::answer::{ResponseHead, Single};
use crate::providers::aws_session::{
    Given, Reading, read_instance_role, read_instance_session, read_json, read_process, read_role,
};
use crate::providers::encoding;
use crate::providers::json_array::ArraySplitter;
use crate::providers::json_lines::LineSplitter;
use crate::providers::pushback;
use crate::providers::timestamp::{from_rfc3339, rfc3339};
use crate::providers::token::{self, LIFETIME_MAX, TokenError};
use crate::records::utc::Utc;

/// Spooled segments: what is read can be written and read again; a piece stays itself whatever stands behind it; damage is counted.
pub fn spool(input: &[u8]) {
    let (kind, bytes) = choice(input);
    // A checksum is beyond the reach of a random input, so the same bytes are also put into an entry.
    let mut entry = Vec::new();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    entry.extend(length.to_le_bytes());
    entry.extend(crc32fast::hash(bytes).to_le_bytes());
    entry.extend(bytes);
    for segment in [bytes, &entry] {
        let read = decode(segment);
        let is_whole = segment.is_empty() || read.damaged > 0 || !read.pieces.is_empty();
        assert!(is_whole, "bytes that are neither a piece nor damage");
        assert!(read.damaged > 0 || !read.is_torn, "torn and undamaged");
        let again = written(&read.pieces);
        let reread = decode(&again);
        assert_eq!(reread.damaged, 0, "what was written is damaged");
        assert_eq!(told(&read.pieces), told(&reread.pieces), "what was written");
        damaged(&again, &read.pieces, kind);
    }
}

fn written(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pieces.iter().for_each(|piece| encode(piece, &mut bytes));
    bytes
}

fn told(pieces: &[Piece]) -> Vec<String> {
    pieces.iter().map(|piece| format!("{piece:?}")).collect()
}

/// One byte less, one byte changed: no other piece comes of it.
fn damaged(bytes: &[u8], pieces: &[Piece], kind: usize) {
    let Some((_, shorter)) = bytes.split_last() else {
        return;
    };
    let read = decode(shorter);
    assert!(read.is_torn && read.damaged == 1, "a torn end was not seen");
    assert_eq!(read.pieces.len() + 1, pieces.len(), "a torn end");
    let mut spoilt = bytes.to_vec();
    let place = kind % spoilt.len();
    if let Some(byte) = spoilt.get_mut(place) {
        *byte ^= 1 << (kind % 8);
    }
    let (read, known) = (decode(&spoilt), told(pieces));
    assert!(read.damaged > 0, "a changed byte was not seen");
    assert!(
        told(&read.pieces).iter().all(|piece| known.contains(piece)),
        "a piece that nobody wrote"
    );
}

/// Dates: the same instant in each of the three forms of HTTP, the delay between two of them exact, and times of records and of
/// credentials as they are written.
pub fn dates(input: &[u8]) {
    let number = |range: std::ops::Range<usize>| {
        let bytes = input.get(range).unwrap_or_default();
        bytes
            .iter()
            .fold(0_u64, |number, byte| (number << 8) | u64::from(*byte))
    };
    // Years 1970 to 9999.
    const SECONDS_MAX: u64 = 253_402_300_799;
    let (sent, until) = (number(0..5) % SECONDS_MAX, number(5..10) % SECONDS_MAX);
    let expected = Duration::from_secs(until.saturating_sub(sent));
    let expected = expected.min(PUSHBACK_MAX);
    for (form, text) in forms(until).into_iter().enumerate() {
        let Some(text) = text else { continue };
        let date = imf(sent);
        let headers = [("retry-after", text.as_bytes()), ("date", date.as_bytes())];
        assert_eq!(
            delay(headers),
            Some(expected),
            "form {form}: {text} at {date}"
        );
        // Without a date there is nothing to hold it against.
        let alone = [("retry-after", text.as_bytes())];
        assert_eq!(delay(alone), None, "{text} without a date");
    }
    let at = rfc3339(until);
    assert_eq!(from_rfc3339(&at), Some(until), "{at}");
    let text = String::from_utf8_lossy(input.get(10..).unwrap_or_default());
    let headers = [("retry-after", text.as_bytes()), ("date", at.as_bytes())];
    assert!(delay(headers).is_none_or(|delay| delay <= PUSHBACK_MAX));
    if let Some(seconds) = from_rfc3339(&text) {
        reads_back(&text, seconds);
    }
    if let Some(time) = Utc::parse(&text) {
        let shown = time.to_string();
        assert_eq!(Utc::parse(&shown), Some(time), "{shown}");
        let day = (shown.get(..10), text.get(..10));
        assert_eq!(day.0, day.1, "another day");
    }
}

/// A time in UTC reads as what it says; a leap second as the next one.
fn reads_back(text: &str, seconds: u64) {
    let shown = rfc3339(seconds);
    let is_utc = text.ends_with(['Z', 'z']);
    let is_leap = text.get(17..19) == Some("60");
    if is_utc && !is_leap {
        let parts = [0..10, 11..19];
        for part in parts {
            assert_eq!(
                shown.get(part.clone()),
                text.get(part),
                "{text} reads as {shown}"
            );
        }
    }
}

fn delay<const N: usize>(headers: [(&str, &[u8]); N]) -> Option<Duration> {
    let head = ResponseHead {
        status: 429,
        headers: &headers,
    };
    pushback::read(&head, None, &[])
}

const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn imf(seconds: u64) -> String {
    let [first, ..] = forms(seconds);
    first.unwrap_or_default()
}

/// The three forms; the one with two digits of a year only where these mean that year.
fn forms(seconds: u64) -> [Option<String>; 3] {
    let shown = rfc3339(seconds);
    let part = |range: std::ops::Range<usize>| shown.get(range).unwrap_or_default().to_owned();
    let (year, day, clock) = (part(0..4), part(8..10), part(11..19));
    let month: usize = part(5..7).parse().unwrap_or(1);
    let month = MONTHS
        .get(month.saturating_sub(1))
        .copied()
        .unwrap_or("Jan");
    // 1 January 1970 was a Thursday.
    let weekday = usize::try_from((seconds / 86_400 + 3) % 7).unwrap_or(0);
    let weekday = DAYS.get(weekday).copied().unwrap_or("Monday");
    let short = weekday.get(..3).unwrap_or_default();
    let padded = day
        .strip_prefix('0')
        .map_or(day.clone(), |digit| format!(" {digit}"));
    let century = ("1970".."2070").contains(&&*year);
    let two = part(2..4);
    [
        Some(format!("{short}, {day} {month} {year} {clock} GMT")),
        century.then(|| format!("{weekday}, {day}-{month}-{two} {clock} GMT")),
        Some(format!("{short} {month} {padded} {clock} {year}")),
    ]
}

/// Answers of those who give credentials: a credential that a header can carry, for a time that is believed, or an error that repeats
/// nothing but a short word.
pub fn credentials(input: &[u8]) {
    let (kind, body) = choice(input);
    let now = WallTime::from_unix_micros(1_790_000_000_000_000);
    let reading = Reading {
        region: "eu-west-1",
        now,
    };
    let status = [200, 201, 400, 500].get(kind % 4).copied().unwrap_or(200);
    let copilot = Grant::Copilot {
        token: Secret::new("t"),
        editor_version: "e".into(),
    };
    for grant in [Grant::MetadataServer, copilot] {
        match token::read(&grant, status, body, now) {
            Ok(token) => {
                carried(&token.secret);
                lives(token.lifetime);
                assert!(
                    token::renewed_after(token.lifetime) < token.lifetime,
                    "renewed at its end"
                );
            }
            Err(error) => says_little(&error),
        }
    }
    let given = [
        read_json(status, body, &reading),
        read_process(body, &reading),
        read_role(status, body, &reading),
    ];
    for given in given {
        match given {
            Ok(Given { identity, lifetime }) => {
                lives(lifetime);
                let all = [&identity.access_key_id, &identity.secret_access_key];
                all.into_iter()
                    .chain(&identity.session_token)
                    .for_each(carried);
            }
            Err(error) => says_little(&error),
        }
    }
    match read_instance_session(status, body) {
        Ok(secret) => carried(&secret),
        Err(error) => says_little(&error),
    }
    match read_instance_role(status, body) {
        // It becomes the last part of a path.
        Ok(role) => assert!(
            !role.contains(['/', '?', '#', ' ']) && ![".", ".."].contains(&&*role),
            "{role}"
        ),
        Err(error) => says_little(&error),
    }
}

fn carried(secret: &Secret) {
    let text = secret.expose();
    assert!(!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()));
}

fn lives(lifetime: Duration) {
    assert!(
        lifetime > Duration::ZERO && lifetime <= LIFETIME_MAX,
        "{lifetime:?}"
    );
}

fn says_little(error: &TokenError) {
    let text = error.to_string();
    assert!(
        text.len() <= 128 && !text.contains(char::is_control),
        "{text}"
    );
}

/// Compressed bodies: never more than the bound, and up to it all of what was compressed, to the byte.
pub fn compressed(input: &[u8]) {
    const BOUND: usize = 256;
    let (kind, bytes) = choice(input);
    for name in ["gzip", "deflate", "br", "zstd", "identity", "", "x"] {
        let read = encoding::decode(Single::One(name.as_bytes()), bytes, BOUND);
        let is_plain = name.is_empty() || name == "identity";
        assert!(
            read.is_err() || is_plain || read.is_ok_and(|plain| plain.len() <= BOUND),
            "{name}"
        );
    }
    let length = (BOUND + kind % 3).saturating_sub(1);
    let body: Vec<u8> = bytes
        .iter()
        .copied()
        .cycle()
        .take(length.min(bytes.len() * 300))
        .collect();
    // Writing into memory does not fail.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
    let _ = gzip.write_all(&body);
    let _ = zlib.write_all(&body);
    let _ = bare.write_all(&body);
    let packed = [
        ("gzip", gzip.finish().unwrap_or_default()),
        ("deflate", zlib.finish().unwrap_or_default()),
        ("deflate", bare.finish().unwrap_or_default()),
    ];
    for (name, packed) in packed {
        let read = encoding::decode(Single::One(name.as_bytes()), &packed, BOUND);
        let expected = (body.len() <= BOUND).then_some(body.as_slice());
        assert_eq!(
            read.as_deref().ok(),
            expected,
            "{name} of {} bytes",
            body.len()
        );
    }
}

/// Streams of lines and of elements: the same whatever the chunks, nothing over the bound, and everything up to the bound.
pub fn splitters(input: &[u8]) {
    const BOUND: usize = 32;
    let (size, bytes) = choice(input);
    let lines = |size: usize| {
        let (mut splitter, mut found) = (LineSplitter::new(BOUND), Vec::new());
        for chunk in bytes.chunks(size.max(1)) {
            splitter.feed(chunk, &mut |line| found.push(line.to_vec()));
        }
        splitter.finish(&mut |line| found.push(line.to_vec()));
        (found, splitter.overflowed())
    };
    let elements = |size: usize| {
        let (mut splitter, mut found) = (ArraySplitter::new(BOUND), Vec::new());
        for chunk in bytes.chunks(size.max(1)) {
            splitter.feed(chunk, &mut |element| found.push(element));
        }
        (
            found,
            splitter.overflowed(),
            splitter.closed(),
            splitter.not_array(),
        )
    };
    let (whole_lines, whole_elements) = (lines(bytes.len()), elements(bytes.len()));
    for size in [size, 1] {
        assert_eq!(whole_lines, lines(size), "chunks of {size}");
        assert_eq!(whole_elements, elements(size), "chunks of {size}");
    }
    let found = whole_lines.0.iter().chain(&whole_elements.0);
    assert!(
        { found }.all(|part| !part.is_empty() && part.len() <= BOUND),
        "over the bound"
    );
    // A line is what stands between line feeds, and the bound is one of lines.
    let mut all = bytes.split(|byte| *byte == b'\n');
    let is_over = { all.clone() }.any(|line| line.len() > BOUND);
    assert_eq!(
        whole_lines.1, is_over,
        "a line of the bound and its line feed"
    );
    let expected: Vec<Vec<u8>> = all
        .by_ref()
        .take_while(|line| line.len() <= BOUND)
        .map(|line| line.trim_ascii().to_vec())
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(whole_lines.0, expected, "the lines");
}
