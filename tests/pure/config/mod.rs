//! The configuration, from text to snapshot.

mod accepted;
mod aws;
mod aws_chain;
mod azure;
mod copilot;
mod files;
mod google;
mod models;
mod never;
mod refused;
mod refused_providers;
mod refused_routing;
mod reloaded;
mod schema;
mod warned;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rondo::config::{AdapterCatalog, Env, Loaded, Problems, compile_text};
use rondo::core::api::{Api, ApiSet};
use rondo::policy::snapshot::Snapshot;

/// Variables and files of a test.
#[derive(Default)]
pub struct FakeEnv {
    pub vars: BTreeMap<String, String>,
    pub files: BTreeMap<PathBuf, Vec<u8>>,
}

impl FakeEnv {
    /// What the texts of these tests refer to.
    pub fn usual() -> FakeEnv {
        let mut env = FakeEnv::default();
        env.set("KEY_A", "sk-secret-of-a")
            .set("KEY_B", "sk-secret-of-b");
        env.set("ADMIN_TOKEN", "secret-of-admin");
        env.set("DATABASE_URL", "postgres://rondo:secret-of-db@db/rondo");
        env
    }

    pub fn set(&mut self, name: &str, value: &str) -> &mut FakeEnv {
        self.vars.insert(name.to_owned(), value.to_owned());
        self
    }

    pub fn file(&mut self, path: &str, text: &str) -> &mut FakeEnv {
        self.files
            .insert(PathBuf::from(path), text.as_bytes().to_vec());
        self
    }
}

impl Env for FakeEnv {
    fn var(&self, name: &str) -> Option<String> {
        self.vars.get(name).cloned()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no such file");
        self.files.get(path).cloned().ok_or_else(missing)
    }

    fn cores(&self) -> usize {
        4
    }
}

/// A few adapters, as the registry will list them.
pub struct FakeCatalog;

const OPENAI: &[Api] = &[
    Api::OpenaiChat,
    Api::OpenaiCompletions,
    Api::OpenaiResponses,
    Api::OpenaiEmbeddings,
    Api::OpenaiSpeech,
];
const COMPATIBLE: &[Api] = &[
    Api::OpenaiChat,
    Api::OpenaiCompletions,
    Api::OpenaiEmbeddings,
];
const ANTHROPIC: &[Api] = &[Api::AnthropicMessages, Api::AnthropicCountTokens];

const ADAPTERS: [(&str, &[Api], Option<&str>); 8] = [
    ("openai", OPENAI, Some("https://api.openai.com")),
    ("anthropic", ANTHROPIC, Some("https://api.anthropic.com")),
    ("vllm", OPENAI, None),
    ("azure_openai", OPENAI, None),
    ("openai_compatible", COMPATIBLE, None),
    ("copilot", OPENAI, Some("https://api.githubcopilot.com")),
    ("vertex", &[Api::OpenaiChat, Api::Gemini], None),
    ("bedrock", &[Api::OpenaiChat, Api::BedrockConverse], None),
];

impl AdapterCatalog for FakeCatalog {
    fn find(&self, name: &str) -> Option<(&'static str, ApiSet)> {
        let found = ADAPTERS.iter().find(|(known, ..)| *known == name);
        found.map(|(known, apis, _)| (*known, ApiSet::of(apis)))
    }

    fn names(&self) -> Vec<&'static str> {
        ADAPTERS.iter().map(|(name, ..)| *name).collect()
    }

    fn default_base_url(&self, name: &str) -> Option<&'static str> {
        ADAPTERS
            .iter()
            .find(|(known, ..)| *known == name)
            .and_then(|(.., url)| *url)
    }

    fn check_mock(&self, script: &str) -> Result<(), String> {
        let read = serde_yaml::from_str::<Script>(script);
        read.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// As much of a mock script as these tests use.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read to see whether it can be read")]
struct Script {
    answers: Vec<serde_yaml::Value>,
    seed: Option<u64>,
}

/// Compiles a text that stands in `/etc/rondo/rondo.yaml`.
pub fn compile(text: &str) -> Result<Loaded, Problems> {
    compile_after(text, &FakeEnv::usual(), None)
}

pub fn compile_in(text: &str, env: &FakeEnv) -> Result<Loaded, Problems> {
    compile_after(text, env, None)
}

pub fn compile_after(
    text: &str,
    env: &FakeEnv,
    previous: Option<&Snapshot>,
) -> Result<Loaded, Problems> {
    compile_text(
        "rondo.yaml",
        text,
        Path::new("/etc/rondo"),
        env,
        &FakeCatalog,
        previous,
    )
}

/// The good file that most tests change a line of.
pub const GOOD: &str = "\
providers:
  a:
    adapter: openai
    keys: [{ name: main, secret: { env: KEY_A } }]
  b:
    adapter: openai
    keys: [{ name: main, secret: { env: KEY_B } }]
routes:
  - name: gpt
    models: [\"gpt-4o\", \"gpt-4o-mini*\"]
    targets:
      - { name: primary, provider: a }
      - { name: backup, provider: b, model: gpt-4o-prod }
ledger: { store: \"off\" }
";

/// The good file with a `routing` block, whose lines begin at line 15.
pub fn with_routing(routing: &str) -> String {
    let indented: String = routing
        .lines()
        .map(|line| format!("      {line}\n"))
        .collect();
    let (head, ledger) = GOOD.split_at(GOOD.find("ledger").unwrap());
    format!("{head}    routing:\n{indented}{ledger}")
}

/// The lines of what is wrong with a text.
pub fn errors(text: &str) -> Vec<String> {
    errors_in(text, &FakeEnv::usual())
}

pub fn errors_in(text: &str, env: &FakeEnv) -> Vec<String> {
    match compile_in(text, env) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.to_string().lines().map(str::to_owned).collect(),
    }
}

/// The lines of the warnings of a text that is accepted.
pub fn warnings(text: &str) -> Vec<String> {
    let loaded = compile(text).unwrap_or_else(|problems| panic!("refused:\n{problems}"));
    loaded
        .warnings
        .iter()
        .map(|problem| problem.to_string())
        .collect()
}

/// The snapshot of a text that is accepted.
pub fn snapshot(text: &str) -> Snapshot {
    match compile(text) {
        Ok(loaded) => loaded.snapshot,
        Err(problems) => panic!("refused:\n{problems}"),
    }
}

/// The same with other variables, files and adapters.
pub fn snapshot_with(text: &str, env: &dyn Env, catalog: &dyn AdapterCatalog) -> Snapshot {
    let loaded = compile_text(
        "rondo.yaml",
        text,
        Path::new("/etc/rondo"),
        env,
        catalog,
        None,
    );
    loaded
        .unwrap_or_else(|problems| panic!("refused:\n{problems}"))
        .snapshot
}
