//! The headers of a request to a target, built from scratch: allow-listed ones of the client, then the target's own (R-X2).
//!
//! Not here: `host`, which the shell sets with the connection. Invariant: no credential, cookie or unknown header of a client
//! is ever in the result, since nothing is copied that is not named here.

use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT,
};
use thiserror::Error;

use super::handshake;
use crate::core::api::{Api, Family};
use crate::policy::provider::OwnHeader;
use crate::policy::secret::Secret;

/// Client headers that pass. Real clients send under ten of the allow-listed.
pub const PASSED_HEADERS_MAX: usize = 32;
/// Bytes of one passed value. Longer values are dropped whole: half a value means something else.
pub const PASSED_VALUE_BYTES_MAX: usize = 4096;

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
const OPENAI_BETA: HeaderName = HeaderName::from_static("openai-beta");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Names a guardrail of one account, which binds an operation to its first target (R-S7).
pub(super) const GUARDRAIL_HEADER: &str = "x-amzn-bedrock-guardrailidentifier";
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where a provider wants its credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthScheme {
    /// `authorization: Bearer ...`
    Bearer,
    /// `x-api-key` (Anthropic).
    XApiKey,
    /// `x-goog-api-key` (Gemini).
    XGoogApiKey,
    /// `api-key` (Azure).
    ApiKey,
    /// Nowhere.
    None,
}

/// What a request needs beside the client's headers.
#[derive(Debug, Clone, Copy)]
pub struct Prepared<'a> {
    /// The API format of the request.
    pub api: Api,
    /// The operation's id.
    pub request_id: &'a str,
    /// Where the credential goes.
    pub auth: AuthScheme,
    /// The target's credential; without one there is no such header.
    pub secret: Option<&'a Secret>,
    /// Bytes of the body.
    pub content_length: usize,
}

/// Why no headers could be built. Both are the configuration's fault or ours, never the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The credential has characters that no header can carry.
    #[error("the key has characters that a header cannot carry")]
    Secret,
    /// The request id has.
    #[error("the request id has characters that a header cannot carry")]
    RequestId,
}

/// The headers for a target. `client` yields every header of the client's request, in order.
pub fn request_headers<'c>(
    client: impl IntoIterator<Item = (&'c str, &'c [u8])>,
    prepared: &Prepared<'_>,
) -> Result<Vec<(HeaderName, HeaderValue)>, HeaderError> {
    let mut headers = passed(client, prepared.api.family());
    if is_new(&headers, &CONTENT_TYPE) {
        headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
    }
    if let Some(version) = default_version(prepared.api)
        && is_new(&headers, &ANTHROPIC_VERSION)
    {
        headers.push((ANTHROPIC_VERSION, HeaderValue::from_static(version)));
    }
    let id = HeaderValue::from_str(prepared.request_id).map_err(|_| HeaderError::RequestId)?;
    headers.push((X_REQUEST_ID, id));
    headers.push((CONTENT_LENGTH, HeaderValue::from(prepared.content_length)));
    headers.extend(credential(prepared.auth, prepared.secret)?);
    Ok(headers)
}

/// The headers of a WebSocket handshake for a target.
pub fn handshake_headers(
    client: &[(&str, &[u8])],
    prepared: &Prepared<'_>,
) -> Result<Vec<(HeaderName, HeaderValue)>, HeaderError> {
    let mut headers = passed(client.iter().copied(), prepared.api.family());
    headers.retain(|(name, _)| !handshake::describes_body(name));
    headers.extend(handshake::headers(client.iter().copied()));
    let id = HeaderValue::from_str(prepared.request_id).map_err(|_| HeaderError::RequestId)?;
    headers.push((X_REQUEST_ID, id));
    headers.extend(credential(prepared.auth, prepared.secret)?);
    Ok(headers)
}

