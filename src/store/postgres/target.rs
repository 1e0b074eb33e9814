//! Where the database is and how it is reached: the URL, read once, with TLS and timeouts.
//!
//! Not here: connections. Invariants: nothing of the URL is in an error or in Debug, but the names of known parameters; with
//! `sslmode=require`, and wherever a root is given, the server's certificate and name are checked.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::tls::{self, Trust};

/// Time until a connection is made, name lookup, TLS and log-in included. A healthy server needs milliseconds; half of [`CALL_MAX`], so
/// that something is left for the work.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Time that one call may take in all. A server that hangs is then one that cannot be reached, and the spool takes over.
pub const CALL_MAX: Duration = Duration::from_secs(10);
/// Time that the server gives a statement. Below [`CALL_MAX`], so that it stops working on what nobody waits for.
pub const STATEMENT_MAX: Duration = Duration::from_secs(8);
/// Idle time after which the system asks whether the other side still exists.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Time between such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Unanswered questions after which the connection is broken.
const KEEPALIVE_RETRIES: u32 = 2;

const _: () = assert!(CONNECT_MAX.as_millis() < CALL_MAX.as_millis());
const _: () = assert!(STATEMENT_MAX.as_millis() < CALL_MAX.as_millis());

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// See [`CONNECT_MAX`].
    pub connect: Duration,
    /// See [`CALL_MAX`].
    pub call: Duration,
    /// See [`STATEMENT_MAX`].
    pub statement: Duration,
}

impl Bounds {
    /// Those of a gateway.
    pub const USUAL: Bounds = Bounds {
        connect: CONNECT_MAX,
        call: CALL_MAX,
        statement: STATEMENT_MAX,
    };
}

/// Parameters of a URL that are understood, here or by the client library.
const KNOWN: &[&str] = &[
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

/// Parameters that other clients know. Named apart, since an unknown name may be a piece of a badly written password.
const FOREIGN: &[&str] = &[
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "sslcompression",
    "gssencmode",
    "passfile",
    "service",
    "schema",
    "currentSchema",
    "fallback_application_name",
    "client_encoding",
    "pool_timeout",
    "connection_limit",
    "pgbouncer",
    "statement_cache_size",
];

/// A URL that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the URL of the store: {0}")]
pub struct BadUrl(String);

impl BadUrl {
    pub(super) fn new(text: impl Into<String>) -> BadUrl {
        BadUrl(text.into())
    }
}

/// A database that can be connected to.
#[derive(Clone)]
pub struct Target {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) bounds: Bounds,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("url", &"[redacted]")
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

/// The parts of a URL's query that decide how the server is trusted; the others go to the client library.
#[derive(Default)]
struct Query {
    kept: Vec<String>,
    mode: Option<String>,
    root: Option<PathBuf>,
    names: Vec<String>,
}

impl Target {
    /// Reads `postgres://user:password@host:port/database?parameters`.
    pub fn parse(url: &str, bounds: Bounds) -> Result<Target, BadUrl> {
        let scheme = ["postgres://", "postgresql://"];
        if !scheme.iter().any(|scheme| url.starts_with(scheme)) {
            return Err(BadUrl::new("it does not begin with postgres://"));
        }
        let (base, query) = split(url);
        let query = Query::parse(query)?;
        let cleaned = format!("{base}?{}", query.kept.join("&"));
        let mut config: Config = cleaned.parse().map_err(|error| unreadable(&error))?;
        let trust = query.trust()?;
        config.ssl_mode(query.ssl_mode()?);
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(BadUrl::new("it names no host"));
        }
        if config.get_user().is_none() {
            return Err(BadUrl::new("it names no user"));
        }
        query.fill(&mut config, bounds);
        Ok(Target {
            config,
            tls: MakeRustlsConnect::new(tls::client(&trust)?),
            bounds,
        })
    }
}

/// The query begins at the first `?` after the host: one before an `@` belongs to the password.
fn split(url: &str) -> (&str, &str) {
    let host = url.find('@').unwrap_or(0);
    match url.get(host..).and_then(|rest| rest.find('?')) {
        Some(at) => {
            let (base, query) = url.split_at(host.saturating_add(at));
            (base, query.trim_start_matches('?'))
        }
        None => (url, ""),
    }
}

impl Query {
    fn parse(text: &str) -> Result<Query, BadUrl> {
        let mut query = Query::default();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(BadUrl::new("a parameter has no value"));
            };
            if FOREIGN.contains(&name) {
                return Err(BadUrl::new(format!("{name} is not supported")));
            }
            if !KNOWN.contains(&name) {
                let known = KNOWN.join(", ");
                return Err(BadUrl::new(format!(
                    "a parameter is unknown; known are {known}; a ?, @ or / in a password is written in percent code"
                )));
            }
            match name {
                "sslmode" => query.mode = Some(value.to_owned()),
                "sslrootcert" => query.root = Some(PathBuf::from(decoded(value)?)),
                _ => query.kept.push(part.to_owned()),
            }
            query.names.push(name.to_owned());
        }
        Ok(query)
    }

    fn ssl_mode(&self) -> Result<SslMode, BadUrl> {
        match self.mode.as_deref() {
            None | Some("prefer") => Ok(SslMode::Prefer),
            Some("disable") => Ok(SslMode::Disable),
            Some("require" | "verify-full") => Ok(SslMode::Require),
            Some(_) => Err(BadUrl::new(
                "sslmode is one of disable, prefer, require, verify-full; the last two are the same and check certificate and name",
            )),
        }
    }

    fn trust(&self) -> Result<Trust, BadUrl> {
        let root = self.root.as_ref();
        match (root.and_then(|root| root.to_str()), self.ssl_mode()?) {
            (_, SslMode::Disable) => Ok(Trust::Anyone),
            (Some(root), _) if root != "system" => Ok(Trust::Root(PathBuf::from(root))),
            // Who could forge a certificate could as well say that the server has no TLS, and would be believed.
            (None, SslMode::Prefer) => Ok(Trust::Anyone),
            _ => Ok(Trust::System),
        }
    }

    /// What the URL leaves open.
    fn fill(&self, config: &mut Config, bounds: Bounds) {
        let open = |name: &str| !self.names.iter().any(|known| known == name);
        if open("application_name") {
            config.application_name("rondo");
        }
        if open("connect_timeout") {
            config.connect_timeout(bounds.connect);
        }
        if open("tcp_user_timeout") {
            config.tcp_user_timeout(bounds.call);
        }
        if open("keepalives_idle") {
            config.keepalives_idle(KEEPALIVE_IDLE);
        }
        if open("keepalives_interval") {
            config.keepalives_interval(KEEPALIVE_INTERVAL);
        }
        if open("keepalives_retries") {
            config.keepalives_retries(KEEPALIVE_RETRIES);
        }
    }
}

/// Only errors that name a known parameter are passed on; others may quote the URL.
fn unreadable(error: &tokio_postgres::Error) -> BadUrl {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    match KNOWN
        .iter()
        .find(|name| cause.ends_with(&format!("`{name}`")))
    {
        Some(name) => BadUrl::new(format!("{name} has a value that cannot be used")),
        None => BadUrl::new(
            "it cannot be read; is a character of the password to be written in percent code?",
        ),
    }
}

/// Undoes percent code.
fn decoded(text: &str) -> Result<String, BadUrl> {
    let wrong = || BadUrl::new("sslrootcert is not well written");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(wrong());
        };
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}
