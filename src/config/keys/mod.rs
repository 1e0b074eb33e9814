//! Every key of the configuration: what it is, what it may be, what its absence means. Tables only.

mod policy;
mod process;
mod providers;
mod routes;

use self::policy::{CLIENT_KEYS, PROFILE, RULE_ITEM, SCHEDULER};
use self::process::{ADMIN, LEDGER, SERVER};
use self::providers::PROVIDER;
use self::routes::ROUTE_ITEM;
use super::defaults as preset;
use super::schema::{Choice, Field, Given, Kind, Need, Preset, Shape, Text};
use crate::core::limits::RULES_MAX;

/// Adapters that a file may name. Which of them a build has is the catalog's knowledge.
pub(super) const ADAPTERS: [&str; 23] = [
    "openai",
    "azure_openai",
    "anthropic",
    "gemini",
    "vertex",
    "bedrock",
    "mistral",
    "groq",
    "deepseek",
    "openrouter",
    "cohere",
    "xai",
    "together",
    "fireworks",
    "nvidia_nim",
    "copilot",
    "vllm",
    "sglang",
    "tgi",
    "ollama",
    "llama_cpp",
    "openai_compatible",
    "anthropic_compatible",
];

const fn shape(about: &'static str, fields: &'static [Field]) -> Shape {
    Shape {
        about,
        fields,
        given: Given::Required,
    }
}

const fn required(key: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        key,
        kind,
        need: Need::Required,
        about,
    }
}

const fn defaulted(key: &'static str, kind: Kind, default: Preset, about: &'static str) -> Field {
    Field {
        key,
        kind,
        need: Need::Default(default),
        about,
    }
}

const fn optional(
    key: &'static str,
    kind: Kind,
    absent: &'static str,
    about: &'static str,
) -> Field {
    Field {
        key,
        kind,
        need: Need::Absent(absent),
        about,
    }
}

const fn number(min: u64, max: u64, why: &'static str) -> Kind {
    Kind::Number { min, max, why }
}

const fn list(of: &'static Kind, min: usize, max: usize) -> Kind {
    Kind::List { of, min, max }
}

const fn choice(word: &'static str, about: &'static str) -> Choice {
    Choice { word, about }
}

static STATUS: Kind = number(400, 599, "");
const STATUSES: Kind = list(&STATUS, 0, 200);

/// The whole file.
pub(super) static ROOT: Shape = shape(
    "Configuration of Rondo, a gateway between applications and model providers.",
    &[
        optional(
            "server",
            Kind::Mapping(&SERVER),
            "every default",
            "The data plane: where clients connect, and process-wide bounds.",
        ),
        optional(
            "admin",
            Kind::Mapping(&ADMIN),
            "every default",
            "Metrics, health, the admin API and its page.",
        ),
        required(
            "providers",
            Kind::Named {
                of: &PROVIDER,
                max: preset::PROVIDERS_MAX,
            },
            "Where models run, under names of your choice.",
        ),
        required(
            "routes",
            list(&ROUTE_ITEM, 1, preset::ROUTES_MAX),
            "Public model names and the ordered targets behind them.",
        ),
        optional(
            "profiles",
            Kind::Named {
                of: &PROFILE,
                max: preset::PROFILES_MAX,
            },
            "one, `default`, made from `scheduler`",
            "Routing policies that routes name, under names of your choice. A route without `profile` uses the one called `default`.",
        ),
        optional(
            "scheduler",
            Kind::Mapping(&SCHEDULER),
            "every default",
            "The order of candidates everywhere. Without effect when there is a profile `default`.",
        ),
        optional(
            "rules",
            list(&RULE_ITEM, 0, RULES_MAX),
            "none",
            "Routing rules. All that match apply, by priority and then as they stand in the file.",
        ),
        optional(
            "client_keys",
            Kind::Mapping(&CLIENT_KEYS),
            "clients are not told apart by name",
            "Keys of the gateway's own clients.",
        ),
        optional(
            "ledger",
            Kind::Mapping(&LEDGER),
            "every default",
            "Where each operation and each attempt is recorded. A change needs a restart.",
        ),
    ],
);

static SECRET: Shape = Shape {
    about: "Where a secret comes from; exactly one of the three.",
    fields: &[
        optional(
            "env",
            Kind::Text(Text::Variable),
            "",
            "Name of an environment variable that holds the secret.",
        ),
        optional(
            "file",
            Kind::Text(Text::File),
            "",
            "File that holds the secret; white space around it is cut. A relative name starts at the configuration file's directory.",
        ),
        optional(
            "literal",
            Kind::Text(Text::Any),
            "",
            "The secret itself. For trying things out only: it is then in the file for all to read.",
        ),
    ],
    given: Given::OneSecret,
};
