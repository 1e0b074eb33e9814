//! `providers`: adapters, addresses, credentials, scripts.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Compiler;
use super::identity::{Found, Told};
use super::rules::small;
use crate::config::address::{is_loopback_host, parse_base_url};
use crate::config::defaults::EXPIRY_WARNED_MS;
use crate::config::keys::ADAPTERS;
use crate::config::node::Value;
use crate::config::problem::{Spot, clip, nearest};
use crate::config::reader::Map;
use crate::config::secret;
use crate::config::units::parse_date;
use crate::core::api::{Api, ApiSet};
use crate::core::time::WallTime;
use crate::policy::health::{Health, HealthRules};
use crate::policy::identity::Identity;
use crate::policy::provider::{
    Azure, BaseUrl, Key, KeyRules, MockSource, Ownership, Provider, RetryRules, Timeouts,
};
use crate::policy::route::ModelPattern;
use crate::providers::planning::streamed;

/// A provider of the file; `provider` is `None` when it was refused.
pub(super) struct Entry {
    pub name: String,
    /// Where its name stands.
    pub spot: Spot,
    pub provider: Option<Provider>,
}

/// Where a provider is, and whether a script stands in for it.
struct Place {
    base: BaseUrl,
    mock: Option<MockSource>,
}

impl Compiler<'_> {
    pub(super) fn providers(&mut self, root: &Map<'_>) -> Vec<Entry> {
        root.named("providers")
            .into_iter()
            .map(|(name, map)| Entry {
                name: name.value.to_owned(),
                spot: name.spot,
                provider: self.provider(name.value, &map),
            })
            .collect()
    }

    fn provider(&mut self, name: &str, map: &Map<'_>) -> Option<Provider> {
        let adapter = self.adapter(map);
        let own_headers = self.own_headers(map, adapter.map(|(adapter, _)| adapter));
        let found = self.identity(map, adapter.map(|(adapter, _)| adapter));
        let told = match &found {
            Some(found) => found.told.clone(),
            None => Told::Refused,
        };
        let place = self.place(map, adapter.map(|(adapter, _)| adapter), told);
        let azure = self.azure(map, adapter.map(|(adapter, _)| adapter));
        let (ownership, retry) = self.retry(map);
        let mut keys = self.keys(map);
        let trust_status = self.statuses(map, "trust_status");
        let ca = map
            .text("ca")
            .and_then(|file| self.read_pem(&map.at("ca"), file, "CERTIFICATE"));
        let timeouts = map.map("timeouts");
        let health = self.health_rules(map);
        let (adapter, speaks) = adapter?;
        let Place { mut base, mock } = place?;
        let Found {
            identity,
            path,
            key,
            headers,
            told: _,
        } = found?;
        let mut own_headers = own_headers?;
        own_headers.extend(headers);
        let has_keys = !map.maps("keys").is_empty() || key.is_some();
        keys.extend(key);
        if let Some(path) = path.filter(|_| base.path.is_empty()) {
            base.path = path.into();
        }
        let is_mock = mock.is_some();
        let shows_token = matches!(identity, Identity::Exchanged(_));
        if !is_mock && (shows_token || has_keys) {
            self.warn_about_keys(map, &base);
        }
        Some(Provider {
            name: name.into(),
            adapter,
            speaks,
            streams: streamed(adapter, speaks),
            ownership,
            retry,
            trust_status,
            timeouts: Timeouts {
                connect: timeouts.millis("connect_ms"),
                first_byte: timeouts.millis("first_byte_ms"),
                idle: timeouts.millis("idle_ms"),
                total: timeouts.millis("total_ms"),
            },
            // Most cleartext model servers speak HTTP/1.1 only, and prior knowledge cannot be negotiated away.
            http2: map.flag("http2").unwrap_or(base.tls),
            health: health.map(|rules| self.health(name, &base, rules)),
            base,
            azure,
            identity,
            own_headers,
            keys,
            mock,
            ca: ca.map(Arc::from),
        })
    }

    fn adapter(&mut self, map: &Map<'_>) -> Option<(&'static str, ApiSet)> {
        let name = map.text("adapter")?;
        if let Some(found) = self.catalog.find(name) {
            return Some(found);
        }
        let available = self.catalog.names();
        let list = available.join(", ");
        let message = if ADAPTERS.contains(&name) {
            format!("adapter {name} is not built into this version; available: {list}")
        } else {
            let name_shown = clip(name);
            match nearest(name, available.iter().copied().chain(ADAPTERS)) {
                Some(word) => format!(
                    "unknown adapter {name_shown:?}; did you mean `{word}`? Available: {list}"
                ),
                None => format!("unknown adapter {name_shown:?}; available: {list}"),
            }
        };
        self.report.refuse(&map.at("adapter"), message);
        None
    }

    /// What only Azure has. A key of it at another adapter would do nothing, so it is refused.
    fn azure(&mut self, map: &Map<'_>, adapter: Option<&'static str>) -> Azure {
        const AZURE: &str = "azure_openai";
        if let Some(adapter) = adapter.filter(|adapter| *adapter != AZURE) {
            for key in ["deployments", "api_version", "auth"] {
                if map.has(key) {
                    let message = format!("only adapter {AZURE} has this; {adapter} has not");
                    self.report.refuse(&map.at(key), message);
                }
            }
            return Azure::default();
        }
        let deployments = map.flag("deployments") == Some(true);
        if deployments && !map.has("api_version") {
            let message = "a deployment in the path needs `api_version`, e.g. 2024-10-21";
            self.report.refuse(&map.at("deployments"), message);
        }
        Azure {
            deployments,
            api_version: map.text("api_version").map(Into::into),
            bearer: map.text("auth") == Some("bearer"),
        }
    }

    /// `told` is the address that other settings of the provider tell.
    fn place(&mut self, map: &Map<'_>, adapter: Option<&'static str>, told: Told) -> Option<Place> {
        let mock = match map.has("mock") {
            true => Some(self.mock(map)?),
            false => None,
        };
        let given = map.text("base_url");
        if mock.is_some() && given.is_none() {
            let base = mock_base();
            return Some(Place { base, mock });
        }
        let url = match (given, &told) {
            (Some(url), _) => url,
            (None, _) if map.has("base_url") => return None,
            (None, Told::Url(told)) => told,
            // What would have told it was refused already.
            (None, Told::Refused) => return None,
            (None, Told::Nothing) => {
                let adapter = adapter?;
                let Some(url) = self.catalog.default_base_url(adapter) else {
                    let message = format!(
                        "missing; adapter {adapter} has no public address, so needed is a URL such as http://127.0.0.1:8000"
                    );
                    let spot = Spot {
                        at: map.spot().at,
                        path: map.at("base_url").path,
                    };
                    self.report.refuse(&spot, message);
                    return None;
                };
                url
            }
        };
        // A URL of the file that cannot be parsed was refused by the tables' rules.
        let base = parse_base_url(url).ok()?;
        Some(Place { base, mock })
    }

    fn mock(&mut self, map: &Map<'_>) -> Option<MockSource> {
        let (node, spot) = (map.node("mock")?, map.at("mock"));
        let (origin, text, checked) = match &node.value {
            Value::Mapping(_) => {
                let in_place = node.to_yaml_in_place();
                (
                    "inline".to_owned(),
                    node.to_yaml(),
                    self.catalog.check_mock(&in_place),
                )
            }
            _ => {
                let file = map.text("mock")?;
                let bytes = self.read(&spot, file)?;
                let Ok(text) = String::from_utf8(bytes) else {
                    let message = format!("the file {file} is not UTF-8 text");
                    self.report.refuse(&spot, message);
                    return None;
                };
                let checked = self.catalog.check_mock(&text);
                (
                    self.base_dir.join(file).display().to_string(),
                    text,
                    checked,
                )
            }
        };
        if let Err(why) = checked {
            let message = format!("mock script ({origin}): {}", one_line(&why));
            self.report.refuse(&spot, message);
            return None;
        }
        let text = text.into();
        Some(MockSource { origin, text })
    }

    fn retry(&mut self, map: &Map<'_>) -> (Ownership, Option<RetryRules>) {
        let ownership = match map.text("ownership") {
            Some("internal") => Ownership::Internal,
            _ => Ownership::External,
        };
        if ownership == Ownership::External && map.has("retry") {
            self.report.refuse(
                &map.at("retry"),
                "the caller owns retries under `ownership: external`; remove this, or set `ownership: internal`",
            );
            return (ownership, None);
        }
        let Some(retry) = map.given_map("retry") else {
            return (ownership, None);
        };
        let (delay_base, delay_max) = (retry.millis("base_delay_ms"), retry.millis("max_delay_ms"));
        let sound = |key| retry.sound_number(key).is_some();
        if delay_base > delay_max && sound("base_delay_ms") && sound("max_delay_ms") {
            let (base, most) = (delay_base.as_millis(), delay_max.as_millis());
            let (key, message) = if retry.has("max_delay_ms") {
                let message =
                    format!("smaller than base_delay_ms ({base}); allowed is {base} to 60000");
                ("max_delay_ms", message)
            } else {
                let message =
                    format!("larger than max_delay_ms ({most}); lower it, or raise max_delay_ms");
                ("base_delay_ms", message)
            };
            self.report.refuse(&retry.at(key), message);
        }
        let rules = RetryRules {
            attempts_max: u32::try_from(retry.number("max_attempts")).unwrap_or(1),
            elapsed_max: retry.millis("max_elapsed_ms"),
            delay_base,
            delay_max,
        };
        (ownership, Some(rules))
    }

    fn health_rules(&mut self, map: &Map<'_>) -> Option<HealthRules> {
        let health = map.given_map("health")?;
        let path = health.text("path").unwrap_or_default();
        if !path.is_empty() && !is_path(path) {
            let message = "not a path; needed is one that begins with `/`, without spaces and `#`";
            self.report.refuse(&health.at("path"), message);
        }
        let (interval, timeout) = (health.millis("interval_ms"), health.millis("timeout_ms"));
        let sound = |key| health.sound_number(key).is_some();
        if timeout > interval && sound("interval_ms") && sound("timeout_ms") {
            let message = format!(
                "longer than interval_ms ({}), so checks would never end before the next is due",
                interval.as_millis()
            );
            self.report.refuse(&health.at("timeout_ms"), message);
        }
        let authenticated = health.flag("authenticated") == Some(true);
        if authenticated && map.maps("keys").is_empty() {
            let message = "no effect: this provider has no keys";
            self.report.warn(&health.at("authenticated"), message);
        }
        Some(HealthRules {
            path: path.into(),
            interval,
            timeout,
            healthy: health.number("healthy"),
            unhealthy: health.number("unhealthy"),
            authenticated,
        })
    }

    /// The state that is known, as long as address and rules are the same.
    fn health(&self, name: &str, base: &BaseUrl, rules: HealthRules) -> Arc<Health> {
        let mut before = self
            .previous
            .iter()
            .flat_map(|previous| &previous.providers);
        let before = before.find(|before| &*before.name == name && before.base == *base);
        let known = before.and_then(|before| before.health.as_ref());
        let known = known.filter(|known| known.rules == rules);
        known.map_or_else(|| Arc::new(Health::new(name.into(), rules)), Arc::clone)
    }

    fn keys(&mut self, map: &Map<'_>) -> Vec<Key> {
        let mut names = BTreeSet::new();
        let mut keys = Vec::new();
        for item in map.maps("keys") {
            let name = item.text("name");
            if let Some(name) = name
                && !names.insert(name)
            {
                let message =
                    format!("{name} is the name of two keys; names are unique within a provider");
                self.report.refuse(&item.at("name"), message);
            }
            let secret = item
                .given_map("secret")
                .and_then(|source| secret::resolve(self, &source));
            if let (Some(name), Some(secret)) = (name, secret) {
                let (name, rules) = (name.into(), Arc::new(self.key_rules(&item)));
                keys.push(Key {
                    name,
                    secret,
                    rules,
                });
            }
        }
        keys
    }

    /// What is said of a key beside its secret.
    fn key_rules(&mut self, item: &Map<'_>) -> KeyRules {
        let by_api = item.map("priority_by_api");
        let priority_by_api = Api::ALL.into_iter().filter_map(|api| {
            let priority = by_api.given_number(api.label())?;
            Some((api, small(priority)))
        });
        let models = item.texts("models").into_iter();
        KeyRules {
            priority: small(item.number("priority")),
            priority_by_api: priority_by_api.collect(),
            weight: small(item.number("weight")).max(1),
            models: models.map(|model| ModelPattern::of(model.value)).collect(),
            expires: self.expiry(item),
        }
    }

    fn expiry(&mut self, item: &Map<'_>) -> Option<WallTime> {
        let text = item.text("expires")?;
        let expires = parse_date(text)?;
        let left = expires.saturating_sub(self.env.wall().unix_micros());
        let warned = i64::try_from(EXPIRY_WARNED_MS * 1_000).unwrap_or(i64::MAX);
        if left <= 0 {
            let message = "has passed: the key is not used";
            self.report.warn(&item.at("expires"), message);
        } else if left <= warned {
            let days = left / 86_400_000_000;
            let message = format!("the key is used for {days} more days and some hours only");
            self.report.warn(&item.at("expires"), message);
        }
        Some(WallTime::from_unix_micros(expires))
    }

    /// Sorted statuses; a repeated one is refused.
    pub(super) fn statuses(&mut self, map: &Map<'_>, key: &str) -> Vec<u16> {
        let mut statuses = BTreeSet::new();
        for item in map.numbers(key) {
            let Ok(status) = u16::try_from(item.value) else {
                continue;
            };
            if !statuses.insert(status) {
                self.report
                    .refuse(&item.spot, format!("{status} is listed twice"));
            }
        }
        statuses.into_iter().collect()
    }

    fn warn_about_keys(&mut self, map: &Map<'_>, base: &BaseUrl) {
        if !base.tls && !is_loopback_host(&base.host) {
            self.report.warn(
                &map.at("base_url"),
                "the keys of this provider cross a network in clear text; use https",
            );
        }
    }
}

fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// An address that leads nowhere (RFC 2606), so that nothing leaves the process should a script ever be missed.
fn mock_base() -> BaseUrl {
    BaseUrl {
        tls: false,
        host: "mock.invalid".into(),
        port: 80,
        authority: "mock.invalid".into(),
        path: "".into(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
