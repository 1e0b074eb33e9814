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
        optional(
            "limits",
            Kind::Mapping(&LIMITS),
            "not limited here",
            "What this gateway sends to the target, at most. With `fallback_strategy: [rate_limiting]` an exhausted target is skipped; without, it ends the operation with 429 local_limit.",
        ),
        TARGET_PRIORITY,
        WEIGHT,
    ],
);

static LIMITS: Shape = shape(
    "Limits of one target in one gateway; several gateways do not share them.",
    &[
        optional(
            "requests_per_minute",
            number(1, COUNT_MAX, ""),
            "not limited",
            "Sends in any minute.",
        ),
        optional(
            "tokens_per_minute",
            number(1, COUNT_MAX, ""),
            "not limited",
            "Tokens in any minute: a quarter of the body's bytes and the longest answer asked for when it is sent, what was really used when the answer tells.",
        ),
        optional(
            "concurrent",
            number(1, 1_000_000, ""),
            "not limited",
            "Attempts at once; a stream counts until its end.",
        ),
    ],
);
/// A thousand million a minute is more than any provider sells.
const COUNT_MAX: u64 = 1_000_000_000;

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
    optional(
        "max_failover_elapsed_ms",
        millis(1),
        "tries begin until the deadline",
        "Once so much time has passed since the operation began, no other try begins; one in flight goes on. Needs failover.",
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
        "How long a target is set aside for other operations.",
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
        "Targets whose `limits` are used up are skipped.",
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
    "How long a target is set aside for other operations. When that is over, one of them tries it first.",
    &[
        defaulted(
            "max_ms",
            number(
                0,
                60_000,
                "limits change, and after a minute one probe is cheap",
            ),
            Number(preset::COOLDOWN_MAX_MS),
            "Longest time for a certified delay; 0 turns it off.",
        ),
        defaulted(
            "quota_ms",
            millis(0),
            Number(preset::COOLDOWN_QUOTA_MS),
            "Time for a key whose quota is used up; 0 turns it off.",
        ),
        optional(
            "failures",
            Kind::MappingOrOff(&FAILURES),
            "off",
            "When failures without a certificate set a target aside: 5xx answers, broken and silent connections. They prove nothing of a request, so a target passed over for them speaks against a second round.",
        ),
    ],
);

static FAILURES: Shape = shape(
    "Failures in a row, with no success between them.",
    &[
        required("count", number(1, 65_535, ""), "So many of them."),
        required("within_ms", millis(1), "Within so long of the first."),
        required(
            "cooldown_ms",
            number(
                1,
                600_000,
                "one probe is cheap, and a target that is well again is wanted",
            ),
            "Set the target aside for so long.",
        ),
    ],
);
