//! Every row of every table is held by a fixture: change any part of it, and some answer of the fixtures is judged otherwise.
//!
//! `fixtures/rules.jsonl` has lines in the corpus' form with the rule that must decide, its scope, and the status that stands for the
//! answer; `about` names the rule that a line is there for, also where it must not match. A new rule needs lines of its own: the
//! message of a surviving change says which. Left out are changes that cannot be seen by construction: a certificate of a class that
//! none is made for or of a denial row, and what a stream's rule says about statuses, which events do not have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use rondo::core::class::Class;
use rondo::core::outcome::Scope;
use rondo::providers::adapter::Adapter;
use rondo::providers::corpus::{self, Judged, Row};
use rondo::providers::registry;
use rondo::providers::rules::{On, Proof, Rule, Test};
use serde_json::Value;

/// An answer, and what must be found in it.
struct Fixture {
    about: String,
    adapter: &'static Adapter,
    row: Row,
    wanted: Judged,
}

fn fixtures() -> Vec<Fixture> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rules.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(fixture).collect()
}

fn fixture(line: &str) -> Fixture {
    let value: Value = serde_json::from_str(line).unwrap();
    let row = corpus::read(line.as_bytes()).unwrap();
    let text = |member: &str| value[member].as_str().unwrap();
    let class = Class::ALL
        .into_iter()
        .find(|class| class.label() == text("class"));
    let scopes = [
        Scope::Credential,
        Scope::Candidate,
        Scope::Endpoint,
        Scope::Provider,
    ];
    let scope = scopes
        .into_iter()
        .find(|scope| format!("{scope:?}") == text("scope"));
    let wanted = Judged {
        id: row.id.clone(),
        class: class.unwrap(),
        certified: value["certified_pre_execution"].as_bool().unwrap(),
        retry_after: value["retry_after_ms"]
            .as_u64()
            .map(std::time::Duration::from_millis),
        rule: leak_text(text("rule")),
        status: u16::try_from(value["stands_for"].as_u64().unwrap()).unwrap(),
        scope: scope.unwrap(),
    };
    Fixture {
        about: text("about").to_owned(),
        adapter: registry::find(text("provider")).unwrap(),
        row,
        wanted,
    }
}

static FIXTURES: LazyLock<Vec<Fixture>> = LazyLock::new(fixtures);

#[test]
fn every_fixture_is_decided_by_its_rule() {
    // R-A1
    for fixture in FIXTURES.iter() {
        let found = corpus::judge_as(fixture.adapter, None, &fixture.row);
        assert_eq!(found, fixture.wanted);
    }
}

#[test]
fn every_rule_has_fixtures_for_it_and_against_it() {
    // R-A1
    for rule in rules().values() {
        let about = || FIXTURES.iter().filter(|fixture| fixture.about == rule.name);
        let hits = about().filter(|fixture| fixture.wanted.rule == rule.name);
        assert!(hits.clone().count() > 0, "{} has no fixture", rule.name);
        let misses = about().filter(|fixture| fixture.wanted.rule != rule.name);
        assert!(misses.count() > 0, "{} has no near miss", rule.name);
        if rule.proof != Proof::None {
            let mut hits = hits;
            assert!(
                hits.any(|fixture| fixture.wanted.certified),
                "{}",
                rule.name
            );
        }
    }
}

#[test]
fn no_change_of_any_rule_goes_unnoticed() {
    // R-A1
    let mut survivors = Vec::new();
    let mut made = 0;
    for rule in rules().values() {
        for (change, mutant) in mutants(rule) {
            made += 1;
            if !is_noticed(rule.name, mutant.as_slice()) {
                survivors.push(format!("{}: {change}", rule.name));
            }
        }
    }
    assert!(
        survivors.is_empty(),
        "not noticed:\n{}",
        survivors.join("\n")
    );
    assert!(made > 1000, "only {made} changes were tried");
}

