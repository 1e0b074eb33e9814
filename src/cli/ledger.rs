//! `rondo ledger`: looks at the records of operations, while the gateway runs or not.
//!
//! Invariant: it reads. It makes no store and changes none.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use rondo::config::{self, Environment, ProcessEnv};
use rondo::core::settlement::State;
use rondo::core::time::WallTime;
use rondo::ledger::columns::StoredRecord;
use rondo::ledger::store::{Cursor, Query, Reader, StoreError, SumBy};
use rondo::mock::Catalog;
use rondo::policy::secret::Secret;
use rondo::policy::snapshot::LedgerStore;
use rondo::records::ask::{self, PAGE_RECORDS_MAX, Since};
use rondo::records::json::{RecordView, SumView};
use rondo::records::{self, cursor, page};
use rondo::store::look;

use super::ConfigFile;
use crate::{BAD_CONFIG, print};

/// What [`LedgerCommand::Show`] ends with when no operation has the id.
const NOT_FOUND: u8 = 1;

/// What to look at.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// List operations, the newest first
    #[command(after_help = "\
Examples:
  rondo ledger recent                              the last 20
  rondo ledger recent --since 15m --state failed   what failed in the last quarter of an hour
  rondo ledger recent --target backup --limit 100  operations that tried this target
  rondo ledger recent --json | jq .operation_id    for scripts; where more follows, stderr has `next: CURSOR`

TRIES has each attempt as target:delivery/class, as the access log does. Times are UTC.")]
    Recent {
        /// At most so many
        #[arg(long, value_name = "N", default_value = "20", value_parser = ask::limit)]
        limit: usize,
        /// Of this route
        #[arg(long, value_name = "ROUTE")]
        route: Option<String>,
        /// In this state: pending, succeeded, rejected, refused, failed, ambiguous, cancelled, timed_out, abandoned
        #[arg(long, value_name = "STATE", value_parser = ask::state)]
        state: Option<State>,
        /// With an attempt at this target
        #[arg(long, value_name = "TARGET")]
        target: Option<String>,
        /// Begun since then: a span (30s, 15m, 1h, 2d) or a time in UTC (2026-01-31T12:00:00Z)
        #[arg(long, value_name = "WHEN", value_parser = Since::parse)]
        since: Option<Since>,
        /// Older than where an earlier list ended
        #[arg(long, value_name = "CURSOR", value_parser = cursor::from_text)]
        before: Option<Cursor>,
        #[command(flatten)]
        common: Common,
    },
    /// Tell what happened to one operation
    #[command(
        long_about = "Tell what happened to one operation: each attempt in order, the end, waits, tokens.\n\n\
        ID is the x-request-id, which every answer and every line of the access log has. A client may use one twice; then each operation \
        is told, the newest first. Exit 0: found; 1: there is no such operation; 2: the store cannot be read.",
        after_help = "\
Examples:
  rondo ledger show 7f3c9a52e1b04d68               the story
  rondo ledger show 7f3c9a52e1b04d68 --json | jq   every column"
    )]
    Show {
        /// The x-request-id
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        common: Common,
    },
    /// Add up operations or attempts: how many, in which states, sends, latency, tokens
    #[command(after_help = "\
Examples:
  rondo ledger sum                                 everything, by route
  rondo ledger sum --by target --since 1h          attempts of the last hour, by target
  rondo ledger sum --by key --since 2026-01-01     tokens by provider/key, to check an invoice

By route or state operations are added up, by target or key attempts; tokens count for the attempt that answered.")]
    Sum {
        /// Grouped by route, target, key or state
        #[arg(long, value_name = "WHAT", default_value = "route", value_parser = ask::sum_by)]
        by: SumBy,
        /// Begun since then: a span (30s, 15m, 1h, 2d) or a time in UTC (2026-01-31T12:00:00Z)
        #[arg(long, value_name = "WHEN", value_parser = Since::parse)]
        since: Option<Since>,
        #[command(flatten)]
        common: Common,
    },
}

/// Where the records are, and for whom they are printed.
#[derive(Debug, Args)]
pub struct Common {
    #[command(flatten)]
    config: ConfigFile,
    /// The store itself, instead of the configuration's: a SQLite file or a postgres:// URL
    #[arg(long, value_name = "PATH|URL")]
    store: Option<String>,
    /// Print one JSON object a line, for scripts
    #[arg(long)]
    json: bool,
}

