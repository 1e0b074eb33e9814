//! `server`, `admin` and `ledger`: what concerns the process and not one route.

use std::collections::BTreeSet;

use super::Compiler;
use crate::config::address::is_loopback_listen;
use crate::config::problem::Spot;
use crate::config::reader::Map;
use crate::config::{defaults, secret};
use crate::policy::secret::Secret;
use crate::policy::snapshot::{
    AdminSettings, Durability, LedgerSettings, LedgerStore, Listen, ListenTls, ServerSettings,
};

impl Compiler<'_> {
    pub(super) fn server(&mut self, server: &Map<'_>) -> ServerSettings {
        let body = server.number("max_request_body");
        let buffered = server.number("max_buffered_bytes");
        let sound = |key| server.sound_number(key).is_some();
        if body > buffered && sound("max_request_body") && sound("max_buffered_bytes") {
            self.report.refuse(
                &server.at("max_buffered_bytes"),
                "smaller than max_request_body, so the largest request could never be taken; raise it, or lower max_request_body",
            );
        }
        ServerSettings {
            listen: self.listeners(server),
            threads: server
                .given_number("threads")
                .and_then(|threads| usize::try_from(threads).ok())
                .unwrap_or_else(|| self.env.cores().max(1)),
            request_body_max: usize::try_from(body).unwrap_or(usize::MAX),
            buffered_bytes_max: buffered,
            shutdown_grace: server.millis("shutdown_grace_ms"),
            route_headers: server.flag("route_headers").unwrap_or_default(),
            client_read_timeout: server.millis("client_read_timeout_ms"),
            client_write_timeout: server.millis("client_write_timeout_ms"),
            client_header_timeout: server.millis("client_header_timeout_ms"),
            upload_rate_min: given(server.number("min_upload_bytes_per_second")),
            download_rate_min: given(server.number("min_download_bytes_per_second")),
            keepalive_timeout: server.millis("keepalive_timeout_ms"),
            in_flight_max: given(server.number("max_in_flight")).unwrap_or(defaults::MAX_IN_FLIGHT),
            connections_max: given(server.number("max_connections"))
                .unwrap_or(defaults::MAX_CONNECTIONS),
        }
    }

    fn listeners(&mut self, server: &Map<'_>) -> Vec<Listen> {
        if !server.has("listen") {
            return vec![Listen {
                address: defaults::LISTEN.to_owned(),
                tls: None,
            }];
        }
        let mut taken = BTreeSet::new();
        let mut listeners = Vec::new();
        for item in server.maps("listen") {
            let tls = item.given_map("tls").map(|tls| self.listen_tls(&tls));
            let Some(address) = item.text("address") else {
                continue;
            };
            if !taken.insert(address) && !is_any_port(address) {
                let message = format!("{address} is listed twice");
                self.report.refuse(&item.at("address"), message);
            }
            listeners.push(Listen {
                address: address.to_owned(),
                tls,
            });
        }
        listeners
    }

    fn listen_tls(&mut self, tls: &Map<'_>) -> ListenTls {
        let mut file = |key: &str, block: &str| {
            let Some(name) = tls.text(key) else {
                return String::new();
            };
            self.read_pem(&tls.at(key), name, block);
            self.base_dir.join(name).display().to_string()
        };
        ListenTls {
            cert: file("cert", "CERTIFICATE"),
            key: file("key", "PRIVATE KEY"),
        }
    }

    pub(super) fn admin(&mut self, admin: &Map<'_>, server: &ServerSettings) -> AdminSettings {
        let source = admin.given_map("token");
        let token = source
            .as_ref()
            .and_then(|source| secret::resolve(self, source));
        let listen = admin.text("listen").filter(|listen| *listen != "off");
        if let Some(address) = listen {
            let spot = admin.at("listen");
            if source.is_none() && !is_loopback_listen(address) {
                self.report.refuse(
                    &spot,
                    format!(
                        "{address} can be reached from outside this machine, which needs `admin.token`; \
                         set one, or listen on 127.0.0.1"
                    ),
                );
            }
            let shared = server.listen.iter().any(|listen| listen.address == address);
            if shared && !is_any_port(address) {
                self.report
                    .refuse(&spot, format!("{address} is taken by server.listen"));
            }
        }
        AdminSettings {
            listen: listen.map(str::to_owned),
            token,
        }
    }

    pub(super) fn ledger(&mut self, ledger: &Map<'_>) -> LedgerSettings {
        let store = ledger.text("store").unwrap_or(defaults::LEDGER_STORE);
        LedgerSettings {
            store: self.store(ledger, store),
            durability: match ledger.text("durability") {
                Some("strict") => Durability::Strict,
                _ => Durability::Batch,
            },
            keep: ledger.millis("keep"),
            spool_bytes_max: ledger.number("spool_max_mb").saturating_mul(1 << 20),
            state_dir: ledger.text("state_dir").map(str::to_owned),
        }
    }

    fn store(&mut self, ledger: &Map<'_>, store: &str) -> LedgerStore {
        match store {
            // What the other stores need may stay in the file while recording is off.
            "off" => LedgerStore::Off,
            "postgres" => {
                self.out_of_place(ledger, "path", "sqlite");
                let missing = Secret::new("");
                let url = match ledger.given_map("url") {
                    Some(source) => secret::resolve(self, &source).unwrap_or(missing),
                    None => {
                        self.no_url(ledger);
                        missing
                    }
                };
                LedgerStore::Postgres { url }
            }
            _ => {
                self.out_of_place(ledger, "url", "postgres");
                let path = ledger.text("path").unwrap_or(defaults::LEDGER_PATH);
                LedgerStore::Sqlite {
                    path: path.to_owned(),
                }
            }
        }
    }

    fn no_url(&mut self, ledger: &Map<'_>) {
        if !ledger.has("url") {
            let spot = Spot {
                at: ledger.spot().at,
                path: "ledger.url".to_owned(),
            };
            let message =
                "missing; store postgres needs the connection URL, e.g. { env: DATABASE_URL }";
            self.report.refuse(&spot, message);
        }
    }

    fn out_of_place(&mut self, ledger: &Map<'_>, key: &str, store: &str) {
        if ledger.has(key) {
            let message = format!("belongs to store {store}; remove it, or set `store: {store}`");
            self.report.refuse(&ledger.at(key), message);
        }
    }
}

/// Zero says that nothing is said.
fn given(number: u64) -> Option<u64> {
    Some(number).filter(|number| *number > 0)
}

/// Port 0 stands for any free port, so two such listeners do not meet.
fn is_any_port(address: &str) -> bool {
    address.ends_with(":0")
}
