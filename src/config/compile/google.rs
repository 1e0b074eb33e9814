//! What only Vertex has: `gcp`, a project and where its tokens come from: a service account's key, what GOOGLE_APPLICATION_CREDENTIALS or
//! gcloud name, else the machine's metadata server.
//!
//! Not here: tokens. A key is held against its use when the configuration is read, so that a bad one is refused and not discovered later.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::Compiler;
use super::identity::{Found, Told, is_plain};
use crate::config::address::{is_loopback_host, parse_base_url};
use crate::config::problem::Spot;
use crate::config::reader::Map;
use crate::config::secret;
use crate::policy::identity::{Exchange, Grant, Identity};
use crate::policy::provider::{BaseUrl, OwnHeader};
use crate::policy::secret::Secret;
use crate::providers::jwt;

pub(super) const VERTEX: &str = "vertex";
const USUAL_FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// Google's tools know it as the end of the search.
const NO_METADATA: &str = "NO_GCE_CHECK";
const METADATA_HOST: &str = "metadata.google.internal";
const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
/// Where consents of users are exchanged; their files need not say so.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

/// What is read of a file.
struct Account {
    exchange: Exchange,
    /// The project of a service account.
    project: Option<String>,
    /// The project that pays for what a user asks.
    quota_project: Option<String>,
}

/// The kinds of files that are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    /// Keys of service accounts.
    Accounts,
    /// These, and the consents of users.
    Usual,
}

impl Compiler<'_> {
    pub(super) fn gcp(&mut self, map: &Map<'_>, gcp: &Map<'_>) -> Option<Found> {
        let has_keys = !map.maps("keys").is_empty();
        let account = self.account(map, gcp, has_keys);
        let location = gcp.text("location")?;
        let account = account?;
        let of_account = account.as_ref().and_then(|account| account.project.clone());
        let usual = ["GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"].into_iter();
        let usual = usual.filter_map(|name| self.variable(name)).next();
        let project = gcp.text("project").map(str::to_owned).or(of_account);
        let Some(project) = project.or(usual).filter(|project| is_project(project)) else {
            if !gcp.has("project") {
                let message = "missing, and no service account names one; needed is a project's id, here or in GOOGLE_CLOUD_PROJECT";
                self.report.refuse(&gcp.at("project"), message);
            }
            return None;
        };
        let path = format!("/v1/projects/{project}/locations/{location}");
        let host = match location {
            "global" => "aiplatform.googleapis.com".to_owned(),
            _ => format!("{location}-aiplatform.googleapis.com"),
        };
        let pays = account.as_ref().and_then(|a| a.quota_project.as_deref());
        let headers = pays.map(|project| OwnHeader {
            name: "x-goog-user-project",
            value: project.into(),
        });
        Some(Found {
            told: Told::Url(format!("https://{host}{path}")),
            path: Some(path),
            headers: headers.into_iter().collect(),
            ..Found::of(account.map_or(Identity::Keys, |account| {
                Identity::Exchanged(account.exchange)
            }))
        })
    }

    /// Where tokens come from; `Some(None)` where keys or a script take its place, and `None` where it was refused.
    fn account(&mut self, map: &Map<'_>, gcp: &Map<'_>, has_keys: bool) -> Option<Option<Account>> {
        let spot = gcp.at("service_account");
        if let Some(source) = gcp.given_map("service_account") {
            if has_keys {
                let message = "`keys` are access tokens, sent as they are; remove them or the service account";
                self.report.refuse(&spot, message);
                return None;
            }
            let (spot, document) = secret::document(self, &source)?;
            return self
                .read_account(&spot, &document, Kinds::Accounts)
                .map(Some);
        }
        if has_keys || gcp.has("service_account") {
            return Some(None);
        }
        if let Some(file) = self.variable(USUAL_FILE) {
            let bytes = self.read(&spot, &file)?;
            let document = Secret::new(String::from_utf8(bytes).unwrap_or_default());
            return self.read_account(&spot, &document, Kinds::Usual).map(Some);
        }
        if map.has("mock") {
            return Some(None);
        }
        if let Some(bytes) = self.of_gcloud() {
            let document = Secret::new(String::from_utf8(bytes).unwrap_or_default());
            return self.read_account(&spot, &document, Kinds::Usual).map(Some);
        }
        self.metadata(&spot).map(Some)
    }

    /// What `gcloud auth application-default login` leaves behind.
    fn of_gcloud(&self) -> Option<Vec<u8>> {
        let folder = match self.variable("CLOUDSDK_CONFIG") {
            Some(folder) => folder,
            None => format!("{}/.config/gcloud", self.variable("HOME")?),
        };
        let file = format!("{folder}/application_default_credentials.json");
        self.env.read(Path::new(&file)).ok()
    }

    /// The server that knows the machine. Whether there is one shows only when it is asked.
    fn metadata(&mut self, spot: &Spot) -> Option<Account> {
        if self
            .variable(NO_METADATA)
            .is_some_and(|text| text == "true")
        {
            let message = format!(
                "missing, {USUAL_FILE} is not set, gcloud has left nothing, and {NO_METADATA} keeps the metadata server from being asked; needed is the JSON file of a service account's key, or `keys`"
            );
            self.report.refuse(spot, message);
            return None;
        }
        const VARIABLE: &str = "GCE_METADATA_HOST";
        let host = self.variable(VARIABLE);
        let host = host.unwrap_or_else(|| METADATA_HOST.to_owned());
        match parse_base_url(&format!("http://{host}{METADATA_PATH}")) {
            Ok(endpoint) => Some(Account {
                exchange: Exchange {
                    endpoint,
                    grant: Grant::MetadataServer,
                },
                project: None,
                quota_project: None,
            }),
            Err(why) => {
                self.report.refuse(spot, format!("{VARIABLE}: {why}"));
                None
            }
        }
    }

    fn read_account(&mut self, spot: &Spot, document: &Secret, kinds: Kinds) -> Option<Account> {
        match account_of(document, kinds) {
            Ok(account) => Some(account),
            Err(what) => {
                let name = match kinds {
                    Kinds::Accounts => "the service account",
                    Kinds::Usual => "the credentials file",
                };
                self.report.refuse(spot, format!("{name}: {what}"));
                None
            }
        }
    }
}

