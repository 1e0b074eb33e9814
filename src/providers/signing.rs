//! A request's AWS signature as headers of that request.
//!
//! Not here: the arithmetic ([`super::sigv4`]). What the configuration added and what parametrises the invocation is covered; headers
//! that only accompany a request are not, so that nothing on the way can break a signature by touching them.

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};

use super::outbound::Segments;
use super::outbound_headers::HeaderError;
use super::sigv4::{Credentials, Scope, ToSign, payload_hash, sign};
use crate::core::time::WallTime;
use crate::policy::aws::AwsIdentity;

/// The service that Bedrock's runtime signs for.
const SERVICE: &str = "bedrock";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// What is signed, beside the headers.
#[derive(Debug, Clone, Copy)]
pub struct Unsigned<'a> {
    /// Path and query as they are sent.
    pub path: &'a str,
    /// The `host` header as it is sent.
    pub authority: &'a str,
    /// The body.
    pub body: &'a Segments,
}

/// Adds the signature's headers to those of a `POST`. The body is hashed where it lies.
pub fn add_signature(
    headers: &mut Vec<(HeaderName, HeaderValue)>,
    unsigned: &Unsigned<'_>,
    who: &AwsIdentity,
    now: WallTime,
) -> Result<(), HeaderError> {
    let hash = payload_hash(unsigned.body.iter().map(|part| &part[..]));
    let covered =
        |name: &HeaderName| name == CONTENT_TYPE || name.as_str().starts_with("x-amzn-bedrock-");
    let lines: Vec<(&str, &str)> = headers
        .iter()
        .filter(|(name, _)| covered(name))
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let request = ToSign {
        method: "POST",
        path: unsigned.path,
        host: unsigned.authority,
        headers: &lines,
        payload_hash: &hash,
    };
    let credentials = Credentials {
        access_key_id: who.access_key_id.expose(),
        secret_access_key: &who.secret_access_key,
        session_token: who.session_token.as_ref(),
    };
    let scope = Scope {
        region: &who.region,
        service: SERVICE,
    };
    let signed = sign(&request, &credentials, &scope, now);
    headers.push((AUTHORIZATION, sensitive(&signed.authorization)?));
    headers.push((DATE, sensitive(&signed.date)?));
    if let Some(token) = &who.session_token {
        headers.push((TOKEN, sensitive(token.expose())?));
    }
    Ok(())
}

/// A value that prints as `Sensitive` and that HTTP/2 does not index.
fn sensitive(text: &str) -> Result<HeaderValue, HeaderError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| HeaderError::Secret)?;
    value.set_sensitive(true);
    Ok(value)
}
