//! What only Bedrock has: `aws`, a region and an identity.
//!
//! Not here: the usual places where an identity is looked for ([`super::aws_chain`]), and signing. Nobody is asked while the configuration
//! is read: what takes a request or a program is asked later, beside the requests.

use std::sync::Arc;

use super::Compiler;
use super::aws_chain::{Chain, domain, is_region};
use super::identity::{Found, Told};
use crate::config::reader::Map;
use crate::policy::aws::{AwsIdentity, AwsSession, AwsSource, Source};
use crate::policy::identity::Identity;
use crate::policy::provider::Key;
use crate::policy::secret::Secret;

/// An API key of Bedrock, which its own tools prefer to signatures.
const BEARER_TOKEN: &str = "AWS_BEARER_TOKEN_BEDROCK";

impl Compiler<'_> {
    pub(super) fn aws(&mut self, map: &Map<'_>, aws: &Map<'_>) -> Option<Found> {
        let region = self.region(aws)?;
        let told = Told::Url(format!(
            "https://bedrock-runtime.{region}.{}",
            domain(&region)
        ));
        let given = ["access_key_id", "secret_access_key", "session_token"]
            .into_iter()
            .find(|key| aws.has(key));
        let has_keys = !map.maps("keys").is_empty();
        let found = match given {
            Some(key) if has_keys => {
                let message = "`keys` are API keys, sent as they are; an access key signs instead: remove one of the two";
                self.report.refuse(&aws.at(key), message);
                return None;
            }
            Some(_) => Found::of(Identity::Aws(self.given_aws(aws, &region)?)),
            None if has_keys => Found::keys(),
            None => self.usual_aws(map, aws, &region)?,
        };
        Some(Found { told, ..found })
    }

    /// What the usual places hold.
    fn usual_aws(&mut self, map: &Map<'_>, aws: &Map<'_>, region: &Arc<str>) -> Option<Found> {
        if let Some(token) = self.variable(BEARER_TOKEN) {
            let key = Key {
                name: "environment".into(),
                secret: Secret::new(token),
                rules: Arc::default(),
            };
            return Some(Found {
                key: Some(key),
                ..Found::keys()
            });
        }
        let is_mock = map.has("mock");
        match Chain::new(self.env, region).find() {
            // A script needs nothing that lies about.
            _ if is_mock => Some(Found::keys()),
            Ok(Some(AwsSource::Fixed(identity))) => Some(Found::of(Identity::Aws(identity))),
            Ok(Some(source)) => {
                let region = Arc::clone(region);
                Some(Found::of(Identity::AwsSession(AwsSession {
                    region,
                    source,
                })))
            }
            Ok(None) => {
                let message = "no credential: set access_key_id and secret_access_key here, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or a profile in the shared files, or give `keys`; AWS_EC2_METADATA_DISABLED keeps the instance's own from being asked";
                self.report.refuse(aws.spot(), message);
                None
            }
            Err(why) => {
                self.report.refuse(aws.spot(), why);
                None
            }
        }
    }

    fn region(&mut self, aws: &Map<'_>) -> Option<Arc<str>> {
        if aws.has("region") {
            return aws.text("region").map(Into::into);
        }
        let usual = self.variable("AWS_REGION");
        let usual = usual.or_else(|| self.variable("AWS_DEFAULT_REGION"));
        let usual = usual.or_else(|| Chain::new(self.env, &"".into()).profile_region());
        match usual {
            Some(region) if is_region(&region) => Some(region.into()),
            Some(_) => {
                let message = "AWS_REGION, AWS_DEFAULT_REGION or the profile's region is set to what is no region; set it here, e.g. us-east-1";
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
}
