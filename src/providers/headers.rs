//! Which response headers may reach the client, and where an upstream's request id is found.
//!
//! Not here: the headers that the gateway adds itself. Error answers pass an allow-list, since they may be kept and answered much
//! later; good answers pass all but a deny-list. Credentials, cookies and hop-by-hop headers pass in neither (R-D2, R-X2).

use super::answer::HeaderLookup;

/// Headers of an error answer that pass, by whole name.
const ERROR_NAMES: &[&str] = &[
    "content-type",
    "content-encoding",
    "content-language",
    "retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-should-retry",
    "request-id",
    "openai-processing-ms",
    "openai-version",
];

/// Headers of an error answer that pass, by how the name begins.
const ERROR_PREFIXES: &[&str] = &[
    "x-ratelimit-",
    "anthropic-ratelimit-",
    "anthropic-priority-",
];

/// Headers that pass with no answer. The gateway gives its own `x-request-id`, `date` and `server`.
const NEVER_NAMES: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-authentication-info",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "set-cookie",
    "set-cookie2",
    "cookie",
    "authorization",
    "www-authenticate",
    "authentication-info",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "x-amz-security-token",
    "server",
    "alt-svc",
    "strict-transport-security",
    "x-request-id",
    "openai-organization",
    "openai-project",
    "anthropic-organization-id",
    "anthropic-workspace-id",
];

/// Headers that pass with no answer, by how the name begins.
const NEVER_PREFIXES: &[&str] = &["x-rondo-", "cf-", "proxy-"];

/// Headers that hold the upstream's own id of a request, the likeliest first.
const REQUEST_ID_NAMES: &[&str] = &[
    "x-request-id",
    "request-id",
    "apim-request-id",
    "x-ms-request-id",
    "x-amzn-requestid",
    "x-generation-id",
];

/// Longest upstream request id that is kept. Real ones have at most 64 bytes.
const REQUEST_ID_MAX: usize = 128;

/// Whether a header of an error answer may pass to the client.
pub fn passes_with_error(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ERROR_NAMES.contains(&name.as_str())
        || ERROR_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a header of a good answer may pass to the client.
pub fn passes_with_answer(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let never = NEVER_NAMES.contains(&name.as_str())
        || NEVER_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    !never
}

/// The upstream's own id of the request, if it gave a sane one.
pub fn upstream_request_id(headers: &dyn HeaderLookup) -> Option<&str> {
    REQUEST_ID_NAMES.iter().find_map(|name| {
        let text = std::str::from_utf8(headers.value(name)?).ok()?.trim();
        let sane = !text.is_empty()
            && text.len() <= REQUEST_ID_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        sane.then_some(text)
    })
}
