//! What a reload changed, and what of it waits for a restart. Compares compiled snapshots; performs nothing.

use serde_json::Value;

use super::effective::effective;
use crate::policy::secret::Secret;
use crate::policy::snapshot::Snapshot;

/// Changes listed at most; a longer list says how many more there are.
const CHANGES_MAX: usize = 100;

/// Paths of the settings that differ, e.g. `routes.gpt.deadline_ms`, in the order of the new file.
pub fn changes(old: &Snapshot, new: &Snapshot) -> Vec<String> {
    let mut found = Vec::new();
    differences("", &effective(old), &effective(new), &mut found);
    secret_changes(old, new, &mut found);
    let left_out = found.len().saturating_sub(CHANGES_MAX);
    found.truncate(CHANGES_MAX);
    if left_out > 0 {
        found.push(format!("and {left_out} more"));
    }
    found
}

/// Settings that are read when the process starts and differ from those in use. `running` is best the snapshot of the start.
pub fn needs_restart(running: &Snapshot, new: &Snapshot) -> Vec<String> {
    let (a, b) = (&running.server, &new.server);
    let settings = [
        ("server.listen", a.listen != b.listen),
        ("server.threads", a.threads != b.threads),
        (
            "server.shutdown_grace_ms",
            a.shutdown_grace != b.shutdown_grace,
        ),
        ("admin.listen", running.admin.listen != new.admin.listen),
        ("ledger", running.ledger != new.ledger),
    ];
    let restart = settings
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(key, _)| format!("{key}: changed; takes effect after a restart"));
    // A listener is told once how long a connection of HTTP/2 may be idle.
    let keepalive = (a.keepalive_timeout != b.keepalive_timeout).then(|| {
        "server.keepalive_timeout_ms: changed; takes effect at once for HTTP/1.1, after a restart for HTTP/2".to_owned()
    });
    restart.chain(keepalive).collect()
}

fn differences(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new {
                let path = super::problem::join(path, key);
                match old.get(key) {
                    Some(before) => differences(&path, before, value, found),
                    None => found.push(format!("{path}: added")),
                }
            }
            let removed = old.keys().filter(|key| !new.contains_key(*key));
            found
                .extend(removed.map(|key| format!("{}: removed", super::problem::join(path, key))));
        }
        (Value::Array(before), Value::Array(after)) if is_named(before) && is_named(after) => {
            differences(path, &by_name(before), &by_name(after), found);
            let names = |items: &[Value]| -> Vec<Value> {
                items
                    .iter()
                    .filter_map(|item| item.get("name").cloned())
                    .collect()
            };
            let (mut a, mut b) = (names(before), names(after));
            a.retain(|name| b.contains(name));
            b.retain(|name| a.contains(name));
            if a != b {
                found.push(format!("{path}: order"));
            }
        }
        _ if old != new => found.push(path.to_owned()),
        _ => {}
    }
}

fn is_named(items: &[Value]) -> bool {
    items.iter().all(|item| item.get("name").is_some())
}

fn by_name(items: &[Value]) -> Value {
    let pairs = items.iter().filter_map(|item| {
        let name = item.get("name")?.as_str()?;
        Some((name.to_owned(), item.clone()))
    });
    Value::Object(pairs.collect())
}

/// Secrets look alike in the effective view, so they are compared here.
fn secret_changes(old: &Snapshot, new: &Snapshot, found: &mut Vec<String>) {
    if let (Some(before), Some(after)) = (&old.admin.token, &new.admin.token) {
        push_if_changed(before, after, "admin.token", found);
    }
    if old.clients.names().eq(new.clients.names()) && !old.clients.is_same(&new.clients) {
        found.push("client_keys: secret".to_owned());
    }
    for provider in &new.providers {
        let before = old.providers.iter().find(|old| old.name == provider.name);
        for key in &provider.keys {
            let before = before.and_then(|old| old.keys.iter().find(|old| old.name == key.name));
            if let Some(before) = before {
                let path = format!("providers.{}.keys.{}.secret", provider.name, key.name);
                push_if_changed(&before.secret, &key.secret, &path, found);
            }
        }
        if let Some(before) = before
            && before.identity != provider.identity
        {
            found.push(format!("providers.{}: credential", provider.name));
        }
        if let Some(before) = before
            && before.mock.is_some()
            && provider.mock.is_some()
            && before.mock != provider.mock
        {
            found.push(format!("providers.{}.mock: script", provider.name));
        }
        if let Some(before) = before
            && before.ca.is_some()
            && provider.ca.is_some()
            && before.ca != provider.ca
        {
            found.push(format!("providers.{}.ca: certificates", provider.name));
        }
    }
}

fn push_if_changed(before: &Secret, after: &Secret, path: &str, found: &mut Vec<String>) {
    if before != after {
        found.push(path.to_owned());
    }
}