/// Adds the headers of the configuration, in place of any that a client sent under their names.
pub fn add_own(
    headers: &mut Vec<(HeaderName, HeaderValue)>,
    own: &[OwnHeader],
) -> Result<(), HeaderError> {
    for header in own {
        let name = HeaderName::from_static(header.name);
        let value = HeaderValue::from_str(&header.value).map_err(|_| HeaderError::Secret)?;
        headers.retain(|(known, _)| *known != name);
        headers.push((name, value));
    }
    Ok(())
}

/// The client's headers that pass. Values that are too long or have control characters are dropped.
fn passed<'c>(
    client: impl IntoIterator<Item = (&'c str, &'c [u8])>,
    family: Family,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::with_capacity(12);
    for (name, value) in client {
        let Some((name, repeats)) = allowed(name, family) else {
            continue;
        };
        let fits = headers.len() < PASSED_HEADERS_MAX && value.len() <= PASSED_VALUE_BYTES_MAX;
        if !fits || (repeats == Repeats::No && !is_new(&headers, &name)) {
            continue;
        }
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.push((name, value));
        }
    }
    headers
}

fn is_new(headers: &[(HeaderName, HeaderValue)], name: &HeaderName) -> bool {
    headers.iter().all(|(known, _)| known != name)
}

/// Whether a header may come more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeats {
    Yes,
    No,
}

fn allowed(name: &str, family: Family) -> Option<(HeaderName, Repeats)> {
    const ALLOWED: [(HeaderName, Repeats); 7] = [
        (CONTENT_TYPE, Repeats::No),
        (ACCEPT, Repeats::Yes),
        (ANTHROPIC_VERSION, Repeats::No),
        (ANTHROPIC_BETA, Repeats::Yes),
        (OPENAI_BETA, Repeats::Yes),
        (USER_AGENT, Repeats::No),
        (TRACEPARENT, Repeats::No),
    ];
    // What parametrises an invocation stands in headers there; a guardrail must never be lost on the way.
    const OF_BEDROCK: [HeaderName; 6] = [
        HeaderName::from_static("x-amzn-bedrock-accept"),
        HeaderName::from_static("x-amzn-bedrock-trace"),
        HeaderName::from_static(GUARDRAIL_HEADER),
        HeaderName::from_static("x-amzn-bedrock-guardrailversion"),
        HeaderName::from_static("x-amzn-bedrock-performanceconfig-latency"),
        HeaderName::from_static("x-amzn-bedrock-service-tier"),
    ];
    let own = OF_BEDROCK
        .into_iter()
        .filter(|_| family == Family::Bedrock)
        .map(|name| (name, Repeats::No));
    ALLOWED
        .into_iter()
        .chain(own)
        .find(|(known, _)| name.eq_ignore_ascii_case(known.as_str()))
}

/// The header of a credential; `None` where there is none to show.
pub fn credential(
    auth: AuthScheme,
    secret: Option<&Secret>,
) -> Result<Option<(HeaderName, HeaderValue)>, HeaderError> {
    let Some(secret) = secret else {
        return Ok(None);
    };
    let (name, value) = match auth {
        AuthScheme::Bearer => (
            AUTHORIZATION,
            HeaderValue::try_from(format!("Bearer {}", secret.expose())),
        ),
        AuthScheme::XApiKey => (
            HeaderName::from_static("x-api-key"),
            HeaderValue::from_str(secret.expose()),
        ),
        AuthScheme::XGoogApiKey => (
            HeaderName::from_static("x-goog-api-key"),
            HeaderValue::from_str(secret.expose()),
        ),
        AuthScheme::ApiKey => (
            HeaderName::from_static("api-key"),
            HeaderValue::from_str(secret.expose()),
        ),
        AuthScheme::None => return Ok(None),
    };
    let mut value = value.map_err(|_| HeaderError::Secret)?;
    // It then prints as `Sensitive`, and HTTP/2 does not index it.
    value.set_sensitive(true);
    Ok(Some((name, value)))
}

/// The `anthropic-version` that a request has when the client names none.
const fn default_version(api: Api) -> Option<&'static str> {
    match api.family() {
        Family::Anthropic => Some("2023-06-01"),
        Family::Openai | Family::Gemini | Family::Bedrock => None,
    }
}
