//! Answers written down, one JSON object a line, and the verdict on each: `rondo classify`.
//!
//! A line has `status`, `headers` and `body`, and may have `id`, `provider` and `api`; other members are ignored. Not here: files,
//! printing. The request is taken to be one without side effects, since the line does not tell.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::adapter::Adapter;
use super::answer::{BodyEnd, RequestTraits, ResponseHead, Verdict};
use super::classify::classify;
use super::peek::{Peek, Rest, is_stream, peek};
use super::stream::StreamWatch;
use super::{dialect, encoding, registry};
use crate::core::api::Api;
use crate::core::class::Class;
use crate::core::outcome::{Outcome, Scope};

/// Bytes of a line. The largest body that is judged, each byte of it escaped, fits several times.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// What marks a body whose bytes are not text.
const BASE64: &str = "base64:";

/// Providers whose names differ from their adapter's.
const RENAMED: &[(&str, &str)] = &[("github-copilot", "copilot")];

/// The adapter of a server of unknown make.
const UNKNOWN: &str = "openai_compatible";

/// What stands before any provider, and is judged as a server of unknown make.
const INTERMEDIARIES: &[&str] = &[
    "akamai",
    "apache",
    "apigee",
    "aws-alb",
    "aws-apigateway",
    "aws-cloudfront",
    "aws-waf",
    "azure-apim",
    "azure-frontdoor",
    "caddy",
    "cloudflare",
    "envoy",
    "fastly",
    "google-frontend",
    "haproxy",
    "istio",
    "kong",
    "litellm",
    "nginx",
    "squid",
    "traefik",
    "tyk",
    "varnish",
];

/// The format of rows about what stands before any provider, whatever it is called.
const EDGE: &str = "edge";

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name, if it has one.
    pub id: Option<String>,
    /// Who answered.
    pub provider: Option<String>,
    /// The request's format, in the provider's words or as one of [`Api`]'s labels.
    pub api: Option<String>,
    /// HTTP status.
    pub status: u16,
    /// Headers; a repeated one stands several times.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

/// What the caller knows better than the line.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// The adapter for every line.
    pub adapter: Option<&'static Adapter>,
    /// The format for every line.
    pub api: Option<Api>,
}

/// The verdict on a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The row's name.
    pub id: Option<String>,
    /// What the answer says.
    pub class: Class,
    /// Whether it proves that the request did not run.
    pub certified: bool,
    /// The delay that it asks for.
    pub retry_after: Option<Duration>,
    /// The table row that decided.
    pub rule: &'static str,
    /// The status that stands for it.
    pub status: u16,
    /// How far it reaches.
    pub scope: Scope,
}

/// Why a line cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadLine {
    /// It is too long.
    #[error("longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// It is no JSON object.
    #[error("not a JSON object: {0}")]
    NotObject(String),
    /// A member has another type or value than it may.
    #[error("{member}: {problem}")]
    Member {
        /// Its name.
        member: &'static str,
        /// What is wrong, and what is needed.
        problem: String,
    },
    /// Nothing says which adapter reads it.
    #[error("no provider; name one in the line, or an adapter with --adapter")]
    NoProvider,
    /// The provider has no adapter.
    #[error("provider {0:?} has no adapter; name one with --adapter: {1}")]
    UnknownProvider(String, String),
}

/// The names of all adapters, for messages.
pub fn adapter_names() -> String {
    let names: Vec<&str> = registry::all().iter().map(|adapter| adapter.name).collect();
    names.join(", ")
}

/// The adapter for a provider's name, as operators and logs write it.
pub fn adapter_of(provider: &str) -> Option<&'static Adapter> {
    let provider = provider.to_ascii_lowercase();
    if INTERMEDIARIES.contains(&provider.as_str()) {
        return registry::find(UNKNOWN);
    }
    let renamed = RENAMED.iter().find(|(name, _)| *name == provider);
    let name = renamed.map_or_else(
        || provider.replace(['-', '.'], "_"),
        |(_, name)| (*name).to_owned(),
    );
    registry::find(&name)
}

/// Reads a line.
pub fn read(line: &[u8]) -> Result<Row, BadLine> {
    if line.len() > LINE_BYTES_MAX {
        return Err(BadLine::TooLong);
    }
    let value: Value =
        serde_json::from_slice(line).map_err(|error| BadLine::NotObject(error.to_string()))?;
    let Value::Object(members) = value else {
        return Err(BadLine::NotObject(format!("found {}", kind(&value))));
    };
    Ok(Row {
        id: name(&members, "id")?,
        provider: name(&members, "provider")?,
        api: name(&members, "api")?,
        status: status(&members)?,
        headers: headers(&members)?,
        body: body(&members)?,
    })
}

