//! Assertions that a service account signs: JSON Web Tokens with RS256, as pure functions of the account and the time.
//!
//! Not here: what is had for an assertion ([`super::token`]). The key never leaves this file but as a signature.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};
use thiserror::Error;

use crate::core::time::WallTime;
use crate::policy::secret::Secret;

/// How long an assertion counts. Google takes no longer one.
const LIFETIME_SECONDS: u64 = 3600;

/// Why nothing can be signed with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// It is no PEM block of this kind.
    #[error("not a PEM block `-----BEGIN PRIVATE KEY-----`")]
    NotPem,
    /// It is none of RSA that can be used.
    #[error("not a usable RSA key of 2048 bits or more in PKCS #8")]
    NotRsa,
    /// The signature failed.
    #[error("the signature failed")]
    Failed,
}

/// What an assertion says.
#[derive(Debug, Clone, Copy)]
pub struct Claims<'a> {
    /// The account.
    pub issuer: &'a str,
    /// The name of its key.
    pub key_id: Option<&'a str>,
    /// What the token is wanted for.
    pub scope: &'a str,
    /// Whom it is for.
    pub audience: &'a str,
}

/// A signed assertion.
pub fn assertion(claims: &Claims<'_>, key: &Secret, now: WallTime) -> Result<String, KeyError> {
    let issued = u64::try_from(now.unix_micros() / 1_000_000).unwrap_or(0);
    let mut header = json!({ "alg": "RS256", "typ": "JWT" });
    if let (Some(id), Value::Object(header)) = (claims.key_id, &mut header) {
        header.insert("kid".to_owned(), id.into());
    }
    let body = json!({
        "iss": claims.issuer, "scope": claims.scope, "aud": claims.audience,
        "iat": issued, "exp": issued.saturating_add(LIFETIME_SECONDS),
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&header), part(&body));
    let signature = sign(key, signed.as_bytes())?;
    Ok(format!("{signed}.{signature}"))
}

/// Whether a key can sign.
pub fn check_key(key: &Secret) -> Result<(), KeyError> {
    key_pair(key).map(|_| ())
}

/// The signature of RS256 over bytes, encoded as tokens have it.
pub fn sign(key: &Secret, bytes: &[u8]) -> Result<String, KeyError> {
    let pair = key_pair(key)?;
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        bytes,
        &mut signature,
    )
    .map_err(|_| KeyError::Failed)?;
    Ok(URL_SAFE_NO_PAD.encode(signature))
}

fn key_pair(key: &Secret) -> Result<RsaKeyPair, KeyError> {
    let (_, rest) = key
        .expose()
        .split_once("-----BEGIN PRIVATE KEY-----")
        .ok_or(KeyError::NotPem)?;
    let (block, _) = rest
        .split_once("-----END PRIVATE KEY-----")
        .ok_or(KeyError::NotPem)?;
    let text: String = block.split_ascii_whitespace().collect();
    let der = STANDARD.decode(text).map_err(|_| KeyError::NotPem)?;
    RsaKeyPair::from_pkcs8(&der).map_err(|_| KeyError::NotRsa)
}
