//! Credentials of AWS that live for a while: what is asked of the token service, of a container's agent and of an instance, and what their
//! answers and those of programs say. Pure.
//!
//! Not here: sending, running programs, reading files, and the order of these steps (`proxy::credentials`). Of an answer nothing is ever
//! repeated but a short code word.

use std::time::Duration;

use serde_json::Value;

use super::json_envelope::text_at;
use super::sigv4::{Credentials, Scope, ToSign, payload_hash, sign};
use super::timestamp::from_rfc3339;
use super::token::{Ask, LIFETIME_MAX, TokenError, bounded};
use crate::core::time::WallTime;
use crate::policy::aws::{AwsContainer, AwsIdentity, AwsRole, AwsWebIdentity, Source};
use crate::policy::secret::Secret;

const STS_VERSION: &str = "2011-06-15";
/// How long an instance's session lasts. It is used at once.
const INSTANCE_SESSION_SECONDS: &str = "60";
const INSTANCE_CREDENTIALS: &str = "/latest/meta-data/iam/security-credentials/";
/// Characters of a role's name, of which the documentation allows 64.
const ROLE_NAME_MAX: usize = 128;

/// Credentials and how long they count from now.
#[derive(Debug, Clone)]
pub struct Given {
    /// What signs.
    pub identity: AwsIdentity,
    /// How long.
    pub lifetime: Duration,
}

/// What an answer is held against.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// The region of the credentials.
    pub region: &'a str,
    /// Now.
    pub now: WallTime,
}

/// Asks the token service for a role, for a web identity. Nothing is signed: the token is the proof.
pub fn ask_web_identity(web: &AwsWebIdentity, token: &str) -> Ask {
    let fields = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", STS_VERSION),
        ("RoleArn", &web.arn),
        ("RoleSessionName", &web.session_name),
        ("WebIdentityToken", token),
    ];
    Ask::form(&service_path(&web.endpoint.path), &fields).accepting_any()
}

/// Asks the token service for a role, with the credentials that may assume it.
pub fn ask_role(role: &AwsRole, base: &AwsIdentity, reading: &Reading<'_>) -> Ask {
    let mut fields = vec![
        ("Action", "AssumeRole"),
        ("Version", STS_VERSION),
        ("RoleArn", &*role.arn),
        ("RoleSessionName", &*role.session_name),
    ];
    if let Some(id) = &role.external_id {
        fields.push(("ExternalId", id.expose()));
    }
    let ask = Ask::form(&service_path(&role.endpoint.path), &fields).accepting_any();
    signed(ask, &role.endpoint.authority, base, reading)
}

fn signed(ask: Ask, host: &str, base: &AwsIdentity, reading: &Reading<'_>) -> Ask {
    let hash = payload_hash([ask.body.expose().as_bytes()]);
    let covered: Vec<(&str, &str)> = ask
        .headers
        .iter()
        .map(|(name, value)| (*name, value.expose()))
        .collect();
    let request = ToSign {
        method: ask.method,
        path: ask.path.expose(),
        host,
        headers: &covered,
        payload_hash: &hash,
    };
    let credentials = Credentials {
        access_key_id: base.access_key_id.expose(),
        secret_access_key: &base.secret_access_key,
        session_token: base.session_token.as_ref(),
    };
    let scope = Scope {
        region: reading.region,
        service: "sts",
    };
    let made = sign(&request, &credentials, &scope, reading.now);
    let ask = ask
        .with("authorization", Secret::new(made.authorization))
        .with("x-amz-date", Secret::new(made.date));
    match &base.session_token {
        Some(token) => ask.with("x-amz-security-token", token.clone()),
        None => ask,
    }
}

fn service_path(path: &str) -> String {
    match path.is_empty() {
        true => "/".to_owned(),
        false => path.to_owned(),
    }
}

/// Asks a container's agent.
pub fn ask_container(container: &AwsContainer, authorization: Option<Secret>) -> Ask {
    let ask = Ask::of("GET", container.path.expose());
    match authorization {
        Some(token) => ask.with("authorization", token),
        None => ask,
    }
}

/// Opens a session at an instance's metadata service.
pub fn ask_instance_session() -> Ask {
    let seconds = Secret::new(INSTANCE_SESSION_SECONDS);
    Ask::of("PUT", "/latest/api/token")
        .accepting_any()
        .with("x-aws-ec2-metadata-token-ttl-seconds", seconds)
}

/// Asks in a session which role the instance has.
pub fn ask_instance_role(session: &Secret) -> Ask {
    Ask::of("GET", INSTANCE_CREDENTIALS)
        .accepting_any()
        .with("x-aws-ec2-metadata-token", session.clone())
}

/// Asks in a session for the role's credentials.
pub fn ask_instance_credentials(session: &Secret, role: &str) -> Ask {
    let path = format!("{INSTANCE_CREDENTIALS}{role}");
    Ask::of("GET", &path).with("x-aws-ec2-metadata-token", session.clone())
}

/// The session in an answer.
pub fn read_instance_session(status: u16, body: &[u8]) -> Result<Secret, TokenError> {
    let text = text_of(status, body)?;
    let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| Secret::new(text))
        .ok_or(TokenError::Answer("session"))
}

