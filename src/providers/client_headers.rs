//! What a client says about itself in headers: who it is, how long it waits, whether it retries, how it names the request.
//!
//! Not here: headers that are passed on (`outbound_headers`). A header that does not parse counts as absent.

use std::time::Duration;

/// Characters of a request id that is kept.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// Bytes of a client's credential that is looked at; longer ones are nobody's key.
const CREDENTIAL_BYTES_MAX: usize = 4096;
/// Digits of a duration that are read; longer ones are longer than any deadline.
const DURATION_BYTES_MAX: usize = 18;

/// How long the client waits for the first byte: the shortest time that it states (R-B4). The caller only ever shortens its
/// deadline by it.
///
/// `x-stainless-read-timeout` limits silence, not the whole answer. The gateway is silent until it commits, and a committed
/// stream is not cut by the deadline, so up to there both mean the same.
pub fn client_timeout<'h>(get: impl Fn(&str) -> Option<&'h [u8]>) -> Option<Duration> {
    let millis = get("x-request-timeout-ms").and_then(|text| duration(text, 1_000_000));
    let total = get("x-stainless-timeout").and_then(|text| duration(text, 1_000_000_000));
    let read = get("x-stainless-read-timeout").and_then(|text| duration(text, 1_000_000_000));
    [millis, total, read].into_iter().flatten().min()
}

/// Whether the client says that this request is its own retry (R-S11, `caller_retry`).
pub fn caller_retry<'h>(get: impl Fn(&str) -> Option<&'h [u8]>) -> bool {
    get("x-stainless-retry-count").is_some_and(|text| {
        let text = text.trim_ascii();
        text.iter().all(u8::is_ascii_digit) && text.iter().any(|digit| *digit != b'0')
    })
}

/// What the client shows as its own credential, in the forms that client libraries use. None of it goes upstream.
pub fn credentials<'h>(
    get: impl Fn(&str) -> Option<&'h [u8]>,
    query: Option<&'h str>,
) -> impl Iterator<Item = &'h [u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let bearer = get("authorization").and_then(|value| {
        let (scheme, token) = value.split_at_checked(SCHEME.len())?;
        scheme
            .eq_ignore_ascii_case(SCHEME)
            .then(|| token.trim_ascii())
    });
    let named = ["x-api-key", "api-key", "x-goog-api-key"].map(get);
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let in_query = pairs.filter_map(|pair| Some(pair.strip_prefix("key=")?.as_bytes()));
    let in_headers = std::iter::once(bearer).chain(named).flatten();
    in_headers
        .chain(in_query)
        .filter(|text| (1..=CREDENTIAL_BYTES_MAX).contains(&text.len()))
}

/// The client's request id if it is fit for logs, records and headers.
pub fn sane_request_id(text: &[u8]) -> Option<&str> {
    let is_sane =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    let fits = (1..=REQUEST_ID_BYTES_MAX).contains(&text.len());
    (fits && text.iter().all(is_sane))
        .then(|| std::str::from_utf8(text).ok())
        .flatten()
}

/// Digits with an optional fraction, in units of so many nanoseconds. Zero counts as absent: clients that round down send it
/// for "less than a second".
fn duration(text: &[u8], unit_nanos: u64) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if text.len() > DURATION_BYTES_MAX || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let whole_nanos = u128::from(whole.parse::<u64>().ok()?) * u128::from(unit_nanos);
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction_nanos = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit_nanos) / scale;
    let nanos = u64::try_from(whole_nanos + fraction_nanos).unwrap_or(u64::MAX);
    (nanos > 0).then(|| Duration::from_nanos(nanos))
}
