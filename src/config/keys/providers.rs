//! `providers`.

use super::super::defaults as preset;
use super::super::schema::Preset::{Flag, Number, Word, Words};
use super::super::schema::{Choice, Kind, Shape, Text, millis};
use super::policy::{KEY_EXPIRES, KEY_MODELS, KEY_PRIORITY, KEY_PRIORITY_BY_API, WEIGHT};
use super::{SECRET, STATUSES, choice, defaulted, list, number, optional, required, shape};

pub(super) static PROVIDER: Shape = shape(
    "One provider.",
    &[
        required(
            "adapter",
            Kind::Text(Text::Adapter),
            "The dialect this provider speaks: paths, credentials, error codes.",
        ),
        optional(
            "base_url",
            Kind::Text(Text::Url),
            "the adapter's public address, where it has one",
            "Scheme, host and optional path prefix; one that ends in a version, such as /v1, takes the place of the native version. Required unless the adapter has a public address or `mock` is set.",
        ),
        defaulted(
            "deployments",
            Kind::Flag,
            Flag(preset::AZURE_DEPLOYMENTS),
            "azure_openai only: whether the target's model stands in the path as a deployment, /openai/deployments/MODEL; false means /openai/v1, where it stands in the body.",
        ),
        optional(
            "api_version",
            Kind::Text(Text::Name),
            "no api-version is sent; /openai/v1 needs none",
            "azure_openai only: the api-version of every request, such as 2024-10-21. Required with `deployments: true`.",
        ),
        defaulted(
            "auth",
            Kind::Choice(AZURE_AUTH),
            Word(preset::AZURE_AUTH),
            "azure_openai only: what the key is.",
        ),
        optional(
            "aws",
            Kind::Mapping(&AWS),
            "keys are sent as API keys",
            "bedrock only: the region, and what signs requests where there are no `keys`. An empty mapping takes everything from the usual environment.",
        ),
        optional(
            "gcp",
            Kind::Mapping(&GCP),
            "keys are sent as access tokens, which nothing renews, and `base_url` names project and location",
            "vertex only: the project, and where the tokens come from. They are renewed ahead.",
        ),
        optional(
            "copilot",
            Kind::Mapping(&COPILOT),
            "keys are sent as short-lived tokens, which nothing renews",
            "copilot only: the lasting token that is exchanged for short-lived ones, and what names the caller.",
        ),
        defaulted(
            "ownership",
            Kind::Choice(OWNERSHIP),
            Word(preset::OWNERSHIP),
            "Who retries after a failure of this provider.",
        ),
        optional(
            "retry",
            Kind::Mapping(&RETRY),
            "no retries at the same target",
            "The gateway's own retries; only under `ownership: internal`.",
        ),
        defaulted(
            "trust_status",
            STATUSES,
            Words(&[]),
            "Bare statuses that you declare to be sent before the request runs, e.g. [429] for your own vLLM. They then move on safely and count for the second round.",
        ),
        optional(
            "timeouts",
            Kind::Mapping(&TIMEOUTS),
            "every default",
            "Time limits of one attempt.",
        ),
        optional(
            "http2",
            Kind::Flag,
            "true over https, false over http",
            "HTTP/2. Over https it is negotiated (ALPN); over http, true means that the server is known to speak it.",
        ),
        optional(
            "keys",
            list(&KEY_ITEM, 0, preset::KEYS_PER_PROVIDER_MAX),
            "requests carry no credential",
            "Credentials. They are tried by priority, then as they stand here.",
        ),
        optional(
            "health",
            Kind::Mapping(&HEALTH),
            "the provider counts as healthy",
            "Health checks. While the provider is unhealthy its targets are passed over, unless every target of the route is.",
        ),
        optional(
            "mock",
            Kind::Script,
            "requests go to base_url",
            "A scripted provider inside this process answers instead: a script file (relative to the configuration file's directory) or the script itself. base_url and keys may then be omitted.",
        ),
        optional(
            "ca",
            Kind::Text(Text::File),
            "the system's roots alone",
            "PEM file with further certificates to trust for this provider. A relative name starts at the configuration file's directory.",
        ),
    ],
);

const AZURE_AUTH: &[Choice] = &[
    choice("api_key", "A key of the resource, sent as api-key."),
    choice(
        "bearer",
        "A token of Entra ID, sent as authorization. Nothing renews it here.",
    ),
];

static AWS: Shape = shape(
    "An identity of AWS. Without an access key here and without `keys`, the first of: the API key AWS_BEARER_TOKEN_BEDROCK; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; the profile AWS_PROFILE of the shared files (role_arn with source_profile or credential_source, web_identity_token_file, access keys, credential_process); AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN; the container's agent; the instance's metadata (IMDSv2). What expires is renewed ahead. Single sign-on is refused.",
    &[
        optional(
            "region",
            Kind::Text(Text::Name),
            "AWS_REGION, else AWS_DEFAULT_REGION, else the profile's region",
            "The region of signatures, and of the runtime's address unless `base_url` is set.",
        ),
        optional(
            "access_key_id",
            Kind::Mapping(&SECRET),
            "the usual environment",
            "The public half of an access key.",
        ),
        optional(
            "secret_access_key",
            Kind::Mapping(&SECRET),
            "the usual environment",
            "The secret half.",
        ),
        optional(
            "session_token",
            Kind::Mapping(&SECRET),
            "the access key needs none",
            "The token that goes with temporary credentials. Nothing renews what is given here; a reload reads it again.",
        ),
    ],
);