/// The role in an answer: its first line.
pub fn read_instance_role(status: u16, body: &[u8]) -> Result<String, TokenError> {
    let text = text_of(status, body)?;
    let role = text.lines().next().unwrap_or("").trim();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
    // It becomes the last part of a path, where dots alone would be a step up.
    let is_step = role.bytes().all(|byte| byte == b'.');
    let fits = (1..=ROLE_NAME_MAX).contains(&role.len()) && role.bytes().all(allowed);
    (fits && !is_step)
        .then(|| role.to_owned())
        .ok_or(TokenError::Answer("role"))
}

fn text_of(status: u16, body: &[u8]) -> Result<&str, TokenError> {
    if !(200..300).contains(&status) {
        return Err(TokenError::Refused { status, code: None });
    }
    Ok(std::str::from_utf8(body).unwrap_or("").trim())
}

/// The credentials in an answer of an agent or an instance.
pub fn read_json(status: u16, body: &[u8], reading: &Reading<'_>) -> Result<Given, TokenError> {
    let body = serde_json::from_slice::<Value>(body).unwrap_or(Value::Null);
    let said = text_at(&body, &["code"]).or_else(|| text_at(&body, &["Code"]));
    let code = said.filter(|code| is_word(code)).map(str::to_owned);
    let is_good = said.is_none_or(|code| code == "Success");
    if !(200..300).contains(&status) || !is_good {
        return Err(TokenError::Refused { status, code });
    }
    let part = |name: &str| text_at(&body, &[name]).map(str::to_owned);
    let parts = Parts {
        id: part("AccessKeyId"),
        secret: part("SecretAccessKey"),
        token: part("Token"),
        expiration: part("Expiration"),
    };
    parts.given(reading, Expires::Always)
}

/// The credentials that a program prints.
pub fn read_process(output: &[u8], reading: &Reading<'_>) -> Result<Given, TokenError> {
    let body = serde_json::from_slice::<Value>(output).unwrap_or(Value::Null);
    if body.get("Version").and_then(Value::as_u64) != Some(1) {
        return Err(TokenError::Answer("Version (needed is 1)"));
    }
    let part = |name: &str| text_at(&body, &[name]).map(str::to_owned);
    let parts = Parts {
        id: part("AccessKeyId"),
        secret: part("SecretAccessKey"),
        token: part("SessionToken"),
        expiration: part("Expiration"),
    };
    parts.given(reading, Expires::Maybe)
}

/// The credentials in an answer of the token service, which is XML of a few plain elements.
pub fn read_role(status: u16, body: &[u8], reading: &Reading<'_>) -> Result<Given, TokenError> {
    let text = std::str::from_utf8(body).unwrap_or("");
    if !(200..300).contains(&status) {
        let code = element(text, "Code").filter(|code| is_word(code));
        let code = code.map(str::to_owned);
        return Err(TokenError::Refused { status, code });
    }
    let inside = element(text, "Credentials").unwrap_or("");
    let part = |name: &str| element(inside, name).map(str::to_owned);
    let parts = Parts {
        id: part("AccessKeyId"),
        secret: part("SecretAccessKey"),
        token: part("SessionToken"),
        expiration: part("Expiration"),
    };
    parts.given(reading, Expires::Always)
}

/// The content of the first element of this name, without white space around it.
fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let (_, rest) = text.split_once(open.as_str())?;
    let (content, _) = rest.split_once(close.as_str())?;
    Some(content.trim())
}

/// Whether credentials must say when they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expires {
    Always,
    Maybe,
}

/// The parts of credentials as they were found.
struct Parts {
    id: Option<String>,
    secret: Option<String>,
    token: Option<String>,
    expiration: Option<String>,
}

impl Parts {
    fn given(self, reading: &Reading<'_>, expires: Expires) -> Result<Given, TokenError> {
        let usable = |part: Option<String>, name| {
            part.filter(|text| is_plain(text))
                .map(Secret::new)
                .ok_or(TokenError::Answer(name))
        };
        let token = match (self.token, expires) {
            (None, Expires::Maybe) => None,
            (token, _) => Some(usable(token, "session token")?),
        };
        let lifetime = match (self.expiration, expires) {
            (None, Expires::Maybe) => LIFETIME_MAX,
            (ends, _) => {
                let ends = ends.as_deref().and_then(from_rfc3339);
                lifetime(ends, reading.now).ok_or(TokenError::Answer("Expiration"))?
            }
        };
        let identity = AwsIdentity {
            region: reading.region.into(),
            access_key_id: usable(self.id, "AccessKeyId")?,
            secret_access_key: usable(self.secret, "SecretAccessKey")?,
            session_token: token,
            source: Source::Renewed,
        };
        Ok(Given { identity, lifetime })
    }
}

fn lifetime(ends: Option<u64>, now: WallTime) -> Option<Duration> {
    let now = u64::try_from(now.unix_micros() / 1_000_000).unwrap_or(0);
    let seconds = ends?.saturating_sub(now);
    (seconds > 0).then(|| bounded(seconds))
}

/// What a header can carry.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Code words of AWS. Anything else might be part of what was sent.
fn is_word(code: &str) -> bool {
    (1..=48).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphabetic())
}
