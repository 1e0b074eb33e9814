//! Who may look: the bearer token when one is set, else whoever reaches the loopback address the configuration allows.
//!
//! A loopback address is also reached by every web page that the operator's browser shows, by a link to `localhost` or by a name that
//! resolves there. So without a token the Host must be a loopback name, and a request that changes something must not come from
//! another site.

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// The token is missing or wrong.
    Token,
    /// The Host names no loopback address.
    Host,
    /// Another site's page asks.
    Origin,
}

pub(super) fn admit(token: Option<&str>, method: &str, headers: &HeaderMap) -> Result<(), Denied> {
    if let Some(token) = token {
        let given = text(headers, AUTHORIZATION).and_then(bearer);
        return match given {
            Some(given) if same(given.as_bytes(), token.as_bytes()) => Ok(()),
            _ => Err(Denied::Token),
        };
    }
    // HTTP/1.0 and HTTP/2 clients may send no Host; browsers always name one.
    let host = text(headers, HOST);
    if host.is_some_and(|host| !is_loopback(host)) {
        return Err(Denied::Host);
    }
    let foreign = text(headers, ORIGIN).is_some_and(|origin| {
        let site = origin.split_once("://").map(|(_, site)| site);
        site.is_none() || site != host
    });
    if method == "POST" && foreign {
        return Err(Denied::Origin);
    }
    Ok(())
}

/// A header that is there; one that is not text reads as empty and so matches nothing.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let value = headers.get(name)?;
    Some(value.to_str().unwrap_or_default())
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start_matches(' '))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = name.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Compares in a time that depends on the length of what was given alone.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    let mut difference = given.len() ^ wanted.len();
    for (position, byte) in given.iter().enumerate() {
        let other = wanted.get(position).copied().unwrap_or_default();
        difference |= usize::from(std::hint::black_box(byte ^ other));
    }
    std::hint::black_box(difference) == 0
}
