//! The client's bytes prepared for one target: the body with another model name, and the path (R-X1, R-X2).
//!
//! Not here: headers (`outbound_headers`), choosing a target. Invariant: everything is made from the pristine request, never
//! from what an earlier target was sent; the body is shared, not copied.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::inbound::{GeminiVerb, Version, percent_decode};
use super::scan::Scan;
use crate::core::api::Api;

/// A body as slices to be written one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segments {
    parts: Vec<Bytes>,
    len: usize,
}

impl Segments {
    /// A body that is sent as it came.
    pub fn whole(body: Bytes) -> Segments {
        Segments {
            len: body.len(),
            parts: vec![body],
        }
    }

    /// No slices yet.
    pub(super) fn empty() -> Segments {
        Segments {
            len: 0,
            parts: Vec::with_capacity(4),
        }
    }

    /// The slices in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Bytes> {
        self.parts.iter()
    }

    /// Bytes of all slices together: the `content-length`.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push(part);
        }
    }
}

impl IntoIterator for Segments {
    type Item = Bytes;
    type IntoIter = std::vec::IntoIter<Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.parts.into_iter()
    }
}

/// The body for a target: `scan` is the scan of this very body, `model` the target's model. All other bytes are the client's.
pub fn splice(body: &Bytes, scan: &Scan, model: &str) -> Segments {
    let Some(named) = scan.model.as_deref() else {
        return Segments::whole(body.clone());
    };
    let is_resource = scan.api == Api::Gemini && named.starts_with("models/");
    // A Gemini body repeats the resource name of its path.
    let wanted = if is_resource && !model.starts_with("models/") {
        Cow::Owned(format!("models/{model}"))
    } else {
        Cow::Borrowed(model)
    };
    if wanted == named && !scan.model_spans.differ() {
        return Segments::whole(body.clone());
    }
    let replacement = if scan.api.is_form() {
        // The value of a field is plain. A boundary can begin only behind a line break, and the configuration allows none in a name.
        Bytes::copy_from_slice(wanted.as_bytes())
    } else {
        json_string(&wanted)
    };
    let parts = Vec::with_capacity(2 * scan.model_spans.len() + 1);
    let mut segments = Segments { parts, len: 0 };
    let mut kept = 0;
    for Range { start, end } in scan.model_spans.iter() {
        segments.push(slice(body, kept..start));
        segments.push(replacement.clone());
        kept = end;
    }
    segments.push(slice(body, kept..body.len()));
    segments
}

/// A shared part of the body. A span of another body yields less, never a panic.
pub(super) fn slice(body: &Bytes, range: Range<usize>) -> Bytes {
    match body.get(range) {
        Some(part) => body.slice_ref(part),
        None => Bytes::new(),
    }
}

/// A text as a JSON string token, quotes included.
pub fn json_string(text: &str) -> Bytes {
    let mut token = String::with_capacity(text.len() + 2);
    token.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => token.extend(['\\', char]),
            '\0'..='\x1f' => token.push_str(&format!("\\u{:04x}", u32::from(char))),
            _ => token.push(char),
        }
    }
    token.push('"');
    Bytes::from(token)
}

/// What the path at a target is made of.
#[derive(Debug, Clone, Copy)]
pub struct PathParts<'a> {
    /// The API format.
    pub api: Api,
    /// What a Gemini path asks for.
    pub verb: Option<GeminiVerb>,
    /// The version that the client's path names.
    pub version: Version,
    /// The path of the target's base URL.
    pub base_path: &'a str,
    /// The target's model; it stands in Gemini paths only.
    pub model: &'a str,
    /// Whether the answer is a stream; Bedrock's paths say so.
    pub stream: bool,
    /// The client's query.
    pub query: Option<&'a str>,
}

/// The path and query at a target. Bedrock's own paths are [`super::request_style`]'s.
///
/// A base that ends in a version (`/v1`, `/api/paas/v4`, `/v1beta/openai`) takes the place of the version of the native path.
pub fn upstream_path(parts: &PathParts<'_>) -> String {
    let PathParts {
        api,
        verb,
        version,
        base_path,
        model,
        stream: _,
        query,
    } = *parts;
    let base = base_path.trim_end_matches('/');
    let mut path = String::with_capacity(base.len() + model.len() + 64);
    path.push_str(base);
    if !names_version(base) {
        path.extend(["/", version.text()]);
    }
    match (native_operation(api), verb) {
        (Some(operation), _) => path.extend(["/", operation]),
        (None, verb) => push_gemini(
            &mut path,
            model,
            verb.unwrap_or(GeminiVerb::GenerateContent),
        ),
    }
    push_query(&mut path, query);
    path
}

