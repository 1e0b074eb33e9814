//! The rules of a route as they take effect, in the keys of the YAML.

use serde_json::{Map, Value, json};

use crate::policy::route::{ModelPattern, Route};
use crate::policy::rules::{Action, HeaderIs, HeaderValueIs, ModesSet, Rule, When};
use crate::policy::snapshot::Snapshot;

/// A rule of the route.
pub(super) fn rule(rule: &Rule, route: &Route, snapshot: &Snapshot) -> Value {
    let actions = rule.actions.iter();
    json!({
        "name": *rule.name,
        "when": when(&rule.when),
        "actions": actions.map(|one| action(one, route, snapshot)).collect::<Value>(),
        "stop": rule.stop,
    })
}

/// Without what is absent.
fn given<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_null());
    let pairs: Map<String, Value> = pairs.map(|(key, value)| (key.to_owned(), value)).collect();
    Value::Object(pairs)
}

fn when(when: &When) -> Value {
    given([
        ("model", when.model.as_ref().map(ModelPattern::text).into()),
        ("api", when.api.map(|api| api.label()).into()),
        ("header", when.header.as_ref().map_or(Value::Null, header)),
        ("client_key", when.client_key.as_deref().into()),
        ("stream", when.stream.into()),
    ])
}

fn header(header: &HeaderIs) -> Value {
    let name = &*header.name;
    match &header.value {
        HeaderValueIs::Exact(value) => json!({ "name": name, "value": value }),
        HeaderValueIs::Prefix(prefix) => json!({ "name": name, "prefix": prefix }),
        HeaderValueIs::Present => json!({ "name": name, "present": true }),
        HeaderValueIs::Absent => json!({ "name": name, "present": false }),
    }
}

fn action(action: &Action, route: &Route, snapshot: &Snapshot) -> Value {
    match action {
        Action::Restrict(set) => {
            let targets = route.targets.iter().enumerate();
            let allowed = targets.filter(|(position, _)| set & (1 << position) != 0);
            let names: Vec<&str> = allowed.map(|(_, target)| &*target.name).collect();
            json!({ "restrict_targets": names })
        }
        Action::Schedule(modes) => json!({ "set_scheduling": scheduling(modes) }),
        Action::TargetPriority { target, priority } => {
            let name = route.targets.get(*target).map(|target| &*target.name);
            json!({ "set_target_priority": { "target": name, "priority": priority } })
        }
        Action::KeyPriority {
            api,
            provider,
            key,
            priority,
        } => {
            let provider = provider.and_then(|index| snapshot.provider(index));
            let set = given([
                ("provider", provider.map(|provider| &*provider.name).into()),
                ("api", api.map(|api| api.label()).into()),
                ("key", (**key).into()),
                ("priority", (*priority).into()),
            ]);
            json!({ "set_key_priority": set })
        }
    }
}

fn scheduling(modes: &ModesSet) -> Value {
    let keep = modes.keep_priority_on_conversion;
    given([
        (
            "priority_mode",
            modes.priority_mode.map(|mode| mode.label()).into(),
        ),
        (
            "scheduling_mode",
            modes.scheduling_mode.map(|mode| mode.label()).into(),
        ),
        ("keep_priority_on_conversion", keep.into()),
        ("sticky_key_attempts", modes.sticky_tries.into()),
    ])
}