/// The verdict on a row.
pub fn judge(row: &Row, known: &Known) -> Result<Judged, BadLine> {
    let adapter = match (known.adapter, &row.provider) {
        (Some(adapter), _) => adapter,
        (None, None) => return Err(BadLine::NoProvider),
        (None, Some(provider)) => adapter_of(provider)
            .or_else(|| {
                row.api
                    .as_deref()
                    .filter(|api| *api == EDGE)
                    .and(registry::find(UNKNOWN))
            })
            .ok_or_else(|| BadLine::UnknownProvider(provider.clone(), adapter_names()))?,
    };
    Ok(judge_as(adapter, known.api, row))
}

/// The verdict on a row as the answer of this adapter's provider.
pub fn judge_as(adapter: &'static Adapter, api: Option<Api>, row: &Row) -> Judged {
    let head = ResponseHead {
        status: row.status,
        headers: &row.headers,
    };
    let traits = traits(adapter, api, row);
    if row.status >= 300 {
        let end = BodyEnd::Complete;
        let verdict = classify(adapter, &traits, &[], &head, &row.body, end);
        return judged(row, &verdict);
    }
    if row.status < 200 {
        return judge_messages(adapter, traits, row);
    }
    if is_stream(&traits, &head) {
        return judge_stream(adapter, traits, &head, row);
    }
    match peek(adapter, &traits, &head, &row.body, Rest::Ended) {
        Peek::Error(verdict) => judged(row, &verdict),
        Peek::Commit | Peek::NeedMore => judge_body(traits.api, &head, row),
    }
}

/// What came over a connection after its upgrade: a message a line.
fn judge_messages(adapter: &'static Adapter, traits: RequestTraits, row: &Row) -> Judged {
    let headers = [("content-type", "application/x-ndjson")];
    let head = ResponseHead {
        status: row.status,
        headers: &headers,
    };
    judge_stream(adapter, traits, &head, row)
}

/// A good answer that is one body. The gateway passes it on as it comes; here there is time to look at the whole of it.
fn judge_body(api: Api, head: &ResponseHead<'_>, row: &Row) -> Judged {
    match head.media_type().as_deref() {
        Some("application/json") => {}
        Some("text/html" | "text/plain") => return good(row, Class::Ambiguous, "body.foreign"),
        Some(_) | None => return good(row, Class::OkStream, "good"),
    }
    let encoding = head.single("content-encoding");
    let Ok(body) = encoding::decode(encoding, &row.body, LINE_BYTES_MAX) else {
        return good(row, Class::Malformed, "body.encoding");
    };
    match serde_json::from_slice::<Value>(&body) {
        Ok(body)
            if body.get("error").is_some_and(|error| !error.is_null())
                && body.get("id").is_none() =>
        {
            good(row, Class::Ambiguous, "body.error_under_200")
        }
        Ok(body) if dialect::refuses(api, &body) => good(row, Class::ContentPolicy, "body.refused"),
        Ok(_) => good(row, Class::OkStream, "good"),
        Err(_) => good(row, Class::Malformed, "body.not_strict_json"),
    }
}

/// The request that a row answers, as far as it is known.
pub fn traits(adapter: &Adapter, api: Option<Api>, row: &Row) -> RequestTraits {
    let said = row.api.as_deref().unwrap_or("");
    RequestTraits {
        api: api.unwrap_or_else(|| api_of(adapter, said)),
        stream: said.to_ascii_lowercase().contains("stream"),
        side_effects: false,
    }
}

fn judge_stream(
    adapter: &'static Adapter,
    traits: RequestTraits,
    head: &ResponseHead<'_>,
    row: &Row,
) -> Judged {
    let mut watch = StreamWatch::new(adapter, traits, head);
    watch.feed(&row.body);
    watch.finish();
    if let Some(verdict) = watch.error() {
        return judged(row, &verdict);
    }
    let class = watch.ended_as();
    let rule = match class {
        Class::Ambiguous => "stream.ended_early",
        Class::ContentPolicy => "stream.refused",
        Class::Malformed => "stream.malformed",
        _ => "good",
    };
    good(row, class, rule)
}

fn judged(row: &Row, verdict: &Verdict) -> Judged {
    Judged {
        id: row.id.clone(),
        class: verdict.class,
        certified: matches!(verdict.outcome, Outcome::Rejected(_)),
        retry_after: verdict.pushback,
        rule: verdict.rule,
        status: verdict.status,
        scope: verdict.scope,
    }
}

fn good(row: &Row, class: Class, rule: &'static str) -> Judged {
    Judged {
        id: row.id.clone(),
        class,
        certified: false,
        retry_after: None,
        rule,
        status: row.status,
        scope: Scope::Candidate,
    }
}