/// Reads a file of credentials. Messages repeat nothing of it but its type.
fn account_of(document: &Secret, kinds: Kinds) -> Result<Account, String> {
    let file: Value =
        serde_json::from_str(document.expose()).map_err(|_| "it is not JSON".to_owned())?;
    let needed = match kinds {
        Kinds::Accounts => "needed is service_account",
        Kinds::Usual => "needed is service_account or authorized_user",
    };
    let kind = file.get("type").and_then(Value::as_str);
    match (kind, kinds) {
        (Some("service_account"), _) => service_account(&file),
        (Some("authorized_user"), Kinds::Usual) => authorized_user(&file),
        (Some("external_account" | "external_account_authorized_user"), _) => Err(format!(
            "its `type` is external_account: workload identity federation is not supported; {needed}, or a machine whose metadata server has a service account"
        )),
        (Some("authorized_user" | "impersonated_service_account") | None, _) => {
            let found = kind.unwrap_or("missing");
            Err(format!("its `type` is {found}; {needed}"))
        }
        (Some(_), _) => Err(format!("its `type` is unknown; {needed}")),
    }
}

fn member<'f>(file: &'f Value, name: &str) -> Result<&'f str, String> {
    let found = file.get(name).and_then(Value::as_str);
    found
        .filter(|text| !text.is_empty())
        .ok_or_else(|| format!("it has no `{name}`"))
}

fn service_account(file: &Value) -> Result<Account, String> {
    let (email, audience) = (member(file, "client_email")?, member(file, "token_uri")?);
    let private_key = Secret::new(member(file, "private_key")?);
    jwt::check_key(&private_key).map_err(|error| format!("its `private_key` is {error}"))?;
    let project = member(file, "project_id").ok();
    let project = project.filter(|project| is_project(project));
    Ok(Account {
        exchange: Exchange {
            endpoint: endpoint(audience)?,
            grant: Grant::ServiceAccount {
                email: email.into(),
                key_id: member(file, "private_key_id").ok().map(Arc::from),
                private_key,
                audience: audience.into(),
            },
        },
        project: project.map(str::to_owned),
        quota_project: None,
    })
}

fn authorized_user(file: &Value) -> Result<Account, String> {
    let uri = member(file, "token_uri").unwrap_or(TOKEN_URI);
    let quota_project = member(file, "quota_project_id").ok();
    let quota_project = quota_project.filter(|project| is_project(project) && is_plain(project));
    Ok(Account {
        exchange: Exchange {
            endpoint: endpoint(uri)?,
            grant: Grant::RefreshToken {
                client_id: member(file, "client_id")?.into(),
                client_secret: Secret::new(member(file, "client_secret")?),
                refresh_token: Secret::new(member(file, "refresh_token")?),
            },
        },
        project: None,
        quota_project: quota_project.map(str::to_owned),
    })
}

fn endpoint(uri: &str) -> Result<BaseUrl, String> {
    let endpoint =
        parse_base_url(uri).map_err(|_| "its `token_uri` is not a usable URL".to_owned())?;
    if !endpoint.tls && !is_loopback_host(&endpoint.host) {
        return Err("its `token_uri` is not https; what is sent there is worth a token".to_owned());
    }
    Ok(endpoint)
}

/// Ids of projects stand in a path. Old ones have a domain before a colon.
fn is_project(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}
