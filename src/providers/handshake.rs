//! WebSocket handshakes: what a client's must be, what a target gets of it, and what a target's answer says.
//!
//! Not here: frames. They are nobody's to read but the two ends'. Invariants: no credential that hides in a subprotocol or a parameter
//! reaches a target; until a target has switched protocols no frame has left, so a refused handshake has run nothing.

use http::HeaderMap;
use http::header::{
    CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};

use super::answer::{ResponseHead, Single, Verdict};
use super::binding::Binding;
use super::inbound::{is_model_name, percent_decode};
use super::outbound::push_encoded;
use super::outbound_headers::PASSED_VALUE_BYTES_MAX;
use super::scan::{ModelSpans, Scan};
use crate::core::api::Api;
use crate::core::class::Class;
use crate::core::outcome::{Outcome, Scope};

/// The header that names the model when the query does not: frames are not read.
pub const MODEL_HEADER: &str = "x-rondo-model";
/// The version of the protocol, the only one there is.
pub const VERSION: &str = "13";
/// Bytes of the key: sixteen in base64.
const KEY_BYTES: usize = 24;
/// Bytes of a subprotocol that passes. The longest known has 24.
const PROTOCOL_BYTES_MAX: usize = 64;

/// Why a request is no handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHandshake {
    /// It does not ask for a WebSocket.
    NotAsked,
    /// It asks for a version that there is not.
    Version,
    /// Its key is missing or none.
    Key,
}

/// Whether these headers ask for a WebSocket (RFC 6455 section 4.2.1).
pub fn check(headers: &HeaderMap) -> Result<(), NoHandshake> {
    if !names(headers, &UPGRADE, "websocket") || !names(headers, &CONNECTION, "upgrade") {
        return Err(NoHandshake::NotAsked);
    }
    if single(headers, &SEC_WEBSOCKET_VERSION) != Some(VERSION) {
        return Err(NoHandshake::Version);
    }
    match single(headers, &SEC_WEBSOCKET_KEY) {
        Some(key) if key.len() == KEY_BYTES => Ok(()),
        Some(_) | None => Err(NoHandshake::Key),
    }
}

/// Whether one of the lines of a header lists the token.
fn names(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let mut tokens = headers
        .get_all(name)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    tokens.any(|found| found.trim().eq_ignore_ascii_case(token))
}

fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?.to_str().ok()?.trim();
    lines.next().is_none().then_some(first)
}

/// Why no model is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoModel {
    /// Nothing names one.
    Missing,
    /// It is named twice, or its name is none.
    Invalid,
}

/// The model of a handshake: the query's, else the header's.
pub fn model(query: Option<&str>, header: Option<&[u8]>) -> Result<Box<str>, NoModel> {
    let mut named = pairs(query).filter(|pair| is_named(pair, &["model"]));
    let model = match (named.next(), named.next(), header) {
        (Some(_), Some(_), _) => return Err(NoModel::Invalid),
        (Some(pair), None, _) => {
            let value = pair.split_once('=').map_or("", |(_, value)| value);
            percent_decode(value).ok_or(NoModel::Invalid)?
        }
        (None, _, Some(value)) => {
            let text = std::str::from_utf8(value).map_err(|_| NoModel::Invalid)?;
            text.trim().into()
        }
        (None, _, None) => return Err(NoModel::Missing),
    };
    is_model_name(&model)
        .then(|| model.into())
        .ok_or(NoModel::Invalid)
}

fn pairs(query: Option<&str>) -> impl Iterator<Item = &str> {
    let pairs = query.unwrap_or("").split('&');
    pairs.filter(|pair| !pair.is_empty())
}

fn is_named(pair: &str, names: &[&str]) -> bool {
    let name = pair.split('=').next().unwrap_or(pair);
    percent_decode(name).is_some_and(|name| names.contains(&&*name))
}

/// What the request line and its model say of the operation: there is no body that could say more. A call exists at one provider.
pub fn scan(api: Api, query: Option<&str>) -> Scan {
    let is_call = pairs(query).any(|pair| is_named(pair, &["call_id"]));
    Scan {
        api,
        model: None,
        model_spans: ModelSpans::default(),
        stream: false,
        binding: is_call.then_some(Binding::Id),
        side_effects: false,
        length_max: 0,
    }
}

