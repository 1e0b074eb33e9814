//! What stands in for a key: `aws`.
//!
//! Not here: signing. An identity is looked up when the configuration is read, so a reload finds a changed one. Instance metadata,
//! single sign-on and assumed roles are not asked: that takes requests, and renewals between them.

use std::path::Path;
use std::sync::Arc;

use super::Compiler;
use super::github::COPILOT;
use super::google::VERTEX;
use crate::config::reader::Map;
use crate::config::secret;
use crate::policy::identity::{AwsIdentity, Identity, Source};
use crate::policy::secret::Secret;

const BEDROCK: &str = "bedrock";

/// An identity, and the address that its settings tell.
pub(super) struct Found {
    pub identity: Identity,
    pub told: Told,
    /// The path of an address that has none.
    pub path: Option<String>,
}

/// What settings beside `base_url` tell of the provider's address.
#[derive(Clone)]
pub(super) enum Told {
    Url(String),
    Nothing,
    Refused,
}

impl Found {
    pub fn keys() -> Found {
        Found {
            identity: Identity::Keys,
            told: Told::Nothing,
            path: None,
        }
    }
}

impl Compiler<'_> {
    /// What the provider is shown. `None` where it was refused.
    pub(super) fn identity(
        &mut self,
        map: &Map<'_>,
        adapter: Option<&'static str>,
    ) -> Option<Found> {
        self.only_of(map, adapter, "aws", BEDROCK);
        self.only_of(map, adapter, "gcp", VERTEX);
        self.only_of(map, adapter, "copilot", COPILOT);
        if adapter == Some(COPILOT)
            && let Some(copilot) = map.given_map("copilot")
        {
            return self.copilot(map, &copilot);
        }
        if adapter == Some(VERTEX)
            && let Some(gcp) = map.given_map("gcp")
        {
            return self.gcp(map, &gcp);
        }
        match map.given_map("aws") {
            Some(aws) if adapter == Some(BEDROCK) => self.aws(map, &aws),
            Some(_) | None => Some(Found::keys()),
        }
    }

    /// Refuses a key at an adapter where it would do nothing.
    fn only_of(
        &mut self,
        map: &Map<'_>,
        adapter: Option<&'static str>,
        key: &str,
        owner: &'static str,
    ) {
        if let Some(adapter) = adapter.filter(|adapter| *adapter != owner)
            && map.has(key)
        {
            let message = format!("only adapter {owner} has this; {adapter} has not");
            self.report.refuse(&map.at(key), message);
        }
    }

    fn aws(&mut self, map: &Map<'_>, aws: &Map<'_>) -> Option<Found> {
        let region = self.region(aws)?;
        let domain = match region.starts_with("cn-") {
            true => "amazonaws.com.cn",
            false => "amazonaws.com",
        };
        let told = Told::Url(format!("https://bedrock-runtime.{region}.{domain}"));
        let given = ["access_key_id", "secret_access_key", "session_token"]
            .into_iter()
            .find(|key| aws.has(key));
        let has_keys = !map.maps("keys").is_empty();
        let identity = match given {
            Some(key) if has_keys => {
                let message = "`keys` are API keys, sent as they are; an access key signs instead: remove one of the two";
                self.report.refuse(&aws.at(key), message);
                return None;
            }
            Some(_) => Identity::Aws(self.given_aws(aws, &region)?),
            None if has_keys => Identity::Keys,
            None => match self.usual_aws(&region) {
                Some(found) => Identity::Aws(found),
                None if map.has("mock") => Identity::Keys,
                None => {
                    let message = format!(
                        "no credential: set access_key_id and secret_access_key here, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or the profile {} in the shared credentials file; or give `keys`",
                        self.profile()
                    );
                    self.report.refuse(aws.spot(), message);
                    return None;
                }
            },
        };
        let path = None;
        Some(Found {
            identity,
            told,
            path,
        })
    }

    fn region(&mut self, aws: &Map<'_>) -> Option<Arc<str>> {
        if aws.has("region") {
            return aws.text("region").map(Into::into);
        }
        let usual = self.variable("AWS_REGION");
        match usual.or_else(|| self.variable("AWS_DEFAULT_REGION")) {
            Some(region) if is_region(&region) => Some(region.into()),
            Some(_) => {
                let message = "AWS_REGION or AWS_DEFAULT_REGION is set to what is no region; set it here, e.g. us-east-1";
                self.report.refuse(&aws.at("region"), message);
                None
            }
            None => {
                let message = "missing, and neither AWS_REGION nor AWS_DEFAULT_REGION is set; needed is a region such as us-east-1";
                self.report.refuse(&aws.at("region"), message);
                None
            }
        }
    }

    /// The credentials that the file names. Temporary ones have a session token, too.
    fn given_aws(&mut self, aws: &Map<'_>, region: &Arc<str>) -> Option<AwsIdentity> {
        let mut complete = true;
        for key in ["access_key_id", "secret_access_key"] {
            if !aws.has(key) {
                let message = "missing; access_key_id and secret_access_key go together";
                self.report.refuse(&aws.at(key), message);
                complete = false;
            }
        }
        let access_key_id = self.secret_of(aws, "access_key_id");
        let secret_access_key = self.secret_of(aws, "secret_access_key");
        let session_token = self.secret_of(aws, "session_token");
        let missing = aws.has("session_token") && session_token.is_none();
        (complete && !missing).then_some(())?;
        Some(AwsIdentity {
            region: Arc::clone(region),
            access_key_id: access_key_id?,
            secret_access_key: secret_access_key?,
            session_token,
            source: Source::Configuration,
        })
    }

    pub(super) fn secret_of(&mut self, map: &Map<'_>, key: &str) -> Option<Secret> {
        let source = map.given_map(key)?;
        secret::resolve(self, &source)
    }

    /// Where AWS's own tools look, as far as it takes no request: the environment, then the shared credentials file.
    fn usual_aws(&self, region: &Arc<str>) -> Option<AwsIdentity> {
        let of = |id: String, secret: String, token: Option<String>, source| AwsIdentity {
            region: Arc::clone(region),
            access_key_id: Secret::new(id),
            secret_access_key: Secret::new(secret),
            session_token: token.map(Secret::new),
            source,
        };
        let id = self.variable("AWS_ACCESS_KEY_ID");
        if let (Some(id), Some(secret)) = (id, self.variable("AWS_SECRET_ACCESS_KEY")) {
            let token = self.variable("AWS_SESSION_TOKEN");
            return Some(of(id, secret, token, Source::Environment));
        }
        let file = match self.variable("AWS_SHARED_CREDENTIALS_FILE") {
            Some(file) => file,
            None => format!("{}/.aws/credentials", self.variable("HOME")?),
        };
        let text = String::from_utf8(self.env.read(Path::new(&file)).ok()?).ok()?;
        let profile = self.profile();
        let setting = |key| setting_of(&text, &profile, key).filter(|value| is_plain(value));
        let (id, secret) = (
            setting("aws_access_key_id")?,
            setting("aws_secret_access_key")?,
        );
        let token = setting("aws_session_token");
        Some(of(
            id,
            secret,
            token,
            Source::Profile(profile.as_str().into()),
        ))
    }

    fn profile(&self) -> String {
        self.variable("AWS_PROFILE")
            .unwrap_or_else(|| "default".to_owned())
    }

    /// A variable that holds something a header can carry.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let text = self.env.var(name)?;
        let text = text.trim();
        is_plain(text).then(|| text.to_owned())
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

fn is_region(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// The value of a key in the section of a profile: `[name]`, then `key = value` lines.
fn setting_of(text: &str, profile: &str, key: &str) -> Option<String> {
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            inside = section.trim() == profile;
        } else if inside
            && let Some((name, value)) = line.split_once('=')
            && name.trim().eq_ignore_ascii_case(key)
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}
