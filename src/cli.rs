//! The command line.

pub mod ledger;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use rondo::core::api::Api;
use rondo::explain::Header;
use rondo::providers::adapter::Adapter;
use rondo::providers::{corpus, registry};

/// Where the configuration is when nothing else is said.
const DEFAULT_CONFIG: &str = "conf/rondo.yaml";

/// What `rondo health` asks: the admin plane's own default.
const DEFAULT_HEALTH: &str = "http://127.0.0.1:9090/readyz";

/// A gateway with bounded, replay-safe failover between applications and model providers.
///
/// Every operation ends; nothing that might have run is sent twice; each send is accounted for once.
#[derive(Debug, Parser)]
#[command(name = "rondo", version, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  rondo check                                   is conf/rondo.yaml good? every error with its place
  rondo run                                     run the gateway (SIGHUP reloads, SIGTERM drains)
  rondo explain --model gpt-4o                  who would be tried, in which order, and what would end it
  rondo run -c conf/quickstart.yaml             the gateway with scripted providers: no account needed
  rondo ledger show 7f3c9a52e1b04d68            what happened to this request? (x-request-id; also: ledger recent, ledger sum)
  rondo classify answers.jsonl                  what each logged answer proves, and the rule that says so
  rondo mock -c conf/mock.yaml                  scripted providers alone, for load tests
  rondo health                                  is a running gateway ready? for container health checks

Logs go to stderr; RUST_LOG=warn,rondo::access=info shows warnings and the access log.";

const LEDGER_EXAMPLES: &str = "\
Examples:
  rondo ledger recent                           the last operations, a line each
  rondo ledger show 7f3c9a52e1b04d68            what happened to this request, attempt by attempt
  rondo ledger sum --by target --since 1h       attempts, latency and tokens by target

The store is the one that the configuration names (-c FILE), or --store PATH|URL. It is only read, so the gateway may run meanwhile; what
is in flight and not yet written is shown by the admin page. Exit 0: found; 1: show found nothing; 2: the store cannot be read.";

/// One command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway until SIGTERM (drains, exit 0) or SIGINT (stops at once)
    #[command(long_about = "Run the gateway.\n\n\
        SIGHUP reads the configuration again; a bad file keeps the last good one and is said loudly. SIGTERM stops accepting, \
        answers operations that wait between rounds, lets streams finish within server.shutdown_grace_ms, and exits 0. SIGINT stops at \
        once. Exit 2: the configuration is bad.")]
    Run {
        #[command(flatten)]
        config: ConfigFile,
        /// Take the listeners over from the running process (send it SIGQUIT afterwards)
        #[arg(long)]
        upgrade: bool,
        /// Go into the background and print the process id
        #[arg(long)]
        daemon: bool,
    },
    /// Validate a configuration and print every problem with its place
    #[command(long_about = "Validate a configuration.\n\n\
        Prints every error as FILE:LINE:COL: path.to.key: what is wrong, what is allowed. Warnings likewise. Exit 0: it can be run; \
        2: it cannot.")]
    Check {
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Tell what would be done with a request, without sending it
    #[command(
        long_about = "Tell what would be done with a request, without sending it.\n\n\
        Prints the route, the effective profile with the origin of each value, the rules that match and those that do not, the candidates \
        in order with the reason of each place, the targets and keys left out, every budget, what follows each kind of failure, what \
        ends the operation, whether a second round is possible and if not why, and the most that it can cost. Keys are named, never \
        shown. Exit 0: the request can be served; 2: it cannot, or the configuration is bad."
    )]
    Explain {
        #[command(flatten)]
        config: ConfigFile,
        /// The public model name
        #[arg(short, long, value_name = "MODEL")]
        model: String,
        /// The API format; by default what the body looks like, or what the first target speaks
        #[arg(long, value_name = "FORMAT", value_parser = api)]
        api: Option<Api>,
        /// A file with the request's body, or - for stdin
        #[arg(long, value_name = "FILE")]
        body: Option<PathBuf>,
        /// As if the request asked for a stream
        #[arg(long)]
        stream: bool,
        /// A header of the client, such as 'x-stainless-retry-count: 1'; repeatable
        #[arg(long = "header", value_name = "NAME: VALUE", value_parser = Header::parse)]
        headers: Vec<Header>,
        /// As if the client showed the key of this name in client_keys
        #[arg(long, value_name = "NAME")]
        client_key: Option<String>,
        /// Print JSON, for scripts
        #[arg(long)]
        json: bool,
    },
    /// Tell what logged answers say, and whether they prove that the request did not run
    #[command(
        long_about = "Tell what logged answers say, and whether they prove that the request did not run.\n\n\
        FILE has one JSON object a line: {\"status\", \"headers\", \"body\"} and, if wanted, \"id\", \"provider\", \"api\". The body is text, or \
        base64: and its encoding. Printed are the class, whether the answer is certified, the delay that it asks for and the rule that \
        decided, as for a request without side effects. Nothing is sent. Exit 2: a line could not be read; the others are printed."
    )]
    Classify {
        /// Read every line as an answer to this adapter; by default the line's provider names it
        #[arg(long, value_name = "ADAPTER", value_parser = adapter)]
        adapter: Option<&'static Adapter>,
        /// The API format of every request; by default the line's api names it
        #[arg(long, value_name = "FORMAT", value_parser = api)]
        api: Option<Api>,
        /// Print one JSON object a line, for scripts
        #[arg(long)]
        json: bool,
        /// The answers, or - for stdin
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Look at the records of operations: the last ones, one, or sums
    #[command(after_help = LEDGER_EXAMPLES)]
    Ledger {
        /// What to look at.
        #[command(subcommand)]
        command: ledger::LedgerCommand,
    },
    /// Print the JSON Schema of the configuration, for editors
    Schema,
    /// Run the scripted providers of a file alone
    Mock {
        /// The script
        #[arg(short, long, value_name = "FILE", default_value = "conf/mock.yaml")]
        config: PathBuf,
    },
    /// Ask a running gateway whether it is ready; for container health checks
    #[command(long_about = "Ask a running gateway whether it is ready.\n\n\
        One GET over plain HTTP. Exit 0: the answer is 2xx; 1: it is another one, or none comes within three seconds.")]
    Health {
        /// What to ask; /readyz says whether requests should be sent here, /healthz whether the process lives
        #[arg(long, value_name = "URL", default_value = DEFAULT_HEALTH)]
        url: String,
    },
}

/// `-c FILE`.
#[derive(Debug, Args)]
pub struct ConfigFile {
    /// The configuration
    #[arg(short, long = "config", value_name = "FILE", env = "RONDO_CONFIG", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,
}

fn api(text: &str) -> Result<Api, String> {
    Api::from_label(text).ok_or_else(|| {
        let known: Vec<&str> = Api::ALL.iter().map(|api| api.label()).collect();
        format!("there are: {}", known.join(", "))
    })
}

fn adapter(text: &str) -> Result<&'static Adapter, String> {
    registry::find(text).ok_or_else(|| format!("there are: {}", corpus::adapter_names()))
}
