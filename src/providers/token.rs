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
use crate::policy::identity::Grant;
use crate::policy::secret::Secret;

/// What Google's tokens are asked for: everything that the account's roles allow.
const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Bytes of an answer. Tokens have a few KiB.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;
/// A token is asked for anew so long before its end: time for many failures. Of one that lives shortly it is the last quarter.
const AHEAD_MAX: Duration = Duration::from_secs(300);
/// Nobody promises more; a longer lifetime is a mistake and is not relied upon.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A request for a token.
#[derive(Debug)]
pub struct Ask {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// Header fields beside `host` and `content-length`.
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

/// The request for a token.
pub fn ask(grant: &Grant, now: WallTime) -> Result<Ask, TokenError> {
    match grant {
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
            let mut body = "grant_type=".to_owned();
            push_encoded(&mut body, "urn:ietf:params:oauth:grant-type:jwt-bearer");
            body.push_str("&assertion=");
            push_encoded(&mut body, &assertion);
            let form = Secret::new("application/x-www-form-urlencoded");
            Ok(Ask {
                method: "POST",
                headers: vec![("content-type", form)],
                body: Secret::new(body),
            })
        }
        Grant::Copilot {
            token,
            editor_version,
        } => {
            let lasting = Secret::new(format!("token {}", token.expose()));
            let editor = Secret::new(&**editor_version);
            Ok(Ask {
                method: "GET",
                headers: vec![("authorization", lasting), ("editor-version", editor)],
                body: Secret::new(""),
            })
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
        Grant::ServiceAccount { .. } => {
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
        lifetime: Duration::from_secs(seconds).min(LIFETIME_MAX),
    })
}

/// Code words of OAuth. Anything else might be part of what was sent.
fn is_word(code: &str) -> bool {
    (1..=40).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

/// How long after a token was had the next is asked for.
pub fn renewed_after(lifetime: Duration) -> Duration {
    lifetime.saturating_sub(AHEAD_MAX.min(lifetime / 4))
}
