//! What a client asks for beside its body: request line, query, headers, handshakes; and what a target gets of it.
//!
//! Not here: bodies ([`super::request_scan`]).

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::choice;
use crate::core::api::Api;
use crate::policy::provider::Azure;
use crate::policy::secret::Secret;
use crate::providers::client_headers::{
    REQUEST_ID_BYTES_MAX, caller_retry, client_timeout, credentials, sane_request_id,
};
use crate::providers::handshake;
use crate::providers::inbound::{
    GeminiVerb, Inbound, MODEL_BYTES_MAX, Operation, Version, family_of, recognise,
};
use crate::providers::outbound_headers::{
    AuthScheme, PASSED_HEADERS_MAX, PASSED_VALUE_BYTES_MAX, Prepared, handshake_headers,
    request_headers,
};
use crate::providers::request_style::{PathParts, RequestStyle, target_path};

const STYLES: [RequestStyle; 6] = [
    RequestStyle::Native,
    RequestStyle::Unversioned,
    RequestStyle::Azure,
    RequestStyle::Vertex,
    RequestStyle::Bedrock,
    RequestStyle::Cohere,
];

/// Names under which providers take credentials. Written out anew, so that a name that the product forgets is missed.
const CREDENTIALS: [&str; 8] = [
    "key",
    "api_key",
    "api-key",
    "access_token",
    "token",
    "authorization",
    "x-api-key",
    "x-goog-api-key",
];

/// The request: its first line is path and query, the others are headers.
pub fn request(input: &[u8]) {
    let (kind, bytes) = choice(input);
    let (line, fields) =
        match memchr::memchr(b'\n', bytes).and_then(|at| bytes.split_at_checked(at)) {
            Some((line, rest)) => (line, rest),
            None => (bytes, &[][..]),
        };
    let line = String::from_utf8_lossy(line);
    let (path, query) = match line.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (&*line, None),
    };
    recognised(path, query, kind);
    let fields: Vec<(&str, &[u8])> = fields
        .split(|byte| *byte == b'\n')
        .filter_map(field)
        .collect();
    headers(&fields, query, kind);
    handshakes(&fields, query);
}

fn field(line: &[u8]) -> Option<(&str, &[u8])> {
    let (name, value) = line.split_at_checked(memchr::memchr(b':', line)?)?;
    let name = std::str::from_utf8(name).ok()?;
    let value = value.strip_prefix(b":").unwrap_or(value);
    Some((name, value.trim_ascii()))
}

fn recognised(path: &str, query: Option<&str>, kind: usize) {
    for method in ["GET", "POST", "DELETE", ""] {
        match recognise(method, path) {
            Inbound::Operation(operation) => {
                assert!(
                    ["GET", "POST"].contains(&method),
                    "{method} is an operation"
                );
                if let Some(model) = operation.path_model.as_deref() {
                    named(model);
                    paths(&operation, model, query, kind);
                }
            }
            Inbound::MethodNotAllowed { allow } => {
                assert!(!allow.contains(method) || method.is_empty())
            }
            Inbound::ListModels | Inbound::NotFound => {}
        }
    }
    let both = [true.into(), false.into()];
    for (version, key) in both.into_iter().zip(both) {
        let _ = family_of(path, version, key);
    }
    // A model of the configuration, or of a body, may be any text.
    let api = Api::ALL.get(kind % Api::ALL.len()).copied();
    let verb = GeminiVerb::ALL.get(kind % 5).copied();
    let operation = Operation {
        api: api.unwrap_or(Api::Gemini),
        path_model: None,
        verb,
        version: [Version::V1, Version::V1beta]
            .get(kind % 2)
            .copied()
            .unwrap_or(Version::V1),
        stream_by_path: Some(kind.is_multiple_of(3)),
    };
    paths(&operation, path, query, kind);
}

fn named(model: &str) {
    assert!(
        !model.is_empty() && model.len() <= MODEL_BYTES_MAX,
        "{model:?}"
    );
    assert!(!model.contains(char::is_control), "{model:?}");
}

/// The path at a target: of plain characters, without a step up and without a credential, whatever the model and the query are.
fn paths(operation: &Operation<'_>, model: &str, query: Option<&str>, kind: usize) {
    let azure = Azure {
        deployments: kind.is_multiple_of(2),
        api_version: (kind.is_multiple_of(3)).then(|| "2024-10-21".into()),
        bearer: false,
    };
    let bases = [
        "",
        "/v1",
        "/a/b",
        "/openai/v1",
        "/v1/projects/p/locations/l",
    ];
    let base_path = bases.get(kind % bases.len()).copied().unwrap_or("");
    for style in STYLES {
        let parts = PathParts {
            api: operation.api,
            verb: operation.verb,
            version: operation.version,
            base_path,
            model,
            stream: operation.stream_by_path.unwrap_or(false),
            query,
        };
        let sent = target_path(style, &azure, &parts);
        assert!(sent.starts_with('/'), "{sent}");
        assert!(sent.bytes().all(|byte| byte.is_ascii_graphic()), "{sent:?}");
        assert!(!sent.contains('#'), "{sent}");
        let (path, asked) = sent.split_once('?').unwrap_or((&sent, ""));
        assert!(path.split('/').all(|part| !is_dots(part)), "{path}");
        for pair in asked.split(['&', ';']) {
            let name = pair.split('=').next().unwrap_or(pair);
            let name = decoded(name).to_ascii_lowercase();
            let name = name.trim_start_matches('$');
            assert!(!CREDENTIALS.contains(&name), "{name} was sent on: {sent}");
        }
        returns(style, operation, model, path);
    }
}