/// The client's query with the target's model, as the parameter of this name, in the place of the client's. A responses socket whose
/// model came in a header gets none: its frames name the model.
pub fn query_for(api: Api, query: Option<&str>, parameter: &str, model: &str) -> String {
    let mut named = format!("{parameter}=");
    push_encoded(&mut named, model);
    let mut parts = Vec::new();
    let mut is_given = false;
    for pair in pairs(query) {
        if !is_named(pair, &["model", "deployment"]) {
            parts.push(pair);
        } else if !std::mem::replace(&mut is_given, true) {
            parts.push(&named);
        }
    }
    if !is_given && api == Api::OpenaiRealtime {
        parts.push(&named);
    }
    parts.join("&")
}

/// The headers of the handshake itself for a target. `client` are the headers of a request that [`check`] has passed.
pub fn headers<'c>(
    client: impl IntoIterator<Item = (&'c str, &'c [u8])>,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION)),
    ];
    let mut protocols: Vec<&str> = Vec::new();
    for (name, value) in client {
        let is = |wanted: &HeaderName| name.eq_ignore_ascii_case(wanted.as_str());
        if is(&SEC_WEBSOCKET_PROTOCOL) {
            let text = std::str::from_utf8(value).unwrap_or("");
            protocols.extend(
                text.split(',')
                    .map(str::trim)
                    .filter(|one| is_harmless(one)),
            );
        }
        let passes = [SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_EXTENSIONS].into_iter();
        let passes = passes.filter(|_| value.len() <= PASSED_VALUE_BYTES_MAX);
        if let Some(name) = { passes }.find(|passed| is(passed))
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            headers.push((name, value));
        }
    }
    protocols.dedup();
    if let Ok(value) = HeaderValue::try_from(protocols.join(", "))
        && !protocols.is_empty()
    {
        headers.push((SEC_WEBSOCKET_PROTOCOL, value));
    }
    headers
}

/// Whether a subprotocol is one of the known names. Browsers can set no headers, so their clients put keys, organisations and projects
/// into subprotocols: what is not known is taken for one of those.
fn is_harmless(protocol: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_beta = protocol.starts_with("openai-beta.");
    (protocol == "realtime" || is_beta)
        && protocol.len() <= PROTOCOL_BYTES_MAX
        && protocol.bytes().all(is_name)
}

/// Whether a header of the client's describes a body, of which a handshake has none.
pub fn describes_body(name: &HeaderName) -> bool {
    name == CONTENT_TYPE
}

/// Whether an answer with status 101 switches to what was asked for. The client verifies the proof in it.
pub fn is_accepted(head: &ResponseHead<'_>) -> bool {
    let is = |name: &str, wanted: &str| match head.single(name) {
        Single::One(value) => value.eq_ignore_ascii_case(wanted.as_bytes()),
        Single::Absent | Single::Repeated => false,
    };
    let proves = matches!(head.single(SEC_WEBSOCKET_ACCEPT.as_str()), Single::One(proof) if !proof.is_empty());
    head.status == 101 && is("upgrade", "websocket") && proves
}

/// Whether a header of such an answer passes beside those of every good answer.
pub fn passes_with_switch(name: &HeaderName) -> bool {
    [
        CONNECTION,
        UPGRADE,
        SEC_WEBSOCKET_ACCEPT,
        SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_EXTENSIONS,
    ]
    .contains(name)
}

/// The verdict on a refused handshake. An empty 403 with the mark of an edge network is that network's and not the provider's, whose
/// refusals have a body: no key is to blame, and another try may pass.
pub fn reread(verdict: Verdict, head: &ResponseHead<'_>, body: &[u8]) -> Verdict {
    let is_edge = head.status == 403 && body.is_empty() && head.headers.lines("cf-ray") > 0;
    if !is_edge || verdict.outcome != Outcome::Refused {
        return verdict;
    }
    Verdict {
        class: Class::Ambiguous,
        scope: Scope::Candidate,
        status: 502,
        rule: "handshake.edge",
        ..verdict
    }
}