/// Looks, and prints what was found.
pub fn run(command: LedgerCommand) -> ExitCode {
    let done = match command {
        LedgerCommand::Recent {
            limit,
            route,
            state,
            target,
            since,
            before,
            common,
        } => {
            let query = Query {
                limit,
                route,
                state,
                target,
                id: None,
                since: since.map(|since| since.instant(now())),
                before,
            };
            recent(&common, &query)
        }
        LedgerCommand::Show { id, common } => show(&common, id),
        LedgerCommand::Sum { by, since, common } => sum(&common, by, since),
    };
    done.unwrap_or_else(|message| {
        eprintln!("{message}");
        ExitCode::from(BAD_CONFIG)
    })
}

fn recent(common: &Common, query: &Query) -> Result<ExitCode, String> {
    let reader = open(common)?;
    let stored = reader.find(&page::one_more(query)).map_err(unreadable)?;
    let page = page::of_store(query, stored);
    let next = page.next.as_ref().map(cursor::to_text);
    if common.json {
        print(&json_lines(&page.records));
        // Not on stdout, where every line is a record.
        next.inspect(|next| eprintln!("next: {next}"));
        return Ok(ExitCode::SUCCESS);
    }
    if page.records.is_empty() {
        return Ok(print("no operation fits\n"));
    }
    let mut text = records::list(&page.records);
    if let Some(next) = next {
        text.push_str(&format!("\nolder ones: --before {next}\n"));
    }
    Ok(print(&text))
}

fn show(common: &Common, id: String) -> Result<ExitCode, String> {
    let reader = open(common)?;
    let query = Query {
        limit: PAGE_RECORDS_MAX,
        id: Some(id),
        ..Query::default()
    };
    let found = reader.find(&query).map_err(unreadable)?;
    if found.is_empty() {
        eprintln!(
            "no operation has this id: it is not this store's, its record was deleted after ledger.keep, or it is not written yet"
        );
        return Ok(ExitCode::from(NOT_FOUND));
    }
    if common.json {
        return Ok(print(&json_lines(&found)));
    }
    let stories: Vec<String> = found.iter().map(records::story).collect();
    Ok(print(&stories.join("\n")))
}

fn sum(common: &Common, by: SumBy, since: Option<Since>) -> Result<ExitCode, String> {
    let reader = open(common)?;
    let since = since.map(|since| since.instant(now()));
    let sums = reader.sums(by, since).map_err(unreadable)?;
    if common.json {
        let lines = sums.iter().map(|sum| line(&SumView { by, sum }));
        return Ok(print(&lines.collect::<String>()));
    }
    Ok(print(&match sums.is_empty() {
        true => "no operation fits\n".to_owned(),
        false => records::sums(by, &sums),
    }))
}

fn unreadable(error: StoreError) -> String {
    format!("the store cannot be read: {error}")
}

fn json_lines(found: &[StoredRecord]) -> String {
    found
        .iter()
        .map(|record| line(&RecordView(record)))
        .collect()
}

fn line(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|error| format!("\"{error}\""));
    format!("{text}\n")
}

/// The store that is meant, and how it was named.
fn open(common: &Common) -> Result<Arc<dyn Reader>, String> {
    let (place, named) = match &common.store {
        Some(text) => (given(text), "--store".to_owned()),
        None => {
            let file = &common.config.config;
            (configured(file)?, format!("{}", file.display()))
        }
    };
    look::look(&place).map_err(|unseen| format!("{unseen}\nIt is the store of {named}."))
}

fn given(text: &str) -> LedgerStore {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    match is_url {
        true => LedgerStore::Postgres {
            url: Secret::new(text),
        },
        false => LedgerStore::Sqlite {
            path: text.to_owned(),
        },
    }
}

/// The store of a configuration. Whether its other secrets are to be had here does not matter.
fn configured(file: &Path) -> Result<LedgerStore, String> {
    let environment = Environment {
        env: &ProcessEnv,
        catalog: &Catalog,
        previous: None,
    };
    let settings = config::load_ledger(file, &environment);
    settings
        .map(|settings| settings.store)
        .map_err(|problems| format!("{problems}\nname the configuration with -c FILE, or the store itself with --store PATH|URL"))
}

fn now() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    WallTime::from_unix_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}