#[test]
fn no_table_can_be_taken_from_an_adapter_unnoticed() {
    // R-A1
    for adapter in registry::all() {
        for (list, tables) in [adapter.deny, adapter.rules].into_iter().enumerate() {
            for place in 0..tables.len() {
                let mut kept = tables.to_vec();
                let taken = kept.remove(place);
                let kept: &'static [&'static [Rule]] = leak(kept);
                let (deny, rules) = match list {
                    0 => (kept, adapter.rules),
                    _ => (adapter.deny, kept),
                };
                let mutant = leak_adapter(Adapter {
                    deny,
                    rules,
                    ..**adapter
                });
                let name = taken[0].name;
                assert!(
                    differs(adapter.name, mutant, name),
                    "{} without {name}",
                    adapter.name
                );
            }
        }
    }
}

/// Every rule by its name; the same table may belong to several adapters.
fn rules() -> BTreeMap<&'static str, Rule> {
    let all = registry::all()
        .iter()
        .flat_map(|adapter| adapter.deny.iter().chain(adapter.rules));
    all.copied()
        .flatten()
        .map(|rule| (rule.name, *rule))
        .collect()
}

fn is_denial(name: &str) -> bool {
    let mut all = registry::all()
        .iter()
        .flat_map(|adapter| adapter.deny.iter());
    all.any(|table| table.iter().any(|rule| rule.name == name))
}

/// Whether the fixtures notice that a rule was replaced, in every adapter that has it.
fn is_noticed(name: &str, replacement: &[Rule]) -> bool {
    let has = |adapter: &&Adapter| {
        let mut tables = adapter.deny.iter().chain(adapter.rules);
        tables.any(|table| table.iter().any(|rule| rule.name == name))
    };
    registry::all().iter().copied().filter(has).any(|adapter| {
        let mutant = leak_adapter(Adapter {
            deny: replaced(adapter.deny, name, replacement),
            rules: replaced(adapter.rules, name, replacement),
            ..*adapter
        });
        differs(adapter.name, mutant, name)
    })
}

/// Whether any fixture of this adapter is judged otherwise by the mutant; those about the rule are tried first.
fn differs(adapter: &str, mutant: &'static Adapter, about: &str) -> bool {
    let own = || {
        FIXTURES
            .iter()
            .filter(|fixture| fixture.adapter.name == adapter)
    };
    let (first, rest): (Vec<_>, Vec<_>) = own().partition(|fixture| fixture.about == about);
    first
        .into_iter()
        .chain(rest)
        .any(|fixture| corpus::judge_as(mutant, None, &fixture.row) != fixture.wanted)
}

fn replaced(
    tables: &'static [&'static [Rule]],
    name: &str,
    replacement: &[Rule],
) -> &'static [&'static [Rule]] {
    let table = |table: &&'static [Rule]| -> &'static [Rule] {
        if table.iter().all(|rule| rule.name != name) {
            return table;
        }
        let rules = table.iter().flat_map(|rule| match rule.name == name {
            true => replacement.to_vec(),
            false => vec![*rule],
        });
        leak(rules.collect())
    };
    leak(tables.iter().map(table).collect())
}

/// Every change of one thing, with its name. An empty list stands for the rule being gone.
fn mutants(rule: &Rule) -> Vec<(String, Vec<Rule>)> {
    let mut all = vec![("dropped".to_owned(), vec![])];
    let mut add = |change: String, mutant: Rule| all.push((change, vec![mutant]));
    for (change, statuses) in other_statuses(rule) {
        add(change, Rule { statuses, ..*rule });
    }
    for (change, when) in other_tests(rule) {
        add(change, Rule { when, ..*rule });
    }
    for proof in [Proof::None, Proof::Status, Proof::StatusOrFirstEvent] {
        let seen = rule.class.is_pushback() && !is_denial(rule.name);
        let same_for_events = rule.on == On::Stream && proof == Proof::Status;
        let same_for_statuses =
            rule.on == On::Status && proof != Proof::None && rule.proof != Proof::None;
        if proof != rule.proof && seen && !same_for_events && !same_for_statuses {
            add(format!("proof {proof:?}"), Rule { proof, ..*rule });
        }
    }
    for on in [On::Status, On::Stream, On::Both] {
        // A row that asks for a header is for statuses anyway.
        let asks_for_header = rule.when.iter().any(|test| matches!(test, Test::Header(_)));
        // A row for any status stands last; the rows before it take all events that it could mean.
        let stands_last = rule.statuses.is_empty();
        if on != rule.on && (on == On::Stream || !(asks_for_header || stands_last)) {
            add(format!("on {on:?}"), Rule { on, ..*rule });
        }
    }
    let class = match rule.class {
        Class::Ambiguous => Class::Config,
        _ => Class::Ambiguous,
    };
    add(format!("class {class}"), Rule { class, ..*rule });
    let scope = match rule.scope {
        Scope::Provider => Scope::Candidate,
        _ => Scope::Provider,
    };
    add(format!("scope {scope:?}"), Rule { scope, ..*rule });
    all
}

