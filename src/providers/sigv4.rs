//! Signatures of AWS requests (version 4), as pure functions of the request, the credentials and the time.
//!
//! Not here: where credentials come from and who sends the request. The path is taken as it is sent and encoded once more, as all
//! services but S3 want it. The secret never leaves this file but as a signature.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use super::inbound::percent_decode;
use super::outbound::push_encoded;
use super::timestamp::rfc3339;
use crate::core::time::WallTime;
use crate::policy::secret::Secret;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// An identity of AWS.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    /// The public half.
    pub access_key_id: &'a str,
    /// The secret half.
    pub secret_access_key: &'a Secret,
    /// The token that goes with temporary credentials.
    pub session_token: Option<&'a Secret>,
}

/// Where a signature counts.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The region, e.g. `us-east-1`.
    pub region: &'a str,
    /// The service: `bedrock` for its runtime, too.
    pub service: &'a str,
}

/// What is signed.
#[derive(Debug, Clone, Copy)]
pub struct ToSign<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query as they are sent.
    pub path: &'a str,
    /// The `host` header as it is sent.
    pub host: &'a str,
    /// Further headers that the signature covers, under their names in lower case.
    pub headers: &'a [(&'a str, &'a str)],
    /// The hash of the body, from [`payload_hash`].
    pub payload_hash: &'a str,
}

/// Headers to be sent beside those that were signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// `authorization`
    pub authorization: String,
    /// `x-amz-date`
    pub date: String,
}

/// The hash of a body that is sent in parts.
pub fn payload_hash<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// Signs a request. The session token, if there is one, is to be sent as `x-amz-security-token` and is covered.
pub fn sign(
    request: &ToSign<'_>,
    who: &Credentials<'_>,
    scope: &Scope<'_>,
    now: WallTime,
) -> Signed {
    let date = basic_date(now);
    let day = date.split('T').next().unwrap_or(&date);
    let (names, lines) = canonical_headers(request, who, &date);
    let (path, query) = request.path.split_once('?').unwrap_or((request.path, ""));
    let canonical = [
        request.method,
        &canonical_path(path),
        &canonical_query(query),
        &lines,
        &names,
        request.payload_hash,
    ]
    .join("\n");
    let within = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let hashed = payload_hash([canonical.as_bytes()]);
    let text = [ALGORITHM, &date, &within, &hashed].join("\n");
    let key = signing_key(who.secret_access_key, day, scope);
    let signature = hex(&keyed(&key, text.as_bytes()));
    let id = who.access_key_id;
    let authorization = format!(
        "{ALGORITHM} Credential={id}/{within}, SignedHeaders={names}, Signature={signature}"
    );
    Signed {
        authorization,
        date,
    }
}

/// `20150830T123600Z`
fn basic_date(now: WallTime) -> String {
    let seconds = u64::try_from(now.unix_micros() / 1_000_000).unwrap_or(0);
    let mut date = rfc3339(seconds);
    date.retain(|char| char != '-' && char != ':');
    date
}

fn signing_key(secret: &Secret, day: &str, scope: &Scope<'_>) -> [u8; 32] {
    let first = format!("AWS4{}", secret.expose());
    let mut key = keyed(first.as_bytes(), day.as_bytes());
    for part in [scope.region, scope.service, "aws4_request"] {
        key = keyed(&key, part.as_bytes());
    }
    key
}

fn keyed(key: &[u8], text: &[u8]) -> [u8; 32] {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        // Keys of any length are taken.
        return [0; 32];
    };
    mac.update(text);
    mac.finalize().into_bytes().into()
}

/// The names of the covered headers, and a line for each.
fn canonical_headers(request: &ToSign<'_>, who: &Credentials<'_>, date: &str) -> (String, String) {
    let token = who.session_token.map(Secret::expose);
    let own = [("host", request.host), ("x-amz-date", date)];
    let token = token.map(|token| ("x-amz-security-token", token));
    let mut all: Vec<(&str, &str)> = own
        .into_iter()
        .chain(token)
        .chain(request.headers.iter().copied())
        .collect();
    // Headers of one name keep their order.
    all.sort_by_key(|(name, _)| *name);
    let (mut names, mut lines) = (String::new(), String::new());
    let mut last = None;
    for (name, value) in all {
        let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        if last == Some(name) {
            lines.pop();
            lines.extend([",", &value, "\n"]);
            continue;
        }
        if last.is_some() {
            names.push(';');
        }
        names.push_str(name);
        lines.extend([name, ":", &value, "\n"]);
        last = Some(name);
    }
    (names, lines)
}

/// Every segment encoded, whatever it is.
fn canonical_path(path: &str) -> String {
    let mut canonical = String::with_capacity(path.len());
    for (place, segment) in path.split('/').enumerate() {
        if place > 0 {
            canonical.push('/');
        }
        push_encoded(&mut canonical, segment);
    }
    if canonical.is_empty() {
        canonical.push('/');
    }
    canonical
}

/// Every parameter in one encoding, in order.
fn canonical_query(query: &str) -> String {
    let encoded = |text: &str| {
        let mut encoded = String::new();
        push_encoded(&mut encoded, &percent_decode(text).unwrap_or(text.into()));
        encoded
    };
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (encoded(name), encoded(value))
        })
        .collect();
    pairs.sort();
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
