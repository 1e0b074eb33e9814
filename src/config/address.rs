//! Addresses to listen on and base URLs of providers, taken apart. No name is resolved here.
//!
//! Invariant: a [`BaseUrl`] has a host that can be named in a TLS handshake; an empty one would switch certificate checks off.
//! Messages never repeat the URL, which may hold a password where none belongs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::policy::provider::BaseUrl;

/// Checks `host:port`, where port 0 means any free port.
pub(super) fn check_listen(text: &str) -> Result<(), String> {
    if text.parse::<SocketAddr>().is_ok() {
        return Ok(());
    }
    let form = "write it as address:port, e.g. 127.0.0.1:8080 or [::1]:8080";
    let (host, port) = text
        .rsplit_once(':')
        .ok_or_else(|| format!("no port in the address; {form}"))?;
    if port.parse::<u16>().is_err() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("the port is not a number from 0 to 65535; {form}"));
    }
    check_host(host).map_err(|why| format!("{why}; {form}"))
}

/// Whether only this machine can reach what listens there.
pub(super) fn is_loopback_listen(text: &str) -> bool {
    match text.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => text
            .rsplit_once(':')
            .is_some_and(|(host, _)| is_loopback_host(host)),
    }
}

/// Whether a host is this machine.
pub(super) fn is_loopback_host(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Takes a base URL apart.
pub(super) fn parse_base_url(text: &str) -> Result<BaseUrl, String> {
    if !text.bytes().all(|b| b.is_ascii_graphic()) || text.contains(['\\', '"', '<', '>']) {
        return Err("a URL holds no spaces, quotes or characters outside ASCII".to_owned());
    }
    let (scheme, rest) = text
        .split_once("://")
        .ok_or("not a URL; it begins with https:// or http://")?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return Err("the scheme must be https or http".to_owned()),
    };
    if rest.contains('?') {
        return Err("a base URL has no query (?...); leave it out".to_owned());
    }
    if rest.contains('#') {
        return Err("a base URL has no fragment (#...); leave it out".to_owned());
    }
    let (authority, path) = match rest.find('/').and_then(|at| rest.split_at_checked(at)) {
        Some((authority, path)) => (authority, path),
        None => (rest, ""),
    };
    if authority.contains('@') {
        let message = "a base URL has no user or password; put the credential under `keys`";
        return Err(message.to_owned());
    }
    let path = path.trim_end_matches('/');
    if path
        .split('/')
        .skip(1)
        .any(|part| matches!(part, "" | "." | ".."))
    {
        return Err("the path has an empty, `.` or `..` part".to_owned());
    }
    let (host, port) = split_authority(authority)?;
    let host = host.to_ascii_lowercase();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    check_host(&host)?;
    let default_port = if tls { 443 } else { 80 };
    let port = port.unwrap_or(default_port);
    let authority = if port == default_port {
        host.clone()
    } else {
        format!("{host}:{port}")
    };
    Ok(BaseUrl {
        tls,
        host: bare.into(),
        port,
        authority: authority.into(),
        path: path.into(),
    })
}

/// Host, brackets included, and port.
fn split_authority(authority: &str) -> Result<(&str, Option<u16>), String> {
    let colon_at = match authority.rfind(']') {
        Some(bracket) => authority
            .get(bracket..)
            .and_then(|rest| rest.find(':'))
            .map(|at| at + bracket),
        None => authority.find(':'),
    };
    let Some((host, port)) = colon_at.and_then(|at| authority.split_at_checked(at)) else {
        return Ok((authority, None));
    };
    let port = port.trim_start_matches(':');
    match port.parse::<u16>() {
        Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => {
            Ok((host, Some(number)))
        }
        _ => Err("the port is not a number from 1 to 65535".to_owned()),
    }
}

/// A host name, an IPv4 address, or an IPv6 address in brackets.
fn check_host(host: &str) -> Result<(), String> {
    const HOST_BYTES_MAX: usize = 253;
    const LABEL_BYTES_MAX: usize = 63;
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    if host.starts_with('[') || host.ends_with(']') {
        let address = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        return match address.map(str::parse::<Ipv6Addr>) {
            Some(Ok(_)) => Ok(()),
            _ => Err("not an IPv6 address in brackets".to_owned()),
        };
    }
    let label = |label: &str| {
        let edge = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let inner = |b: u8| edge(b) || b == b'-';
        let mut bytes = label.bytes();
        label.len() <= LABEL_BYTES_MAX
            && bytes.clone().all(inner)
            && bytes.next().is_some_and(edge)
            && bytes.next_back().is_none_or(edge)
    };
    if host.len() > HOST_BYTES_MAX || !host.split('.').all(label) {
        return Err("the host is neither a host name nor an IP address".to_owned());
    }
    let numeric = host
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    if numeric && host.parse::<Ipv4Addr>().is_err() {
        return Err("the host is not an IPv4 address".to_owned());
    }
    Ok(())
}
