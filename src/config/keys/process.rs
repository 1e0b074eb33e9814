//! `server`, `admin` and `ledger`.

use super::super::defaults as preset;
use super::super::schema::Preset::{Flag, Number, Word};
use super::super::schema::{Choice, Kind, Shape, Text, millis};
use super::{SECRET, choice, defaulted, list, number, optional, required, shape};

pub(super) static SERVER: Shape = shape(
    "The data plane.",
    &[
        optional(
            "listen",
            list(&LISTEN_ITEM, 1, preset::LISTENERS_MAX),
            "one cleartext listener on 127.0.0.1:8080",
            "Where clients connect. A change needs a restart.",
        ),
        optional(
            "threads",
            number(1, 512, ""),
            "one for each core",
            "Worker threads. A change needs a restart.",
        ),
        defaulted(
            "max_request_body",
            Kind::Size {
                min: 1 << 10,
                max: 1 << 30,
            },
            Number(preset::REQUEST_BODY_MAX),
            "Largest request body; a larger one is answered with 413.",
        ),
        defaulted(
            "max_buffered_bytes",
            Kind::Size {
                min: 1 << 10,
                max: 1 << 40,
            },
            Number(preset::BUFFERED_BYTES_MAX),
            "Request bodies held over the whole process; above it a new request is answered with 503 before it is read.",
        ),
        defaulted(
            "shutdown_grace_ms",
            number(0, 3_600_000, ""),
            Number(preset::SHUTDOWN_GRACE_MS),
            "Time for operations in flight after SIGTERM. A change needs a restart.",
        ),
        defaulted(
            "route_headers",
            Kind::Flag,
            Flag(preset::ROUTE_HEADERS),
            "Whether answers carry x-rondo-* headers.",
        ),
        defaulted(
            "client_read_timeout_ms",
            millis(1),
            Number(preset::CLIENT_READ_TIMEOUT_MS),
            "Longest pause inside a client's request body; the whole body may take ten times as long.",
        ),
        defaulted(
            "client_write_timeout_ms",
            millis(1),
            Number(preset::CLIENT_WRITE_TIMEOUT_MS),
            "Longest time that a client leaves a piece of its answer unread; then it counts as gone.",
        ),
        defaulted(
            "client_header_timeout_ms",
            millis(1),
            Number(preset::CLIENT_HEADER_TIMEOUT_MS),
            "Time for a client's whole request head, from the connection or the end of the request before; idle time between requests comes on top.",
        ),
        defaulted(
            "min_upload_bytes_per_second",
            number(0, preset::RATE_MIN_MAX, ""),
            Number(preset::MIN_UPLOAD_BYTES_PER_SECOND),
            "Least average rate of a request body after the first client_read_timeout_ms; a slower one is answered with 408. 0 asks for none.",
        ),
        defaulted(
            "min_download_bytes_per_second",
            number(0, preset::RATE_MIN_MAX, ""),
            Number(preset::MIN_DOWNLOAD_BYTES_PER_SECOND),
            "Least rate at which a client takes an answer that waits for it. Once it is client_write_timeout_ms behind, it counts as gone. 0 asks for none.",
        ),
        defaulted(
            "keepalive_timeout_ms",
            millis(1),
            Number(preset::KEEPALIVE_TIMEOUT_MS),
            "How long an idle client connection is kept between requests. For HTTP/2 a change needs a restart.",
        ),
        defaulted(
            "max_in_flight",
            number(0, preset::AT_ONCE_MAX, ""),
            Number(preset::MAX_IN_FLIGHT),
            "Operations at once, from the request head to the end of the answer; above it a new request is answered with 503 before it is read. 0 is the default.",
        ),
        defaulted(
            "max_connections",
            number(0, preset::AT_ONCE_MAX, ""),
            Number(preset::MAX_CONNECTIONS),
            "Client connections at once; above it a new one is answered with 503 and closed, over TLS closed before the handshake. 0 is the default.",
        ),
    ],
);

static LISTEN_ITEM: Kind = Kind::Mapping(&LISTEN);
static LISTEN: Shape = shape(
    "One listener: HTTP/1.1 and HTTP/2 with prior knowledge, or both by ALPN with `tls`.",
    &[
        required("address", Kind::Text(Text::Listen), "Address and port."),
        optional(
            "tls",
            Kind::Mapping(&LISTEN_TLS),
            "cleartext",
            "Serves TLS with this certificate.",
        ),
    ],
);
static LISTEN_TLS: Shape = shape(
    "Certificate of a listener. Relative names start at the configuration file's directory.",
    &[
        required(
            "cert",
            Kind::Text(Text::File),
            "PEM file with the certificate chain, the server's own first.",
        ),
        required(
            "key",
            Kind::Text(Text::File),
            "PEM file with the private key.",
        ),
    ],
);

pub(super) static ADMIN: Shape = shape(
    "The admin plane.",
    &[
        defaulted(
            "listen",
            Kind::Text(Text::ListenOrOff),
            Word(preset::ADMIN_LISTEN),
            "Address and port, or \"off\". An address that others can reach needs `token`. A change needs a restart.",
        ),
        optional(
            "token",
            Kind::Mapping(&SECRET),
            "no token is asked for",
            "Bearer token that callers of the admin plane present.",
        ),
    ],
);

pub(super) static LEDGER: Shape = shape(
    "Records of operations and attempts.",
    &[
        defaulted(
            "store",
            Kind::Choice(STORE),
            Word(preset::LEDGER_STORE),
            "Where records go.",
        ),
        defaulted(
            "path",
            Kind::Text(Text::File),
            Word(preset::LEDGER_PATH),
            "Database file of sqlite. A relative name starts at the working directory.",
        ),
        optional(
            "url",
            Kind::Mapping(&SECRET),
            "required for postgres",
            "Connection URL of postgres; it carries a password, so it is a secret.",
        ),
        defaulted(
            "durability",
            Kind::Choice(DURABILITY),
            Word(preset::LEDGER_DURABILITY),
            "When a record counts as written.",
        ),
        defaulted(
            "keep",
            Kind::Span {
                min: 3_600_000,
                max: 3650 * preset::DAY_MS,
            },
            Number(preset::LEDGER_KEEP_MS),
            "Age at which records are deleted.",
        ),
        defaulted(
            "spool_max_mb",
            number(1, 1 << 20, ""),
            Number(preset::LEDGER_SPOOL_MAX_MB),
            "MiB of records that wait on disk at most while the store is away; what comes beyond is lost and counted.",
        ),
        optional(
            "state_dir",
            Kind::Text(Text::File),
            "the name of the sqlite file with .state added, or data/rondo.state for postgres",
            "Directory of the spool and of the locks that tell which process runs. A relative name starts at the working directory.",
        ),
    ],
);

const STORE: &[Choice] = &[
    choice("sqlite", "A file on this machine."),
    choice("postgres", "A PostgreSQL database."),
    choice("off", "Nothing is recorded."),
];

const DURABILITY: &[Choice] = &[
    choice(
        "batch",
        "In groups; a crash of the machine may lose the last one.",
    ),
    choice(
        "strict",
        "An attempt's pending record is on disk before its request is sent.",
    ),
];