fn other_statuses(rule: &Rule) -> Vec<(String, &'static [u16])> {
    if rule.on == On::Stream {
        return vec![("another status".to_owned(), &[599])];
    }
    let widened = [rule.statuses, &[418]].concat();
    let mut all = vec![("one status more".to_owned(), leak(widened))];
    if !rule.statuses.is_empty() {
        all.push(("every status".to_owned(), leak(vec![])));
    }
    for (place, status) in rule.statuses.iter().enumerate() {
        let mut fewer = rule.statuses.to_vec();
        fewer.remove(place);
        // An empty list would mean every status.
        fewer.resize(fewer.len().max(1), 599);
        all.push((format!("without {status}"), leak(fewer)));
    }
    all
}

fn other_tests(rule: &Rule) -> Vec<(String, &'static [Test])> {
    let mut all = Vec::new();
    for (place, test) in rule.when.iter().enumerate() {
        let mut fewer = rule.when.to_vec();
        fewer.remove(place);
        all.push((format!("without {test:?}"), leak(fewer)));
        for (change, test) in other_test(test) {
            let mut others = rule.when.to_vec();
            others[place] = test;
            all.push((change, leak(others)));
        }
    }
    all
}

/// A test with one word less, or one that lets more words through.
fn other_test(test: &Test) -> Vec<(String, Test)> {
    let fewer = |words: &[&'static str]| -> Vec<(String, &'static [&'static str])> {
        let without = |place: usize| {
            let mut kept = words.to_vec();
            let word = kept.remove(place);
            (format!("without the word {word}"), leak(kept))
        };
        (0..words.len()).map(without).collect()
    };
    let mut all: Vec<(String, Test)> = Vec::new();
    let mut each = |words: &[&'static str], make: &dyn Fn(&'static [&'static str]) -> Test| {
        all.extend(
            fewer(words)
                .into_iter()
                .map(|(change, words)| (change, make(words))),
        );
    };
    match *test {
        Test::Is(path, words) => {
            each(words, &|words| Test::Is(path, words));
            all.push(("beginnings".to_owned(), Test::Starts(path, words)));
        }
        Test::Stem(path, words) => {
            each(words, &|words| Test::Stem(path, words));
            all.push(("beginnings".to_owned(), Test::Starts(path, words)));
        }
        Test::Starts(path, words) => {
            each(words, &|words| Test::Starts(path, words));
            all.push(("anywhere".to_owned(), Test::Contains(path, words)));
        }
        Test::Contains(path, words) => each(words, &|words| Test::Contains(path, words)),
        Test::NullOr(path, words) => {
            each(words, &|words| Test::NullOr(path, words));
            all.push(("not null".to_owned(), Test::Is(path, words)));
        }
        Test::Number(path, numbers) => {
            for place in 0..numbers.len() {
                let mut kept = numbers.to_vec();
                kept.remove(place);
                all.push((
                    format!("number {place} gone"),
                    Test::Number(path, leak(kept)),
                ));
            }
        }
        // What is left of these is to be there or not.
        Test::Null(_) | Test::Header(_) | Test::Holds(_) => {}
    }
    all
}

#[test]
fn the_fixtures_are_in_order() {
    let names: BTreeSet<&str> = rules().into_keys().collect();
    let mut ids = BTreeSet::new();
    for fixture in FIXTURES.iter() {
        assert!(
            names.contains(fixture.about.as_str()),
            "no rule {}",
            fixture.about
        );
        let id = fixture.row.id.as_deref().unwrap();
        assert!(ids.insert(id), "{id} is there twice");
    }
}

// Tables are `'static`, so a changed one is leaked; the process is a test's.
fn leak<T>(items: Vec<T>) -> &'static [T] {
    Box::leak(items.into_boxed_slice())
}

fn leak_text(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

fn leak_adapter(adapter: Adapter) -> &'static Adapter {
    Box::leak(Box::new(adapter))
}