/// What follows the version in a path of the format; `None` where the model stands there.
pub(super) const fn native_operation(api: Api) -> Option<&'static str> {
    Some(match api {
        Api::OpenaiChat => "chat/completions",
        Api::OpenaiCompletions => "completions",
        Api::OpenaiResponses => "responses",
        Api::OpenaiEmbeddings => "embeddings",
        Api::OpenaiModerations => "moderations",
        Api::OpenaiImages => "images/generations",
        Api::OpenaiImageEdits => "images/edits",
        Api::OpenaiImageVariations => "images/variations",
        Api::OpenaiSpeech => "audio/speech",
        Api::OpenaiTranscriptions => "audio/transcriptions",
        Api::OpenaiTranslations => "audio/translations",
        Api::Rerank => "rerank",
        Api::OpenaiRealtime => "realtime",
        Api::OpenaiResponsesSocket => "responses",
        Api::AnthropicMessages => "messages",
        Api::AnthropicCountTokens => "messages/count_tokens",
        Api::Gemini | Api::BedrockConverse | Api::BedrockInvoke | Api::BedrockCountTokens => {
            return None;
        }
    })
}

/// Whether a base path already says which version of the API is meant.
fn names_version(base: &str) -> bool {
    let (before, last) = base.rsplit_once('/').unwrap_or(("", base));
    is_version(last) || (last == "openai" && is_version(before.rsplit('/').next().unwrap_or("")))
}

/// `v1`, `v4`, `v1beta`, `v1alpha2`.
fn is_version(segment: &str) -> bool {
    let Some(rest) = segment.strip_prefix('v') else {
        return false;
    };
    let kind = rest.trim_start_matches(|char: char| char.is_ascii_digit());
    let bare = kind.trim_end_matches(|char: char| char.is_ascii_digit());
    kind.len() < rest.len() && matches!(bare, "" | "alpha" | "beta")
}

/// `/models/{model}:{verb}`. Only `models/x` and `tunedModels/x` keep their slash; any other is part of a name.
fn push_gemini(path: &mut String, model: &str, verb: GeminiVerb) {
    let resource = |collection: &str| {
        let id = model.strip_prefix(collection)?.strip_prefix('/')?;
        (!id.is_empty() && !id.contains('/')).then_some(id)
    };
    let (collection, id) = match (resource("models"), resource("tunedModels")) {
        (Some(id), _) => ("models", id),
        (None, Some(id)) => ("tunedModels", id),
        (None, None) => ("models", model),
    };
    path.extend(["/", collection, "/"]);
    push_encoded(path, id);
    path.extend([":", verb.text()]);
}

pub(super) fn push_encoded(path: &mut String, text: &str) {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let hex = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or('0');
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            path.push(char::from(byte));
        } else {
            path.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
}

/// The client's query without its credentials.
pub(super) fn push_query(path: &mut String, query: Option<&str>) {
    let mut separator = '?';
    for pair in query.unwrap_or("").split('&') {
        let is_clean = !pair.is_empty() && pair.bytes().all(|byte| byte.is_ascii_graphic());
        // Some servers also split at semicolons; a credential behind one is one, too.
        if is_clean && !pair.contains('#') && !pair.split(';').any(is_credential) {
            path.push(separator);
            path.push_str(pair);
            separator = '&';
        }
    }
}

/// Whether a query parameter can carry a credential. A name that cannot be decoded counts as one.
fn is_credential(pair: &str) -> bool {
    const NAMES: [&str; 12] = [
        "key",
        "api_key",
        "api-key",
        "apikey",
        "x-api-key",
        "x-goog-api-key",
        "access_token",
        "oauth_token",
        "auth_token",
        "token",
        "authorization",
        "subscription-key",
    ];
    let name = pair.split('=').next().unwrap_or(pair);
    match percent_decode(name) {
        // Google accepts its parameters with a dollar sign, too.
        Some(name) => {
            let name = name.trim_start_matches('$');
            NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
        }
        None => true,
    }
}