/// Whether a server that undoes percent code would take this for a step.
fn is_dots(part: &str) -> bool {
    [".", ".."].contains(&&*decoded(part))
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let code = (*byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// A path that names a model names the same when it is recognised.
fn returns(style: RequestStyle, operation: &Operation<'_>, model: &str, path: &str) {
    let is_own = style == RequestStyle::Native && operation.api == Api::Gemini;
    let own = model.contains('/') || model.contains(char::is_control) || model.is_empty();
    if !is_own || own || model.len() > MODEL_BYTES_MAX {
        return;
    }
    let Some(at) = path.find("/models/").filter(|_| path.starts_with("/v1")) else {
        return;
    };
    let shorter = path.get(at..).unwrap_or_default();
    let native = format!("/{}{shorter}", operation.version.text());
    match recognise("POST", &native) {
        Inbound::Operation(again) => {
            assert_eq!(again.path_model.as_deref(), Some(model), "{native}");
            assert_eq!(
                again.verb,
                operation.verb.or(Some(GeminiVerb::GenerateContent))
            );
        }
        other => assert!(own, "{native} is {other:?}"),
    }
}

/// The headers at a target: those that may pass, within their bounds, and one credential, the target's.
fn headers(fields: &[(&str, &[u8])], query: Option<&str>, kind: usize) {
    let get = |name: &str| {
        let mut found = fields
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| *value)
    };
    let timeout = client_timeout(get);
    assert!(
        timeout.is_none_or(|timeout| timeout > Duration::ZERO),
        "{timeout:?}"
    );
    let _ = caller_retry(get);
    for shown in credentials(get, query) {
        assert!(!shown.is_empty(), "an empty credential");
    }
    for (_, value) in fields {
        if let Some(id) = sane_request_id(value) {
            assert!((1..=REQUEST_ID_BYTES_MAX).contains(&id.len()), "{id}");
            assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        }
    }
    let secret = Secret::new("the-targets-own");
    let schemes = [AuthScheme::Bearer, AuthScheme::XApiKey, AuthScheme::None];
    let api = Api::ALL.get(kind % Api::ALL.len()).copied();
    let prepared = Prepared {
        api: api.unwrap_or(Api::OpenaiChat),
        request_id: "r",
        auth: schemes.get(kind % 3).copied().unwrap_or(AuthScheme::None),
        secret: Some(&secret),
        content_length: 7,
    };
    let sent = request_headers(fields.iter().copied(), &prepared);
    let handshake = handshake_headers(fields, &prepared);
    for headers in [sent, handshake] {
        let Ok(headers) = headers else {
            assert!(
                api.is_none(),
                "the client's headers cannot be the gateway's fault"
            );
            continue;
        };
        bounded(&headers);
    }
}

fn bounded(headers: &[(HeaderName, HeaderValue)]) {
    // Its own: content type, version, id, length, credential, and those of a handshake.
    const OWN_MAX: usize = 16;
    assert!(
        headers.len() <= PASSED_HEADERS_MAX + OWN_MAX,
        "{}",
        headers.len()
    );
    for (name, value) in headers {
        assert!(value.len() <= PASSED_VALUE_BYTES_MAX, "{name}");
        let is_credential = ["authorization", "cookie", "proxy-authorization"]
            .contains(&name.as_str())
            || CREDENTIALS.contains(&name.as_str());
        assert!(
            !is_credential || value.as_bytes().ends_with(b"the-targets-own"),
            "{name} was sent on"
        );
        let hop = ["host", "te", "transfer-encoding", "trailer"].contains(&name.as_str());
        assert!(!hop, "{name} was sent on");
    }
}

fn handshakes(fields: &[(&str, &[u8])], query: Option<&str>) {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::from_bytes(value))
        {
            map.append(name, value);
        }
    }
    let _ = handshake::check(&map);
    let header = map.get(handshake::MODEL_HEADER).map(HeaderValue::as_bytes);
    if let Ok(model) = handshake::model(query, header) {
        named(&model);
        for api in [Api::OpenaiRealtime, Api::OpenaiResponsesSocket] {
            let asked = handshake::query_for(api, query, "model", "other");
            let again = handshake::model(Some(&asked), None);
            let in_query = handshake::model(query, None).is_ok();
            if api == Api::OpenaiRealtime || in_query {
                assert_eq!(again.as_deref(), Ok("other"), "{asked}");
            }
        }
    }
    for (name, value) in handshake::headers(fields.iter().copied()) {
        assert!(value.len() <= PASSED_VALUE_BYTES_MAX, "{name}");
        let text = value.to_str().unwrap_or("");
        let names_key = name == "sec-websocket-protocol" && text.contains("insecure-api-key");
        assert!(!names_key, "a key in a subprotocol was sent on");
    }
}
