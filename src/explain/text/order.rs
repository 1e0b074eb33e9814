//! What orders the candidates, in words: profile, values with their origins, client, rules, equals.

use std::fmt::{self, Write};

use serde_json::Value;

use super::super::policy::{Mode, Policy, Setting, Verdict};
use super::super::ranks::{DecidedBy, Rank};
use crate::policy::scheduling::Origin;

pub(super) fn policy(out: &mut String, policy: &Policy) -> fmt::Result {
    writeln!(out, "\nOrder     by the profile {}", policy.profile)?;
    for mode in &policy.modes {
        let Mode { key, value, origin } = mode;
        writeln!(out, "  {key:<30}{value:<20}({})", origin.text())?;
    }
    settings(out, policy)?;
    client(out, policy)?;
    rules(out, policy)
}

/// What else somebody has set; what is built in is in the tables below and in JSON.
fn settings(out: &mut String, policy: &Policy) -> fmt::Result {
    let is_mode = |key: &str| policy.modes.iter().any(|mode| mode.key == key);
    let mut others = 0;
    for Setting { key, value, origin } in &policy.values {
        if is_mode(key) {
            continue;
        }
        if *origin == Origin::Default {
            others += 1;
            continue;
        }
        let value = shown(value);
        writeln!(out, "  {key:<30}{value:<20}({})", origin.text())?;
    }
    match others {
        0 => Ok(()),
        others => writeln!(
            out,
            "  {:<30}built in; --json shows them",
            format!("{others} other settings")
        ),
    }
}

/// A value in one line, as YAML would have it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let pairs: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}: {}", shown(value)))
                .collect();
            pairs.join(", ")
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn client(out: &mut String, policy: &Policy) -> fmt::Result {
    let client = &policy.client;
    let text = match (&client.key, client.refused) {
        (Some(name), _) => name.to_string(),
        (None, true) => "none that is known: the gateway answers 401 without a send".to_owned(),
        (None, false) => return Ok(()),
    };
    writeln!(out, "  {:<30}{text}", "client key")
}

fn rules(out: &mut String, policy: &Policy) -> fmt::Result {
    let names: Vec<&str> = policy.applied().map(|name| &**name).collect();
    let names = match names.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    writeln!(out, "  {:<30}{names}", "rules that match")?;
    for rule in &policy.rules {
        match &rule.verdict {
            Verdict::Applies => {}
            Verdict::Unmet(_, why) => writeln!(out, "    not {:<26}{why}", rule.name)?,
            Verdict::AfterStop(by) => writeln!(out, "    not {:<26}rule {by} stops", rule.name)?,
        }
    }
    Ok(())
}

/// Who stands beside whom: told only where something else than priority decides.
pub(super) fn ranks(out: &mut String, ranks: &[Rank]) -> fmt::Result {
    for rank in ranks {
        if rank.decided_by == DecidedBy::Alone {
            continue;
        }
        let names: Vec<&str> = rank.targets.iter().map(|name| &**name).collect();
        writeln!(out, "  equals: {}", names.join(", "))?;
        writeln!(out, "     order     {}", rank.why)?;
    }
    Ok(())
}
