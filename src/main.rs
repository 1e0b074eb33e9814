//! The `rondo` binary: reads the command line and calls the library.

mod cli;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use rondo::app::App;
use rondo::app::daemon;
use rondo::app::health;
use rondo::app::server::{self, ServeError, StartOptions};
use rondo::app::signals::Signals;
use rondo::config::{self, Env, Environment, ProcessEnv};
use rondo::explain::{self, Request};
use rondo::mock::{Catalog, run_standalone};
use rondo::providers::corpus::{self, Known, LINE_BYTES_MAX};
use tokio::runtime::{Builder, Runtime};

use cli::{Cli, Command};

/// How it is set up stands in `.cargo/config.toml`: memory that was freed goes back to the system soon.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The exit status for a configuration that cannot be used.
const BAD_CONFIG: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    rondo::telemetry::logger::init();
    match cli.command {
        Command::Run {
            config,
            upgrade,
            daemon,
        } => {
            if daemon {
                run_detached(&config.config)
            } else {
                run(&config.config, StartOptions { upgrade })
            }
        }
        Command::Check { config } => check(&config.config),
        Command::Explain {
            config,
            model,
            api,
            body,
            stream,
            headers,
            client_key,
            json,
        } => {
            let body = match body.as_deref().map(read_body).transpose() {
                Ok(body) => body,
                Err(error) => {
                    eprintln!("{error}");
                    return ExitCode::from(BAD_CONFIG);
                }
            };
            let request = Request {
                wall: ProcessEnv.wall(),
                model: &model,
                api,
                body: body.as_deref(),
                stream,
                headers: &headers,
                client_key: client_key.as_deref(),
            };
            explain(&config.config, &request, json)
        }
        Command::Classify {
            adapter,
            api,
            json,
            file,
        } => classify(&file, &Known { adapter, api }, json),
        Command::Ledger { command } => cli::ledger::run(command),
        Command::Schema => print(&format!("{:#}\n", config::json_schema())),
        Command::Mock { config } => mock(&config),
        Command::Health { url } => is_well(&url),
    }
}

fn run(file: &Path, start: StartOptions) -> ExitCode {
    let Some(background) = runtime() else {
        return ExitCode::FAILURE;
    };
    let signals = match Signals::install(&background) {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("cannot watch signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let app = match background.block_on(App::load(file.to_owned(), background.handle())) {
        Ok(app) => app,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let served = server::run(&app, &background, signals, start);
    // After SIGINT the runtimes have dropped their requests by now; after a drain this was done before.
    app.finish_records();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ ServeError::Listen { .. }) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Err(error @ ServeError::Tls { .. }) => {
            eprintln!("{error}");
            ExitCode::from(BAD_CONFIG)
        }
    }
}

/// Says of a bad configuration here, where somebody reads it; the process in the background reads it again.
fn run_detached(file: &Path) -> ExitCode {
    let environment = Environment {
        env: &ProcessEnv,
        catalog: &Catalog,
        previous: None,
    };
    if let Err(problems) = config::load(file, &environment) {
        eprintln!("{problems}");
        return ExitCode::from(BAD_CONFIG);
    }
    match daemon::start_again_without("--daemon") {
        Ok(id) => print(&format!("{id}\n")),
        Err(error) => {
            eprintln!("cannot start the process: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(file: &Path) -> ExitCode {
    let environment = Environment {
        env: &ProcessEnv,
        catalog: &Catalog,
        previous: None,
    };
    match config::load(file, &environment) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                eprintln!("{warning}");
            }
            let snapshot = &loaded.snapshot;
            let (routes, providers) = (snapshot.routes.len(), snapshot.providers.len());
            print(&format!(
                "{}: good: {routes} routes, {providers} providers\n",
                file.display()
            ))
        }
        Err(problems) => {
            eprintln!("{problems}");
            ExitCode::from(BAD_CONFIG)
        }
    }
}

