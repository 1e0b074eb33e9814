//! The `rondo` binary: reads the command line and calls the library.

mod cli;

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use rondo::app::App;
use rondo::app::catalog::Catalog;
use rondo::app::daemon;
use rondo::app::health;
use rondo::app::server::{self, StartOptions};
use rondo::app::signals::Signals;
use rondo::config::{self, Environment, ProcessEnv};
use rondo::explain::{self, Request};
use rondo::mock::run_standalone;
use tokio::runtime::{Builder, Runtime};

use cli::{Cli, Command};

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
                model: &model,
                api,
                body: body.as_deref(),
                stream,
                headers: &headers,
            };
            explain(&config.config, &request, json)
        }
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
    match server::run(&app, &background, signals, start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
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
    let explanation = match explain::explain(&loaded.snapshot, request) {
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
