//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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
  rondo mock -c conf/mock.yaml                  scripted providers alone, for load tests

Logs go to stderr; RUST_LOG=warn,rondo::access=info shows warnings and the access log.";

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
        /// Go into the background
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
