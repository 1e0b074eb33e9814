//! The rules that a reader relies on and no compiler holds: the layers, the one minting place, the size of files.

use std::path::{Path, PathBuf};

use rondo::core::suppression::Suppression;

/// Imports go to the left only. `main` and `cli` stand at the end.
const LAYERS: &[&str] = &[
    "core",
    "wire",
    "policy",
    "executor",
    "ledger",
    "providers",
    "config",
    "explain",
    "records",
    "store",
    "proxy",
    "telemetry",
    "admin",
    "mock",
    "fuzzing",
    "app",
    "cli",
    "main",
];

/// Lines of a file, at most.
const LINES_MAX: usize = 600;

/// A file of the package, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Lines of code: without comments, and without what follows one.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self
            .text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line.trim()));
        lines.filter(|(_, line)| !line.starts_with("//"))
    }

    fn layer(&self) -> Option<usize> {
        let inside = self.path.strip_prefix("src/")?;
        let name = inside.split(['/', '.']).next()?;
        LAYERS.iter().position(|layer| *layer == name)
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root().join(folder), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "{folder} has no sources");
    found
}

fn collect(folder: &Path, found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let name = path
                .strip_prefix(root())
                .unwrap()
                .to_string_lossy()
                .replace('\\', "/");
            found.push(Source {
                path: name,
                text: std::fs::read_to_string(&path).unwrap(),
            });
        }
    }
}

#[test]
fn imports_go_to_the_left_only() {
    let mut wrong = Vec::new();
    for source in sources("src") {
        let Some(own) = source.layer() else { continue };
        for (line, text) in source.code() {
            for import in text.split("crate::").skip(1) {
                let name = import
                    .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .next();
                let layer = LAYERS.iter().position(|layer| Some(*layer) == name);
                if layer.is_some_and(|layer| layer > own) {
                    wrong.push(format!("{}:{line}: {text}", source.path));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "imports to the right:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_module_has_a_layer() {
    let lib = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let modules = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let positions: Vec<usize> = modules
        .map(|name| {
            let found = LAYERS.iter().position(|layer| *layer == name);
            found.unwrap_or_else(|| panic!("{name} has no layer"))
        })
        .collect();
    assert!(positions.len() >= 6, "lib.rs could not be read");
    assert!(
        positions.is_sorted(),
        "lib.rs lists the modules in reading order"
    );
}

#[test]
fn certificates_are_minted_in_one_place() {
    let minting: Vec<String> = sources("src")
        .iter()
        .filter(|source| source.path != "src/core/certificate.rs")
        .filter(|source| source.code().any(|(_, line)| line.contains("::mint(")))
        .map(|source| source.path.clone())
        .collect();
    assert_eq!(minting, ["src/providers/certify.rs"]);
}

// What the core is pure of.
#[test]
fn the_core_has_no_clock_and_no_io() {
    let pure = LAYERS
        .iter()
        .position(|layer| *layer == "providers")
        .unwrap();
    let forbidden = [
        "Instant::now",
        "SystemTime::now",
        "std::fs",
        "std::net",
        "std::env",
        "thread::spawn",
        "async fn",
        "tokio",
        "pingora",
        "log::",
        "println!",
    ];
    for source in sources("src") {
        if source.layer().is_none_or(|layer| layer > pure) {
            continue;
        }
        for (line, text) in source.code() {
            let found = forbidden.iter().find(|word| text.contains(**word));
            assert!(found.is_none(), "{}:{line}: {text}", source.path);
        }
    }
}

#[test]
fn decide_is_asked_in_one_place() {
    let asking: Vec<String> = sources("src")
        .iter()
        .filter(|source| source.path != "src/core/decision.rs")
        .filter(|source| source.code().any(|(_, line)| line.contains(" decide(")))
        .map(|source| source.path.clone())
        .collect();
    // `rondo explain` asks about made-up failures and acts on no answer.
    assert_eq!(asking, ["src/executor/outcome.rs", "src/explain/moves.rs"]);
}

// Whoever reads the keys of the scheduler orders candidates in a second place. Views and the configuration only name them.
#[test]
fn the_order_is_decided_in_one_place() {
    let may = ["src/policy/", "src/config/", "src/explain/"];
    let words = [
        "priority_mode",
        "scheduling_mode",
        "hash_on",
        "PriorityMode",
        "SchedulingMode",
    ];
    for source in sources("src") {
        if may.iter().any(|folder| source.path.starts_with(folder)) {
            continue;
        }
        for (line, text) in source.code() {
            let found = words.iter().find(|word| text.contains(**word));
            assert!(found.is_none(), "{}:{line}: {text}", source.path);
        }
    }
    let asking: Vec<String> = sources("src")
        .iter()
        .filter(|source| !source.path.starts_with("src/policy/"))
        .filter(|source| {
            source
                .code()
                .any(|(_, line)| line.contains("ordering::order("))
        })
        .map(|source| source.path.clone())
        .collect();
    assert_eq!(asking, ["src/proxy/gateway.rs"]);
}

#[test]
fn files_stay_short() {
    for source in sources("src").into_iter().chain(sources("tests")) {
        let lines = source.text.lines().count();
        assert!(
            lines <= LINES_MAX,
            "{} has {lines} lines, more than {LINES_MAX}",
            source.path
        );
    }
}

#[test]
fn every_file_says_what_it_is() {
    for source in sources("src").into_iter().chain(sources("tests")) {
        let first = source.text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("//! "),
            "{} does not begin with a module doc",
            source.path
        );
    }
}

#[test]
fn nobody_sleeps_ignores_or_postpones() {
    // In two pieces, so that this file does not find itself.
    let forbidden = [
        ["thread::", "sleep"],
        ["#[", "ignore"],
        ["to", "do!("],
        ["unimple", "mented!("],
        ["dbg", "!("],
    ];
    for source in sources("src").into_iter().chain(sources("tests")) {
        for (line, text) in source.code() {
            for pieces in &forbidden {
                assert!(
                    !text.contains(&pieces.concat()),
                    "{}:{line}: {text}",
                    source.path
                );
            }
        }
    }
}

#[test]
fn every_bound_says_why_it_has_its_size() {
    let text = std::fs::read_to_string(root().join("src/core/limits.rs")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut bounds = 0;
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("pub const ") {
            bounds += 1;
            assert!(lines[index - 1].starts_with("/// "), "undocumented: {line}");
        }
    }
    assert!(bounds >= 10, "limits.rs could not be read");
}

// Holds from the moment that the document exists.
#[test]
fn every_suppression_has_a_row_in_the_architecture() {
    let Ok(text) = std::fs::read_to_string(root().join("ARCHITECTURE.md")) else {
        return;
    };
    for reason in Suppression::ALL {
        let label = format!("`{}`", reason.label());
        assert!(
            text.contains(&label),
            "ARCHITECTURE.md does not explain {label}"
        );
    }
}
