//! Tokens that live for a while: the request that asks for one, what its answer says, and when the next is asked for. Pure.
//!
//! Not here: sending, and where the token in force is kept. Nothing of an answer is ever repeated but a short code word.

use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

use super::json_envelope::text_at;
use super::jwt::{self, Claims, KeyError};
use super::outbound::push_encoded;
use crate::core::time::WallTime;
use crate::policy::identity::{Exchange, Grant};
use crate::policy::secret::Secret;

/// What Google's tokens are asked for: everything that the account's roles allow.
const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Bytes of an answer. Tokens have a few KiB.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;
/// A token is asked for anew so long before its end: time for many failures. Of one that lives shortly it is the last quarter.
const AHEAD_MAX: Duration = Duration::from_secs(300);
/// Nobody promises more; a longer lifetime is a mistake and is not relied upon.
pub const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A request for a token.
#[derive(Debug)]
pub struct Ask {
    /// `GET`, `POST` or `PUT`.
    pub method: &'static str,
    /// Path and query. Some agents take them for a password.
    pub path: Secret,
    /// What is accepted.
    pub accept: &'static str,
    /// Header fields beside `host`, `accept` and `content-length`.
    pub headers: Vec<(&'static str, Secret)>,
    /// The body; empty for `GET`.
    pub body: Secret,
}

/// A token.
#[derive(Debug, Clone)]
pub struct Token {
    /// What providers are shown.
    pub secret: Secret,
    /// How long it counts from now.
    pub lifetime: Duration,
}

/// Why there is no token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TokenError {
    /// The key cannot sign.
    #[error("the private key: {0}")]
    Key(#[from] KeyError),
    /// The endpoint refused.
    #[error("the endpoint answered {status}{}", shown(.code))]
    Refused {
        /// Its status.
        status: u16,
        /// Its code word, if it is one.
        code: Option<String>,
    },
    /// The answer is not what it should be.
    #[error("the endpoint's answer has no usable {0}")]
    Answer(&'static str),
}

fn shown(code: &Option<String>) -> String {
    code.as_ref()
        .map_or(String::new(), |code| format!(" {code}"))
}

impl Ask {
    /// A request without a body.
    pub(super) fn of(method: &'static str, path: &str) -> Ask {
        Ask {
            method,
            path: Secret::new(path),
            accept: "application/json",
            headers: Vec::new(),
            body: Secret::new(""),
        }
    }

    /// The same, in whatever form the endpoint answers by itself.
    pub(super) fn accepting_any(mut self) -> Ask {
        self.accept = "*/*";
        self
    }

    pub(super) fn with(mut self, name: &'static str, value: Secret) -> Ask {
        self.headers.push((name, value));
        self
    }

    /// A form.
    pub(super) fn form(path: &str, fields: &[(&str, &str)]) -> Ask {
        let mut body = String::new();
        for (name, value) in fields {
            if !body.is_empty() {
                body.push('&');
            }
            body.push_str(name);
            body.push('=');
            push_encoded(&mut body, value);
        }
        let form = Secret::new("application/x-www-form-urlencoded");
        let mut ask = Ask::of("POST", path).with("content-type", form);
        ask.body = Secret::new(body);
        ask
    }
}

/// The request for a token.
pub fn ask(exchange: &Exchange, now: WallTime) -> Result<Ask, TokenError> {
    let path = &*exchange.endpoint.path;
    match &exchange.grant {
        Grant::ServiceAccount {
            email,
            key_id,
            private_key,
            audience,
        } => {
            let claims = Claims {
                issuer: email,
                key_id: key_id.as_deref(),
                scope: GOOGLE_SCOPE,
                audience,
            };
            let assertion = jwt::assertion(&claims, private_key, now)?;
            let fields = [
                ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                ("assertion", &assertion),
            ];
            Ok(Ask::form(path, &fields))
        }
        Grant::RefreshToken {
            client_id,
            client_secret,
            refresh_token,
        } => {
            let fields = [
                ("grant_type", "refresh_token"),
                ("client_id", client_id),
                ("client_secret", client_secret.expose()),
                ("refresh_token", refresh_token.expose()),
            ];
            Ok(Ask::form(path, &fields))
        }
        Grant::MetadataServer => {
            Ok(Ask::of("GET", path).with("metadata-flavor", Secret::new("Google")))
        }
        Grant::Copilot {
            token,
            editor_version,
        } => {
            let lasting = Secret::new(format!("token {}", token.expose()));
            let editor = Secret::new(&**editor_version);
            let ask = Ask::of("GET", path).with("authorization", lasting);
            Ok(ask.with("editor-version", editor))
        }
    }
}

/// The token in an answer.
pub fn read(grant: &Grant, status: u16, body: &[u8], now: WallTime) -> Result<Token, TokenError> {
    let body = serde_json::from_slice::<Value>(body).unwrap_or(Value::Null);
    if !(200..300).contains(&status) {
        let code = text_at(&body, &["error"])
            .filter(|code| is_word(code))
            .map(str::to_owned);
        return Err(TokenError::Refused { status, code });
    }
    match grant {
        Grant::ServiceAccount { .. } | Grant::RefreshToken { .. } | Grant::MetadataServer => {
            let lifetime = body.get("expires_in").and_then(Value::as_u64);
            made(
                text_at(&body, &["access_token"]),
                "access_token",
                lifetime,
                "expires_in",
            )
        }
        Grant::Copilot { .. } => {
            let now = u64::try_from(now.unix_micros() / 1_000_000).unwrap_or(0);
            let ends = body.get("expires_at").and_then(Value::as_u64);
            let lifetime = ends.map(|ends| ends.saturating_sub(now));
            made(text_at(&body, &["token"]), "token", lifetime, "expires_at")
        }
    }
}

fn made(
    token: Option<&str>,
    token_name: &'static str,
    seconds: Option<u64>,
    seconds_name: &'static str,
) -> Result<Token, TokenError> {
    let is_usable = |token: &&str| !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
    let token = token
        .filter(is_usable)
        .ok_or(TokenError::Answer(token_name))?;
    let seconds = seconds
        .filter(|seconds| *seconds > 0)
        .ok_or(TokenError::Answer(seconds_name))?;
    Ok(Token {
        secret: Secret::new(token),
        lifetime: bounded(seconds),
    })
}

/// A lifetime that can be relied upon.
pub(super) fn bounded(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(LIFETIME_MAX)
}

/// Code words of OAuth. Anything else might be part of what was sent.
fn is_word(code: &str) -> bool {
    (1..=40).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

/// How long after a token was had the next is asked for.
pub fn renewed_after(lifetime: Duration) -> Duration {
    lifetime.saturating_sub(AHEAD_MAX.min(lifetime / 4))
}
