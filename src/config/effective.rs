//! The configuration in use, every default filled in, for people. Keys are those of the YAML; secrets read `[redacted]`.

mod rules;

use std::time::Duration;

use serde_json::{Map, Value, json};

use self::rules::rule;
use super::units::{show_size, show_span};
use crate::core::time::WallTime;
use crate::policy::clients::ClientKeys;
use crate::policy::identity::{Exchange, Grant, Identity};
use crate::policy::provider::{Key, Ownership, Provider};
use crate::policy::route::{ModelPattern, Route};
use crate::policy::routing::{Fallback, OnDisconnect, Routing};
use crate::policy::scheduling::{HashOn, RoutePolicy, Scheduling};
use crate::policy::snapshot::{LedgerSettings, LedgerStore, ServerSettings, Snapshot};
use crate::providers::timestamp::rfc3339;

const REDACTED: &str = "[redacted]";

/// The configuration of a snapshot as it takes effect.
pub fn effective(snapshot: &Snapshot) -> Value {
    let providers: Map<String, Value> = snapshot
        .providers
        .iter()
        .map(|entry| (entry.name.to_string(), provider(entry)))
        .collect();
    let routes: Vec<Value> = snapshot
        .routes
        .iter()
        .map(|entry| route(entry, snapshot))
        .collect();
    json!({
        "server": server(&snapshot.server),
        "admin": {
            "listen": snapshot.admin.listen.as_deref().unwrap_or("off"),
            "token": snapshot.admin.token.as_ref().map(|_| REDACTED),
        },
        "providers": providers,
        "routes": routes,
        "client_keys": clients(&snapshot.clients),
        "ledger": ledger(&snapshot.ledger),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn server(server: &ServerSettings) -> Value {
    let listen: Vec<Value> = server
        .listen
        .iter()
        .map(|listen| {
            let tls = listen.tls.as_ref();
            json!({
                "address": listen.address,
                "tls": tls.map(|tls| json!({ "cert": tls.cert, "key": tls.key })),
            })
        })
        .collect();
    json!({
        "listen": listen,
        "threads": server.threads,
        "max_request_body": show_size(u64::try_from(server.request_body_max).unwrap_or(u64::MAX)),
        "max_buffered_bytes": show_size(server.buffered_bytes_max),
        "shutdown_grace_ms": millis(server.shutdown_grace),
        "route_headers": server.route_headers,
        "client_read_timeout_ms": millis(server.client_read_timeout),
        "client_write_timeout_ms": millis(server.client_write_timeout),
        "client_header_timeout_ms": millis(server.client_header_timeout),
        "min_upload_bytes_per_second": server.upload_rate_min.unwrap_or_default(),
        "min_download_bytes_per_second": server.download_rate_min.unwrap_or_default(),
        "keepalive_timeout_ms": millis(server.keepalive_timeout),
        "max_in_flight": server.in_flight_max,
        "max_connections": server.connections_max,
    })
}

fn provider(provider: &Provider) -> Value {
    let scheme = if provider.base.tls { "https" } else { "http" };
    let keys: Vec<Value> = provider.keys.iter().map(key).collect();
    let speaks: Vec<&str> = provider.speaks.iter().map(|api| api.label()).collect();
    let base_url = format!(
        "{scheme}://{}{}",
        provider.base.authority, provider.base.path
    );
    let mut view = json!({
        "adapter": provider.adapter,
        "speaks": speaks,
        "base_url": match &provider.mock {
            Some(_) => None,
            None => Some(base_url),
        },
        "ownership": match provider.ownership {
            Ownership::External => "external",
            Ownership::Internal => "internal",
        },
        "retry": provider.retry.map(|retry| json!({
            "max_attempts": retry.attempts_max,
            "max_elapsed_ms": millis(retry.elapsed_max),
            "base_delay_ms": millis(retry.delay_base),
            "max_delay_ms": millis(retry.delay_max),
        })),
        "trust_status": provider.trust_status,
        "timeouts": {
            "connect_ms": millis(provider.timeouts.connect),
            "first_byte_ms": millis(provider.timeouts.first_byte),
            "idle_ms": millis(provider.timeouts.idle),
            "total_ms": millis(provider.timeouts.total),
        },
        "http2": provider.http2,
        "keys": keys,
        "health": provider.health.as_ref().map(|health| json!({
            "path": *health.rules.path,
            "interval_ms": millis(health.rules.interval),
            "timeout_ms": millis(health.rules.timeout),
            "healthy": health.rules.healthy,
            "unhealthy": health.rules.unhealthy,
            "authenticated": health.rules.authenticated,
        })),
        "mock": provider.mock.as_ref().map(|mock| mock.origin.as_str()),
        "ca": provider.ca.as_ref().map(|ca| format!("{} bytes of PEM", ca.len())),
    });
    if let (Value::Object(view), "azure_openai") = (&mut view, provider.adapter) {
        let azure = &provider.azure;
        view.insert("deployments".to_owned(), azure.deployments.into());
        view.insert(
            "api_version".to_owned(),
            azure.api_version.as_deref().into(),
        );
        let auth = if azure.bearer { "bearer" } else { "api_key" };
        view.insert("auth".to_owned(), auth.into());
    }
    if let (Value::Object(view), Identity::Exchanged(exchange)) = (&mut view, &provider.identity) {
        let (key, shown) = exchanged(exchange);
        view.insert(key.to_owned(), shown);
    }
    if let (Value::Object(view), false) = (&mut view, provider.own_headers.is_empty()) {
        let headers = provider.own_headers.iter();
        let headers = headers.map(|header| (header.name.to_owned(), Value::from(&*header.value)));
        view.insert("headers".to_owned(), headers.collect());
    }
    if let (Value::Object(view), Identity::AwsSession(session)) = (&mut view, &provider.identity) {
        let source = session.source.phrase();
        let shown = json!({ "region": *session.region, "source": source, "renewed": true });
        view.insert("aws".to_owned(), shown);
    }
    if let (Value::Object(view), Identity::Aws(aws)) = (&mut view, &provider.identity) {
        let shown = json!({
            "region": *aws.region,
            "access_key_id": REDACTED,
            "secret_access_key": REDACTED,
            "session_token": aws.session_token.as_ref().map(|_| REDACTED),
            "source": aws.source.phrase(),
        });
        view.insert("aws".to_owned(), shown);
    }
    view
}

/// What a token is had for, under the key that names it.
fn exchanged(exchange: &Exchange) -> (&'static str, Value) {
    let endpoint = &exchange.endpoint;
    let scheme = if endpoint.tls { "https" } else { "http" };
    let url = format!("{scheme}://{}{}", endpoint.authority, endpoint.path);
    match &exchange.grant {
        Grant::ServiceAccount { email, .. } => {
            let account = json!({ "email": **email, "private_key": REDACTED });
            let shown = json!({ "service_account": account, "token_uri": url });
            ("gcp", shown)
        }
        Grant::RefreshToken { .. } => {
            let user = json!({ "client_secret": REDACTED, "refresh_token": REDACTED });
            ("gcp", json!({ "authorized_user": user, "token_uri": url }))
        }
        Grant::MetadataServer => ("gcp", json!({ "metadata_server": url })),
        Grant::Copilot { .. } => ("copilot", json!({ "token": REDACTED, "token_url": url })),
    }
}

fn route(route: &Route, snapshot: &Snapshot) -> Value {
    let models: Vec<String> = route.models.iter().map(|model| model.text()).collect();
    let targets: Vec<Value> = route
        .targets
        .iter()
        .map(|target| {
            let provider = snapshot.provider(target.provider);
            json!({
                "name": *target.name,
                "provider": provider.map(|provider| provider.name.to_string()),
                "model": target.model.as_deref(),
                "limits": target.limits.as_ref().map(|limits| json!({
                    "requests_per_minute": limits.rules().requests_per_minute,
                    "tokens_per_minute": limits.rules().tokens_per_minute,
                    "concurrent": limits.rules().concurrent,
                })),
                "priority": target.priority,
                "weight": target.weight,
            })
        })
        .collect();
    let policy = &route.policy;
    json!({
        "name": *route.name,
        "profile": *policy.profile,
        "models": models,
        "deadline_ms": millis(route.deadline),
        "targets": targets,
        "routing": effective_routing(&route.routing, &policy.scheduling),
        "origins": origins(policy),
        "rules": policy.rules.iter().map(|entry| rule(entry, route, snapshot)).collect::<Value>(),
    })
}

/// Where each value of `routing` came from.
fn origins(policy: &RoutePolicy) -> Value {
    let origins = policy.origins.iter();
    let pairs = origins.map(|(key, origin)| ((*key).to_owned(), origin.text().into()));
    Value::Object(pairs.collect())
}

/// The values of `routing`, under their keys.
pub fn effective_routing(routing: &Routing, scheduling: &Scheduling) -> Value {
    json!({
        "priority_mode": scheduling.priority_mode.label(),
        "scheduling_mode": scheduling.scheduling_mode.label(),
        "keep_priority_on_conversion": scheduling.keep_priority_on_conversion,
        "hash_on": scheduling.hash_on.as_ref().map(HashOn::text),
        "mode": routing.mode.label(),
        "max_target_attempts": routing.attempts_max,
        "max_upstream_sends": routing.sends_max,
        "exhaustion_retry": routing.exhaustion.map(|exhaustion| json!({
            "max_rounds": exhaustion.rounds_max.saturating_sub(1),
            "max_wait_ms": millis(exhaustion.wait_max),
        })),
        "fallback_strategy": strategy(&routing.fallback),
        "fallback_http_statuses": routing.fallback.statuses,
        "max_retries": routing.tries_max.map(|tries| tries.saturating_sub(1)),
        "retry_on_failure_within_ms": routing.fail_within.map(millis),
        "max_failover_elapsed_ms": routing.failover_within.map(millis),
        "sticky_key_attempts": routing.sticky_tries,
        "on_client_disconnect": match routing.on_client_disconnect {
            OnDisconnect::Abort => "abort",
            OnDisconnect::Drain => "drain",
        },
        "cooldown": {
            "max_ms": millis(routing.cooldown_max),
            "quota_ms": millis(routing.quota_aside),
            "failures": routing.failures.map_or_else(|| json!("off"), |rules| json!({
                "count": rules.count,
                "within_ms": millis(rules.within),
                "cooldown_ms": millis(rules.cooldown),
            })),
        },
    })
}

fn key(key: &Key) -> Value {
    let rules = &key.rules;
    let by_api = rules.priority_by_api.iter();
    let by_api = by_api.map(|(api, priority)| (api.label().to_owned(), (*priority).into()));
    let models = rules.models.iter().map(ModelPattern::text);
    let seconds = |at: WallTime| u64::try_from(at.unix_micros() / 1_000_000).unwrap_or_default();
    json!({
        "name": *key.name,
        "secret": REDACTED,
        "priority": rules.priority,
        "priority_by_api": Value::Object(by_api.collect()),
        "weight": rules.weight,
        "models": models.collect::<Vec<_>>(),
        "expires": rules.expires.map(|at| rfc3339(seconds(at))),
    })
}

fn clients(clients: &ClientKeys) -> Value {
    let keys = clients.limits().map(|(name, limit)| {
        json!({ "name": **name, "secret": REDACTED, "max_in_flight": limit.unwrap_or_default() })
    });
    json!({ "required": clients.required, "keys": keys.collect::<Value>() })
}

fn strategy(fallback: &Fallback) -> Vec<&'static str> {
    let Fallback {
        http_429,
        http_5xx,
        transport_error,
        rate_limiting,
        statuses: _,
    } = fallback;
    [
        (http_429, "http_429"),
        (http_5xx, "http_5xx"),
        (transport_error, "transport_error"),
        (rate_limiting, "rate_limiting"),
    ]
    .into_iter()
    .filter_map(|(on, word)| on.then_some(word))
    .collect()
}

fn ledger(ledger: &LedgerSettings) -> Value {
    let (store, path, url) = match &ledger.store {
        LedgerStore::Off => ("off", None, None),
        LedgerStore::Sqlite { path } => ("sqlite", Some(path.as_str()), None),
        LedgerStore::Postgres { .. } => ("postgres", None, Some(REDACTED)),
    };
    json!({
        "store": store,
        "path": path,
        "url": url,
        "durability": ledger.durability.label(),
        "keep": show_span(millis(ledger.keep)),
        "spool_max_mb": ledger.spool_bytes_max >> 20,
        "state_dir": ledger.state_dir,
    })
}
