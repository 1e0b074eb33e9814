//! `profiles`, `scheduler`, `rules` and `client_keys`, and what `routing` has of them.

use super::super::defaults as preset;
use super::super::schema::Preset::{Flag, Number, Word};
use super::super::schema::{Choice, Field, Given, Kind, Need, Shape, Text};
use super::routes::ROUTING_FIELDS;
use super::{SECRET, choice, defaulted, list, number, optional, required, shape};
use crate::core::api::Api;

pub(super) static PROFILE: Shape = shape(
    "Any key of a route's `routing`. A route that names the profile takes what it does not say itself.",
    ROUTING_FIELDS,
);

pub(super) static SCHEDULER: Shape = shape(
    "The simple form: what the profile `default` says when `profiles` has none of that name.",
    &[PRIORITY_MODE, SCHEDULING_MODE, KEEP_PRIORITY],
);

pub(super) const PRIORITY_MODE: Field = defaulted(
    "priority_mode",
    Kind::Choice(PRIORITY_MODES),
    Word(preset::PRIORITY_MODE),
    "What priority is compared first.",
);
pub(super) const SCHEDULING_MODE: Field = defaulted(
    "scheduling_mode",
    Kind::Choice(SCHEDULING_MODES),
    Word(preset::SCHEDULING_MODE),
    "How candidates of equal priority are arranged.",
);
pub(super) const KEEP_PRIORITY: Field = defaulted(
    "keep_priority_on_conversion",
    Kind::Flag,
    Flag(preset::KEEP_PRIORITY_ON_CONVERSION),
    "Whether a candidate that needs another API format keeps its place; else it stands behind those that do not. This version converts no formats, so it ranks nothing yet.",
);
pub(super) const HASH_ON: Field = optional(
    "hash_on",
    Kind::Text(Text::HashOn),
    "the mode arranges them",
    "Chooses among targets of equal priority by consistent hashing, by weight: of the client's key, or of a request header. A request that has none of it is arranged by the mode.",
);

const PRIORITY_MODES: &[Choice] = &[
    choice(
        "provider",
        "That of targets; each is tried with its pool of keys.",
    ),
    choice(
        "global_key",
        "That of keys over all targets; a target may stand in several places.",
    ),
];
const SCHEDULING_MODES: &[Choice] = &[
    choice("fixed_order", "As they stand in the file."),
    choice(
        "cache_affinity",
        "The candidate of the same client's last good answer first, for five minutes.",
    ),
    choice(
        "load_balance",
        "By weight; of two that are drawn, the one with less in flight.",
    ),
];

const fn priority() -> Kind {
    number(0, preset::PRIORITY_MAX, "")
}

static BY_API: Shape = Shape {
    about: "Priorities by API format.",
    fields: &API_FIELDS,
    given: Given::Required,
};

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, over an array of that length"
)]
const API_FIELDS: [Field; Api::ALL.len()] = {
    let mut fields = [const { api_field(Api::OpenaiChat) }; Api::ALL.len()];
    let mut index = 0;
    while index < fields.len() {
        fields[index] = api_field(Api::ALL[index]);
        index += 1;
    }
    fields
};

const fn api_field(api: Api) -> Field {
    let (key, kind, about) = (api.label(), priority(), "Priority for this format.");
    let need = Need::Absent("the general priority");
    Field {
        key,
        kind,
        need,
        about,
    }
}

static KEY_MODEL: Kind = Kind::Text(Text::Pattern);
pub(super) const KEY_PRIORITY: Field = defaulted(
    "priority",
    priority(),
    super::Preset::Number(0),
    "Where the key stands among others; lower goes first, equals as they stand in the file.",
);
pub(super) const KEY_PRIORITY_BY_API: Field = optional(
    "priority_by_api",
    Kind::Mapping(&BY_API),
    "the general priority",
    "Other priorities for single API formats.",
);
pub(super) const WEIGHT: Field = defaulted(
    "weight",
    number(1, preset::WEIGHT_MAX, ""),
    super::Preset::Number(1),
    "Share among those of equal priority, where load is balanced or hashed.",
);
pub(super) const KEY_MODELS: Field = optional(
    "models",
    list(&KEY_MODEL, 1, preset::MODELS_PER_ROUTE_MAX),
    "every model",
    "Upstream models that the key may be used for; `*` at the end matches any rest.",
);
pub(super) const KEY_EXPIRES: Field = optional(
    "expires",
    Kind::Text(Text::Date),
    "never",
    "From when on the key is not used. A date alone means its beginning in UTC.",
);
pub(super) const TARGET_PRIORITY: Field = defaulted(
    "priority",
    priority(),
    super::Preset::Number(0),
    "Where the target stands; lower goes first, equals as they stand in the file.",
);

pub(super) static RULE_ITEM: Kind = Kind::Mapping(&RULE);
static RULE: Shape = shape(
    "A routing rule: what holds for requests of a kind, over routes and profiles.",
    &[
        required("name", Kind::Text(Text::Name), "Name of the rule, unique."),
        defaulted(
            "enabled",
            Kind::Flag,
            Flag(true),
            "Whether it is looked at.",
        ),
        defaulted(
            "priority",
            priority(),
            super::Preset::Number(0),
            "Lower is applied first, so that higher wins; equals as they stand in the file.",
        ),
        optional(
            "when",
            Kind::Mapping(&WHEN),
            "every request",
            "What a request must be like; all that is given must hold.",
        ),
        optional(
            "actions",
            list(&ACTION_ITEM, 1, preset::ACTIONS_PER_RULE_MAX),
            "nothing",
            "What then holds.",
        ),
        defaulted(
            "stop",
            Kind::Flag,
            Flag(false),
            "Whether no later rule is looked at.",
        ),
    ],
);

