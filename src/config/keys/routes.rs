//! `routes`.

use super::super::defaults as preset;
use super::super::schema::Preset::{Number, Word, Words};
use super::super::schema::{Choice, Field, Kind, Shape, Text, millis};
use super::policy::{
    HASH_ON, KEEP_PRIORITY, PRIORITY_MODE, SCHEDULING_MODE, TARGET_PRIORITY, WEIGHT,
};
use super::{STATUSES, choice, defaulted, list, number, optional, required, shape};
use crate::core::limits::{SENDS_MAX, TARGETS_PER_ROUTE_MAX, WAIT_MAX};

const TARGETS_MAX: u64 = TARGETS_PER_ROUTE_MAX as u64;

pub(super) static ROUTE_ITEM: Kind = Kind::Mapping(&ROUTE);
static ROUTE: Shape = shape(
    "One route.",
    &[
        required(
            "name",
            Kind::Text(Text::Name),
            "Name of the route; the `route` label of metrics.",
        ),
        required(
            "models",
            list(&MODEL_ITEM, 1, preset::MODELS_PER_ROUTE_MAX),
            "Public model names that clients ask for; `*` at the end matches any rest. A whole name wins over a prefix, a longer prefix over a shorter one.",
        ),
        defaulted(
            "deadline_ms",
            millis(1),
            Number(preset::DEADLINE_MS),
            "Time for one operation over all attempts and waits. A client's own timeout header can shorten it.",
        ),
        required(
            "targets",
            list(&TARGET_ITEM, 1, TARGETS_PER_ROUTE_MAX),
            "Where to send, in order.",
        ),
        optional(
            "profile",
            Kind::Text(Text::Name),
            "default",
            "A name from `profiles`: what holds where `routing` says nothing.",
        ),
        optional(
            "routing",
            Kind::Mapping(&ROUTING),
            "what the profile says, else every default",
            "How the route fails over.",
        ),
    ],
);
static MODEL_ITEM: Kind = Kind::Text(Text::Pattern);

static TARGET_ITEM: Kind = Kind::Mapping(&TARGET);
static TARGET: Shape = shape(
    "One target.",
    &[
        required(
            "name",
            Kind::Text(Text::Name),
            "Name of the target, unique in its route; the `target` label of metrics.",
        ),
        required(
            "provider",
            Kind::Text(Text::Name),
            "A name from `providers`.",
        ),
        optional(
            "model",
            Kind::Text(Text::Model),
            "the client's model name",
            "The provider's own name of the model.",
        ),
        TARGET_PRIORITY,
        WEIGHT,
    ],
);

static ROUTING: Shape = shape("How a route fails over.", ROUTING_FIELDS);

/// A profile has the same keys.
pub(super) const ROUTING_FIELDS: &[Field] = &[
    optional(
        "mode",
        Kind::Choice(MODE),
        "priority_failover with two or more targets, else primary_only",
        "Whether other targets than the first are tried.",
    ),
    optional(
        "max_target_attempts",
        number(1, TARGETS_MAX, ""),
        "the number of targets",
        "Target attempts in one round, at most.",
    ),
    optional(
        "max_upstream_sends",
        number(1, SENDS_MAX as u64, ""),
        "max_target_attempts, plus the extra sticky tries",
        "Requests that one operation may send upstream, at most, over all rounds and retries. Never refilled.",
    ),
    optional(
        "exhaustion_retry",
        Kind::Mapping(&EXHAUSTION),
        "off",
        "One more round after every target was throttled, if the wait is short.",
    ),
    defaulted(
        "fallback_strategy",
        list(&STRATEGY_ITEM, 0, 4),
        Words(preset::FALLBACK_STRATEGY),
        "Which failures move on to the next target, beside those that are proved not to have run.",
    ),
    defaulted(
        "fallback_http_statuses",
        STATUSES,
        Words(&[]),
        "Single statuses that also move on, e.g. [401, 402, 404].",
    ),
    optional(
        "max_retries",
        number(0, SENDS_MAX as u64, ""),
        "not limited beyond the other budgets",
        "Tries after the first, over all rounds; 0 is never. Needs failover.",
    ),
    optional(
        "retry_on_failure_within_ms",
        millis(1),
        "failures move on however late they come",
        "A failure later than this after its attempt began is returned at once. Needs failover.",
    ),
    defaulted(
        "sticky_key_attempts",
        number(0, 10, ""),
        Number(preset::STICKY_KEY_ATTEMPTS),
        "Tries of the first candidate in all; 0 and 1 both mean no extra one.",
    ),
    defaulted(
        "on_client_disconnect",
        Kind::Choice(DISCONNECT),
        Word(preset::ON_CLIENT_DISCONNECT),
        "What happens upstream when the client leaves: it is closed, or read on within a bound to learn the usage.",
    ),
    optional(
        "cooldown",
        Kind::Mapping(&COOLDOWN),
        "every default",
        "How long a throttled target is set aside for other operations.",
    ),
    PRIORITY_MODE,
    SCHEDULING_MODE,
    KEEP_PRIORITY,
    HASH_ON,
];

const MODE: &[Choice] = &[
    choice("primary_only", "The first target alone."),
    choice("priority_failover", "The targets in their order."),
];

static EXHAUSTION: Shape = shape(
    "The second round. It needs mode priority_failover and explicit max_target_attempts and max_upstream_sends.",
    &[
        required(
            "max_rounds",
            number(
                0,
                1,
                "0 is off and 1 is one more round; more would be a retry loop in disguise",
            ),
            "Rounds after the first: 0 is off.",
        ),
        optional(
            "max_wait_ms",
            number(
                1,
                WAIT_MAX.as_millis() as u64,
                "beyond a minute the caller is the better place to wait",
            ),
            "required when max_rounds is 1",
            "Longest delay directed by the providers that is waited for; below deadline_ms. A longer one ends the operation at once.",
        ),
    ],
);

static STRATEGY_ITEM: Kind = Kind::Choice(STRATEGY);
const STRATEGY: &[Choice] = &[
    choice(
        "http_429",
        "Throttle and overload answers that are not proved to be unexecuted.",
    ),
    choice(
        "http_5xx",
        "Complete 5xx answers and errors in a stream before output. The request may have run.",
    ),
    choice(
        "transport_error",
        "Broken connections and timeouts before output. The request may have run.",
    ),
    choice(
        "rate_limiting",
        "Locally exhausted limits; no effect in this version.",
    ),
];

const DISCONNECT: &[Choice] = &[
    choice(
        "abort",
        "Close the upstream at once, so that it stops generating.",
    ),
    choice("drain", "Read on within a bound, to learn the final usage."),
];

static COOLDOWN: Shape = shape(
    "How long a certified delay sets a target aside.",
    &[defaulted(
        "max_ms",
        number(
            0,
            60_000,
            "limits change, and after a minute one probe is cheap",
        ),
        Number(preset::COOLDOWN_MAX_MS),
        "Longest time; 0 turns it off.",
    )],
);
