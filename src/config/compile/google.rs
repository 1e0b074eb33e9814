//! What only Vertex has: `gcp`, a project and a service account.
//!
//! Not here: tokens. A key is held against its use when the configuration is read, so that a bad one is refused and not discovered later.

use std::sync::Arc;

use serde_json::Value;

use super::Compiler;
use super::identity::{Found, Told};
use crate::config::address::{is_loopback_host, parse_base_url};
use crate::config::problem::Spot;
use crate::config::reader::Map;
use crate::config::secret;
use crate::policy::identity::{Exchange, Grant, Identity};
use crate::policy::secret::Secret;
use crate::providers::jwt;

pub(super) const VERTEX: &str = "vertex";
const USUAL_FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// What is read of a service account's file.
struct Account {
    exchange: Exchange,
    project: Option<String>,
}

impl Compiler<'_> {
    pub(super) fn gcp(&mut self, map: &Map<'_>, gcp: &Map<'_>) -> Option<Found> {
        let has_keys = !map.maps("keys").is_empty();
        let account = self.account(map, gcp, has_keys);
        let location = gcp.text("location")?;
        let account = account?;
        let of_account = account.as_ref().and_then(|account| account.project.clone());
        let Some(project) = gcp.text("project").map(str::to_owned).or(of_account) else {
            if !gcp.has("project") {
                let message = "missing, and no service account names one; needed is a project's id";
                self.report.refuse(&gcp.at("project"), message);
            }
            return None;
        };
        let path = format!("/v1/projects/{project}/locations/{location}");
        let host = match location {
            "global" => "aiplatform.googleapis.com".to_owned(),
            _ => format!("{location}-aiplatform.googleapis.com"),
        };
        Some(Found {
            identity: account.map_or(Identity::Keys, |account| {
                Identity::Exchanged(account.exchange)
            }),
            told: Told::Url(format!("https://{host}{path}")),
            path: Some(path),
        })
    }

    /// The service account; `Some(None)` where keys or a script take its place, and `None` where it was refused.
    fn account(&mut self, map: &Map<'_>, gcp: &Map<'_>, has_keys: bool) -> Option<Option<Account>> {
        let spot = gcp.at("service_account");
        if let Some(source) = gcp.given_map("service_account") {
            if has_keys {
                let message = "`keys` are access tokens, sent as they are; remove them or the service account";
                self.report.refuse(&spot, message);
                return None;
            }
            let (spot, document) = secret::document(self, &source)?;
            return self.read_account(&spot, &document).map(Some);
        }
        if has_keys || gcp.has("service_account") {
            return Some(None);
        }
        if let Some(file) = self.variable(USUAL_FILE) {
            let bytes = self.read(&spot, &file)?;
            let text = String::from_utf8(bytes).unwrap_or_default();
            return self.read_account(&spot, &Secret::new(text)).map(Some);
        }
        if map.has("mock") {
            return Some(None);
        }
        let message = format!(
            "missing, and {USUAL_FILE} is not set; needed is the JSON file of a service account's key, or `keys`"
        );
        self.report.refuse(&spot, message);
        None
    }

    fn read_account(&mut self, spot: &Spot, document: &Secret) -> Option<Account> {
        match account_of(document) {
            Ok(account) => Some(account),
            Err(what) => {
                self.report
                    .refuse(spot, format!("the service account: {what}"));
                None
            }
        }
    }
}

/// Reads a service account's file. Messages repeat nothing of it but its type.
fn account_of(document: &Secret) -> Result<Account, String> {
    let file: Value =
        serde_json::from_str(document.expose()).map_err(|_| "it is not JSON".to_owned())?;
    let member = |name: &str| file.get(name).and_then(Value::as_str);
    match member("type") {
        Some("service_account") => {}
        Some("authorized_user" | "external_account" | "impersonated_service_account") | None => {
            let found = member("type").unwrap_or("missing");
            return Err(format!("its `type` is {found}; needed is service_account"));
        }
        Some(_) => return Err("its `type` is unknown; needed is service_account".to_owned()),
    }
    let needed = |name: &str| {
        member(name)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| format!("it has no `{name}`"))
    };
    let (email, audience) = (needed("client_email")?, needed("token_uri")?);
    let private_key = Secret::new(needed("private_key")?);
    jwt::check_key(&private_key).map_err(|error| format!("its `private_key` is {error}"))?;
    let endpoint =
        parse_base_url(audience).map_err(|_| "its `token_uri` is not a usable URL".to_owned())?;
    if !endpoint.tls && !is_loopback_host(&endpoint.host) {
        return Err("its `token_uri` is not https; what is sent there is worth a token".to_owned());
    }
    let project = member("project_id").filter(|project| is_project(project));
    Ok(Account {
        exchange: Exchange {
            endpoint,
            grant: Grant::ServiceAccount {
                email: email.into(),
                key_id: member("private_key_id").map(Arc::from),
                private_key,
                audience: audience.into(),
            },
        },
        project: project.map(str::to_owned),
    })
}

/// Ids of projects stand in a path.
fn is_project(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}