static WHEN: Shape = shape(
    "Conditions on a request.",
    &[
        optional("route", Kind::Text(Text::Name), "any", "Name of the route."),
        optional(
            "model",
            Kind::Text(Text::Pattern),
            "any",
            "The public model name; `*` at the end matches any rest.",
        ),
        optional(
            "api",
            Kind::Choice(&APIS),
            "any",
            "The client's API format.",
        ),
        optional(
            "header",
            Kind::Mapping(&HEADER),
            "any",
            "A header of the request.",
        ),
        optional(
            "client_key",
            Kind::Text(Text::Name),
            "any",
            "A name from `client_keys`.",
        ),
        optional(
            "stream",
            Kind::Flag,
            "either",
            "Whether a stream is asked for.",
        ),
    ],
);

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, over an array of that length"
)]
static APIS: [Choice; Api::ALL.len()] = {
    let mut choices = [const { choice(Api::OpenaiChat.label(), "") }; Api::ALL.len()];
    let mut index = 0;
    while index < choices.len() {
        choices[index] = choice(Api::ALL[index].label(), "");
        index += 1;
    }
    choices
};

static HEADER: Shape = shape(
    "A condition on a header: one of `value`, `prefix` and `present`.",
    &[
        required("name", Kind::Text(Text::Header), "Its name, in any case."),
        optional("value", Kind::Text(Text::Any), "", "Its whole value."),
        optional("prefix", Kind::Text(Text::Any), "", "How its value begins."),
        optional("present", Kind::Flag, "", "Whether it is there at all."),
    ],
);

static ACTION_ITEM: Kind = Kind::Mapping(&ACTION);
static TARGET_NAME: Kind = Kind::Text(Text::Name);
static ACTION: Shape = Shape {
    about: "One action.",
    fields: &[
        optional(
            "restrict_targets",
            list(&TARGET_NAME, 0, crate::core::limits::TARGETS_PER_ROUTE_MAX),
            "",
            "These targets alone. Several rules narrow it together; when nothing is left, the answer is 503.",
        ),
        optional(
            "set_scheduling",
            Kind::Mapping(&SET_SCHEDULING),
            "",
            "Other modes; what is absent stays.",
        ),
        optional(
            "set_target_priority",
            Kind::Mapping(&SET_TARGET_PRIORITY),
            "",
            "Another priority of a target.",
        ),
        optional(
            "set_key_priority",
            Kind::Mapping(&SET_KEY_PRIORITY),
            "",
            "Another priority of a key.",
        ),
    ],
    given: Given::One,
};

static SET_SCHEDULING: Shape = shape(
    "Modes that a rule sets.",
    &[
        optional(
            "priority_mode",
            Kind::Choice(PRIORITY_MODES),
            "as it was",
            "As in `routing`.",
        ),
        optional(
            "scheduling_mode",
            Kind::Choice(SCHEDULING_MODES),
            "as it was",
            "As in `routing`.",
        ),
        optional(
            "keep_priority_on_conversion",
            Kind::Flag,
            "as it was",
            "As in `routing`.",
        ),
        optional(
            "sticky_key_attempts",
            number(0, 10, ""),
            "as it was",
            "As in `routing`; max_upstream_sends stays what the route says.",
        ),
    ],
);
static SET_TARGET_PRIORITY: Shape = shape(
    "Another priority of a target.",
    &[
        required("target", Kind::Text(Text::Name), "Name of the target."),
        required("priority", priority(), "Its priority."),
    ],
);
static SET_KEY_PRIORITY: Shape = shape(
    "Another priority of a key.",
    &[
        optional(
            "provider",
            Kind::Text(Text::Name),
            "wherever a key has the name",
            "The provider whose key it is.",
        ),
        optional(
            "api",
            Kind::Choice(&APIS),
            "every format",
            "The API format for which it holds.",
        ),
        required("key", Kind::Text(Text::Name), "Name of the key."),
        required("priority", priority(), "Its priority."),
    ],
);

pub(super) static CLIENT_KEYS: Shape = shape(
    "Keys that clients of the gateway show as their own. They name the client in records, rules and affinity, and never go upstream.",
    &[
        defaulted(
            "required",
            Kind::Flag,
            Flag(preset::CLIENT_KEYS_REQUIRED),
            "Whether a client without one of them is refused with 401.",
        ),
        defaulted(
            "max_in_flight",
            number(0, preset::AT_ONCE_MAX, ""),
            Number(preset::CLIENT_MAX_IN_FLIGHT),
            "Operations of each of these clients at once; above it a new request is answered with 429. 0 is no limit but the process's.",
        ),
        optional(
            "keys",
            list(&CLIENT_KEY_ITEM, 0, preset::CLIENT_KEYS_MAX),
            "none",
            "The keys that are known.",
        ),
    ],
);
static CLIENT_KEY_ITEM: Kind = Kind::Mapping(&CLIENT_KEY);
static CLIENT_KEY: Shape = shape(
    "A client's key: what it sends as bearer token, x-api-key, api-key, x-goog-api-key or ?key=.",
    &[
        required(
            "name",
            Kind::Text(Text::Name),
            "Name for records and rules; not the key.",
        ),
        required("secret", Kind::Mapping(&SECRET), "The key itself."),
        optional(
            "max_in_flight",
            number(0, preset::AT_ONCE_MAX, ""),
            "as client_keys.max_in_flight says",
            "Operations of this client at once. 0 is no limit but the process's.",
        ),
    ],
);