static GCP: Shape = shape(
    "A project of Google Cloud, and where its tokens come from. Without `service_account` and without `keys`, the first of: the file that GOOGLE_APPLICATION_CREDENTIALS names, gcloud's application default credentials (each a service_account or an authorized_user), the metadata server. Workload identity federation is refused.",
    &[
        required(
            "location",
            Kind::Text(Text::Name),
            "The location of the models, such as europe-west1 or global.",
        ),
        optional(
            "project",
            Kind::Text(Text::Name),
            "the service account's own project, else GOOGLE_CLOUD_PROJECT",
            "The project that is charged.",
        ),
        optional(
            "service_account",
            Kind::Mapping(&SECRET),
            "the usual places, unless there are `keys`",
            "The JSON file of a service account's key, in one piece. Tokens come from its token_uri.",
        ),
    ],
);

static COPILOT: Shape = shape(
    "A subscription of GitHub Copilot.",
    &[
        optional(
            "token",
            Kind::Mapping(&SECRET),
            "keys are sent as they are",
            "A lasting token of GitHub. It is exchanged for short-lived ones, ahead of their end, and goes nowhere else.",
        ),
        defaulted(
            "token_url",
            Kind::Text(Text::Url),
            Word(preset::COPILOT_TOKEN_URL),
            "Where it is exchanged.",
        ),
        defaulted(
            "editor_version",
            Kind::Text(Text::Any),
            Word(preset::COPILOT_EDITOR_VERSION),
            "Sent as Editor-Version.",
        ),
        defaulted(
            "integration_id",
            Kind::Text(Text::Any),
            Word(preset::COPILOT_INTEGRATION_ID),
            "Sent as Copilot-Integration-Id: the name under which GitHub knows the caller. Set the one that GitHub gave you.",
        ),
        defaulted(
            "intent",
            Kind::Text(Text::Any),
            Word(preset::COPILOT_INTENT),
            "Sent as OpenAI-Intent: what the requests are for, in Copilot's words.",
        ),
        defaulted(
            "api_version",
            Kind::Text(Text::Any),
            Word(preset::COPILOT_API_VERSION),
            "Sent as X-GitHub-Api-Version.",
        ),
    ],
);

const OWNERSHIP: &[Choice] = &[
    choice(
        "external",
        "The caller retries: answers pass with their delay headers.",
    ),
    choice(
        "internal",
        "The gateway retries, as `retry` says; exhausted answers tell the caller not to.",
    ),
];

static RETRY: Shape = shape(
    "Retries at the same target, by capped exponential backoff with jitter.",
    &[
        required(
            "max_attempts",
            number(1, 32, "retries are finite"),
            "Tries in all, the first included.",
        ),
        required(
            "max_elapsed_ms",
            number(1, 600_000, "retries are finite"),
            "Longest time from the first failure to the last try.",
        ),
        defaulted(
            "base_delay_ms",
            number(1, 60_000, ""),
            Number(preset::RETRY_BASE_DELAY_MS),
            "Delay before the second try; doubles from there.",
        ),
        defaulted(
            "max_delay_ms",
            number(1, 60_000, ""),
            Number(preset::RETRY_MAX_DELAY_MS),
            "Longest delay.",
        ),
    ],
);

static TIMEOUTS: Shape = shape(
    "Time limits of one attempt, in milliseconds.",
    &[
        defaulted(
            "connect_ms",
            millis(1),
            Number(preset::CONNECT_MS),
            "TCP and TLS together.",
        ),
        defaulted(
            "first_byte_ms",
            millis(1),
            Number(preset::FIRST_BYTE_MS),
            "From the end of the request to the response header.",
        ),
        defaulted(
            "idle_ms",
            millis(1),
            Number(preset::IDLE_MS),
            "Longest silence inside an answer.",
        ),
        defaulted(
            "total_ms",
            millis(1),
            Number(preset::TOTAL_MS),
            "The whole answer, from its request to its last byte.",
        ),
    ],
);

static HEALTH: Shape = shape(
    "A GET over HTTP/1.1 beside the requests; a 2xx is good, everything else is not. No redirect is followed and nothing of a client is sent.",
    &[
        required(
            "path",
            Kind::Text(Text::Any),
            "What is asked for at the provider's address, such as /health.",
        ),
        defaulted(
            "interval_ms",
            millis(10),
            Number(preset::HEALTH_INTERVAL_MS),
            "From the end of one check to the next.",
        ),
        defaulted(
            "timeout_ms",
            millis(1),
            Number(preset::HEALTH_TIMEOUT_MS),
            "Time for one check, the connection included.",
        ),
        defaulted(
            "healthy",
            number(1, 100, ""),
            Number(preset::HEALTH_HEALTHY),
            "Good results in a row that make it healthy again.",
        ),
        defaulted(
            "unhealthy",
            number(1, 100, ""),
            Number(preset::HEALTH_UNHEALTHY),
            "Bad results in a row that make it unhealthy.",
        ),
        defaulted(
            "authenticated",
            Kind::Flag,
            Flag(preset::HEALTH_AUTHENTICATED),
            "Whether the provider's first key is shown.",
        ),
    ],
);

static KEY_ITEM: Kind = Kind::Mapping(&KEY);
static KEY: Shape = shape(
    "One credential.",
    &[
        required(
            "name",
            Kind::Text(Text::Name),
            "Name for records and the admin page; not the credential.",
        ),
        required("secret", Kind::Mapping(&SECRET), "The credential."),
        KEY_PRIORITY,
        KEY_PRIORITY_BY_API,
        WEIGHT,
        KEY_MODELS,
        KEY_EXPIRES,
    ],
);