/// Prints the plan for a request. A request that cannot be served ends as a bad configuration does, so that scripts notice.
fn explain(file: &Path, request: &Request<'_>, json: bool) -> ExitCode {
    let environment = Environment {
        env: &ProcessEnv,
        catalog: &Catalog,
        previous: None,
    };
    let loaded = match config::load(file, &environment) {
        Ok(loaded) => loaded,
        Err(problems) => {
            eprintln!("{problems}");
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let explanation = match explain::explain(&loaded.snapshot, request, None) {
        Ok(explanation) => explanation,
        Err(unexplained) => {
            eprintln!("{unexplained}");
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let printed = match json {
        true => print(&format!("{:#}\n", explain::to_json(&explanation))),
        false => print(&explain::to_text(&explanation)),
    };
    if explanation.is_servable() {
        printed
    } else {
        ExitCode::from(BAD_CONFIG)
    }
}

/// Prints the verdict on each line of a file as it is read. A line that cannot be read is said, and the others follow.
fn classify(file: &Path, known: &Known, json: bool) -> ExitCode {
    let mut reader: Box<dyn BufRead> = match file.to_str() {
        Some("-") => Box::new(std::io::stdin().lock()),
        _ => match File::open(file) {
            Ok(file) => Box::new(BufReader::new(file)),
            Err(error) => {
                eprintln!("{}: {error}", file.display());
                return ExitCode::from(BAD_CONFIG);
            }
        },
    };
    if !json {
        print(&format!("{}\n", corpus::heading()));
    }
    let mut exit = ExitCode::SUCCESS;
    for number in 1.. {
        let line = match read_line(&mut reader) {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => {
                eprintln!("{}:{number}: {error}", file.display());
                return ExitCode::from(BAD_CONFIG);
            }
        };
        if line.trim_ascii().is_empty() {
            continue;
        }
        match corpus::read(&line).and_then(|row| corpus::judge(&row, known)) {
            Ok(judged) if json => print(&format!("{}\n", corpus::to_json(&judged, number))),
            Ok(judged) => print(&format!("{}\n", corpus::to_text(&judged, number))),
            Err(bad) => {
                eprintln!("{}:{number}: {bad}", file.display());
                exit = ExitCode::from(BAD_CONFIG);
                continue;
            }
        };
    }
    exit
}

/// The next line without its end, or `None` at the end of the file. Of a line that is too long only so much is kept that it is seen.
fn read_line(reader: &mut dyn BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let most = u64::try_from(LINE_BYTES_MAX)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut line = Vec::new();
    if Read::take(&mut *reader, most).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > LINE_BYTES_MAX {
        skip_line(reader)?;
    }
    Ok(Some(line))
}

fn skip_line(reader: &mut dyn BufRead) -> std::io::Result<()> {
    loop {
        let held = reader.fill_buf()?;
        let (used, found) = match held.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end.saturating_add(1), true),
            None => (held.len(), held.is_empty()),
        };
        reader.consume(used);
        if found {
            return Ok(());
        }
    }
}

fn read_body(file: &Path) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().lock().read_to_end(&mut body).map(|_| body),
        _ => std::fs::read(file),
    };
    read.map_err(|error| format!("{}: {error}", file.display()))
}

fn mock(file: &Path) -> ExitCode {
    let Some(runtime) = runtime() else {
        return ExitCode::FAILURE;
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let listening = |servers: &[(String, std::net::SocketAddr)]| {
        for (name, address) in servers {
            print(&format!("{name}: http://{address}\n"));
        }
    };
    match runtime.block_on(run_standalone(&text, listening)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            ExitCode::from(BAD_CONFIG)
        }
    }
}

fn is_well(url: &str) -> ExitCode {
    match health::ask(url) {
        Ok(status) => print(&format!("{url}: {status}\n")),
        Err(unwell) => {
            eprintln!("{url}: {unwell}");
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> Option<Runtime> {
    match Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
    {
        Ok(runtime) => Some(runtime),
        Err(error) => {
            eprintln!("cannot start the runtime: {error}");
            None
        }
    }
}

/// Prints to stdout. A reader that has closed it, like `head`, is no failure.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    ExitCode::SUCCESS
}