/// The format that a line names in the provider's words, else the first that the adapter speaks.
fn api_of(adapter: &Adapter, said: &str) -> Api {
    const WORDS: [(&str, Api); 10] = [
        ("chat.completions", Api::OpenaiChat),
        ("openai-compat", Api::OpenaiChat),
        ("completions", Api::OpenaiCompletions),
        ("responses", Api::OpenaiResponses),
        ("messages", Api::AnthropicMessages),
        ("rawpredict", Api::AnthropicMessages),
        ("streamrawpredict", Api::AnthropicMessages),
        ("generatecontent", Api::Gemini),
        ("streamgeneratecontent", Api::Gemini),
        ("embeddings", Api::OpenaiEmbeddings),
    ];
    if let Some(api) = Api::from_label(said) {
        return api;
    }
    let said = said.to_ascii_lowercase();
    let named = WORDS.iter().find(|(word, _)| said.starts_with(word));
    named.map_or_else(
        || adapter.speaks.iter().next().unwrap_or(Api::OpenaiChat),
        |(_, api)| *api,
    )
}

/// A verdict as one JSON object. `line` names a row without a name.
pub fn to_json(judged: &Judged, line: usize) -> Value {
    json!({
        "id": id(judged, line),
        "class": judged.class.label(),
        "certified_pre_execution": judged.certified,
        "retry_after_ms": millis(judged),
        "rule": judged.rule,
    })
}

/// The heading of [`to_text`].
pub fn heading() -> String {
    columns("id", "class", "certified", "delay", "rule")
}

/// A verdict as one line of a table. `line` names a row without a name.
pub fn to_text(judged: &Judged, line: usize) -> String {
    let certified = if judged.certified { "yes" } else { "no" };
    let delay = millis(judged).map_or_else(|| "-".to_owned(), |delay| format!("{delay} ms"));
    columns(
        &id(judged, line),
        judged.class.label(),
        certified,
        &delay,
        judged.rule,
    )
}

fn columns(id: &str, class: &str, certified: &str, delay: &str, rule: &str) -> String {
    format!("{id:<40}  {class:<16}  {certified:<9}  {delay:>12}  {rule}")
}

fn id(judged: &Judged, line: usize) -> String {
    judged.id.clone().unwrap_or_else(|| format!("line {line}"))
}

fn millis(judged: &Judged) -> Option<u64> {
    let delay = judged.retry_after?;
    Some(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
}

fn wrong(member: &'static str, value: &Value, needed: &str) -> BadLine {
    let problem = format!("found {}; needed is {needed}", kind(value));
    BadLine::Member { member, problem }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn name(members: &Map<String, Value>, member: &'static str) -> Result<Option<String>, BadLine> {
    match members.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) if member == "id" => Ok(Some(number.to_string())),
        Some(other) => Err(wrong(member, other, "text")),
    }
}

fn status(members: &Map<String, Value>) -> Result<u16, BadLine> {
    const NEEDED: &str = "a whole number from 100 to 599";
    let value = members.get("status").unwrap_or(&Value::Null);
    let found = value
        .as_u64()
        .ok_or_else(|| wrong("status", value, NEEDED))?;
    match u16::try_from(found) {
        Ok(status @ 100..=599) => Ok(status),
        Ok(_) | Err(_) => Err(BadLine::Member {
            member: "status",
            problem: format!("found {found}; needed is {NEEDED}"),
        }),
    }
}

fn headers(members: &Map<String, Value>) -> Result<Vec<(String, String)>, BadLine> {
    const NEEDED: &str = "an object of names and texts";
    let found = match members.get("headers") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(found)) => found,
        Some(other) => return Err(wrong("headers", other, NEEDED)),
    };
    let mut headers = Vec::new();
    for (name, value) in found {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            single => std::slice::from_ref(single),
        };
        for value in values {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                other => return Err(wrong("headers", other, NEEDED)),
            };
            headers.push((name.to_ascii_lowercase(), text));
        }
    }
    Ok(headers)
}

fn body(members: &Map<String, Value>) -> Result<Vec<u8>, BadLine> {
    let text = match members.get("body") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(text)) => text,
        Some(other) => {
            let needed = "the bytes as they came: text, or base64: and their encoding";
            return Err(wrong("body", other, needed));
        }
    };
    match text.strip_prefix(BASE64) {
        None => Ok(text.as_bytes().to_vec()),
        Some(encoded) => STANDARD.decode(encoded).map_err(|error| BadLine::Member {
            member: "body",
            problem: format!("not base64: {error}"),
        }),
    }
}
