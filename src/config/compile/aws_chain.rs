//! Where AWS's own tools look for an identity, in their order: the environment, the profile, a web identity, the container's agent, the
//! instance.
//!
//! Not here: asking any of them, and reading the shared files ([`super::aws_profile`]). A place that holds half of what it takes, or what
//! is not supported, is refused and not passed over: the next place would be another identity than the one that was meant.

use std::sync::Arc;

use super::aws_profile::Profiles;
use super::identity::is_plain;
use crate::config::Env;
use crate::config::address::{is_loopback_host, parse_base_url};
use crate::policy::aws::{
    AwsAuthorization, AwsContainer, AwsIdentity, AwsProcess, AwsRole, AwsSource, AwsWebIdentity,
    Source,
};
use crate::policy::provider::BaseUrl;
use crate::policy::secret::Secret;

/// Roles that are assumed one with another. Real chains have two.
const ROLES_MAX: usize = 5;
/// The name of sessions that have none.
const SESSION_NAME: &str = "rondo";
/// The agents of ECS, of EKS, and of EKS over IPv6: the hosts that may be asked in clear text beside this machine.
const AGENTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// What is looked through.
pub(super) struct Chain<'a> {
    env: &'a dyn Env,
    region: Arc<str>,
    profiles: Profiles,
}

impl<'a> Chain<'a> {
    pub fn new(env: &'a dyn Env, region: &Arc<str>) -> Chain<'a> {
        Chain {
            env,
            region: Arc::clone(region),
            profiles: Profiles::read(env),
        }
    }

    /// The region of the profile.
    pub fn profile_region(&self) -> Option<String> {
        self.profiles.setting(&self.profile(), "region")
    }

    /// The first that is there. An error says what is wrong with it.
    pub fn find(&self) -> Result<Option<AwsSource>, String> {
        if let Some(found) = self.environment() {
            return Ok(Some(found));
        }
        let profile = self.profile();
        if self.variable("AWS_PROFILE").is_some() && !self.profiles.has(&profile) {
            return Err(format!(
                "AWS_PROFILE names the profile {profile}, which is in neither of the shared files"
            ));
        }
        if let Some(found) = self.of_profile(&profile, &mut Vec::new())? {
            return Ok(Some(found));
        }
        if let Some(found) = self.web_identity()? {
            return Ok(Some(found));
        }
        if let Some(found) = self.container()? {
            return Ok(Some(found));
        }
        self.instance()
    }

    fn profile(&self) -> String {
        let usual = || "default".to_owned();
        self.variable("AWS_PROFILE").unwrap_or_else(usual)
    }

    fn variable(&self, name: &str) -> Option<String> {
        let text = self.env.var(name)?;
        let text = text.trim();
        is_plain(text).then(|| text.to_owned())
    }

    fn environment(&self) -> Option<AwsSource> {
        Some(self.fixed(
            self.variable("AWS_ACCESS_KEY_ID")?,
            self.variable("AWS_SECRET_ACCESS_KEY")?,
            self.variable("AWS_SESSION_TOKEN"),
            Source::Environment,
        ))
    }

    fn fixed(&self, id: String, secret: String, token: Option<String>, from: Source) -> AwsSource {
        AwsSource::Fixed(AwsIdentity {
            region: Arc::clone(&self.region),
            access_key_id: Secret::new(id),
            secret_access_key: Secret::new(secret),
            session_token: token.map(Secret::new),
            source: from,
        })
    }

    /// What a profile says. `roles` are the profiles whose roles are to be assumed with it.
    fn of_profile(
        &self,
        profile: &str,
        roles: &mut Vec<String>,
    ) -> Result<Option<AwsSource>, String> {
        let setting = |key| self.profiles.setting(profile, key);
        if let Some(arn) = setting("role_arn")
            && !roles.iter().any(|known| known == profile)
        {
            return self.role(profile, arn, roles).map(Some);
        }
        let sso = ["sso_session", "sso_start_url", "login_session"];
        if let Some(key) = sso.into_iter().find(|key| setting(key).is_some()) {
            return Err(format!(
                "the profile {profile} signs in by {key}, which takes a person; give it a credential_process such as `aws configure export-credentials --profile {profile} --format process`"
            ));
        }
        if let Some(found) = self.of_profile_keys(profile) {
            return Ok(Some(found));
        }
        let Some(command) = setting("credential_process") else {
            return Ok(None);
        };
        let words = words(&command).ok_or_else(|| {
            format!("the credential_process of the profile {profile} has a quote that does not end, or no word")
        })?;
        Ok(Some(AwsSource::Process(AwsProcess {
            words: words.into_iter().map(Secret::new).collect(),
            profile: profile.into(),
        })))
    }

    fn of_profile_keys(&self, profile: &str) -> Option<AwsSource> {
        let setting = |key| self.profiles.setting(profile, key);
        Some(self.fixed(
            setting("aws_access_key_id")?,
            setting("aws_secret_access_key")?,
            setting("aws_session_token"),
            Source::Profile(profile.into()),
        ))
    }

    fn role(
        &self,
        profile: &str,
        arn: String,
        roles: &mut Vec<String>,
    ) -> Result<AwsSource, String> {
        let setting = |key| self.profiles.setting(profile, key);
        let session_name = setting("role_session_name").unwrap_or_else(|| SESSION_NAME.to_owned());
        let endpoint = self.token_service()?;
        if let Some(file) = setting("web_identity_token_file") {
            return Ok(AwsSource::WebIdentity(AwsWebIdentity {
                endpoint,
                arn: arn.into(),
                session_name: session_name.into(),
                token_file: file.into(),
            }));
        }
        if setting("mfa_serial").is_some() {
            return Err(format!(
                "the role of the profile {profile} wants a code of mfa_serial, which takes a person"
            ));
        }
        roles.push(profile.to_owned());
        if roles.len() > ROLES_MAX {
            return Err(format!(
                "the profile {profile} is the end of a chain of more than {ROLES_MAX} roles"
            ));
        }
        let base = self.base(profile, roles)?;
        Ok(AwsSource::Role(Box::new(AwsRole {
            endpoint,
            arn: arn.into(),
            session_name: session_name.into(),
            external_id: setting("external_id").map(Secret::new),
            base,
        })))
    }

    /// Who assumes the role of a profile.
    fn base(&self, profile: &str, roles: &mut Vec<String>) -> Result<AwsSource, String> {
        let setting = |key| self.profiles.setting(profile, key);
        let nothing = |what: &str| format!("the role of the profile {profile}: {what}");
        if let Some(source) = setting("source_profile") {
            if roles.contains(&source) {
                // A profile may lend its own keys to its role; anything else would go round in a circle.
                let own = self.of_profile_keys(&source);
                return own.ok_or_else(|| {
                    nothing(&format!("its source_profile {source} leads back to it"))
                });
            }
            let found = self.of_profile(&source, roles)?;
            return found
                .ok_or_else(|| nothing(&format!("its source_profile {source} has no credential")));
        }
        let found = match setting("credential_source").as_deref() {
            Some("Environment") => self.environment(),
            Some("Ec2InstanceMetadata") => self.instance()?,
            Some("EcsContainer") => self.container()?,
            Some(_) => {
                return Err(nothing(
                    "its credential_source is none of Environment, Ec2InstanceMetadata, EcsContainer",
                ));
            }
            None => {
                return Err(nothing(
                    "it has neither source_profile nor credential_source",
                ));
            }
        };
        found.ok_or_else(|| nothing("its credential_source has no credential"))
    }

    fn web_identity(&self) -> Result<Option<AwsSource>, String> {
        let Some(file) = self.variable("AWS_WEB_IDENTITY_TOKEN_FILE") else {
            return Ok(None);
        };
        let Some(arn) = self.variable("AWS_ROLE_ARN") else {
            return Err("AWS_WEB_IDENTITY_TOKEN_FILE is set, AWS_ROLE_ARN is not".to_owned());
        };
        let name = self.variable("AWS_ROLE_SESSION_NAME");
        let name = name.unwrap_or_else(|| SESSION_NAME.to_owned());
        Ok(Some(AwsSource::WebIdentity(AwsWebIdentity {
            endpoint: self.token_service()?,
            arn: arn.into(),
            session_name: name.into(),
            token_file: file.into(),
        })))
    }

    fn token_service(&self) -> Result<BaseUrl, String> {
        const VARIABLE: &str = "AWS_ENDPOINT_URL_STS";
        let Some(url) = self.variable(VARIABLE) else {
            let region = &self.region;
            return parse_base_url(&format!("https://sts.{region}.{}", domain(region)));
        };
        let endpoint = parse_base_url(&url).map_err(|why| format!("{VARIABLE}: {why}"))?;
        if endpoint.tls || is_loopback_host(&endpoint.host) {
            return Ok(endpoint);
        }
        Err(format!(
            "{VARIABLE} is not https; what is answered there is worth an identity"
        ))
    }

    fn container(&self) -> Result<Option<AwsSource>, String> {
        const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        let relative = self.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let url = match (relative, self.variable(FULL)) {
            (Some(path), _) => format!("http://169.254.170.2{path}"),
            (None, Some(url)) => url,
            (None, None) => return Ok(None),
        };
        let scheme = url.find("://").map_or(0, |at| at + 3);
        let cut = |from: usize, mark: &[char]| {
            let rest = url.get(from..).unwrap_or("");
            rest.find(mark).map_or(url.len(), |at| from + at)
        };
        let path = match url.get(cut(scheme, &['/', '?'])..).unwrap_or("") {
            "" => "/".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        let host = url.get(..cut(scheme, &['/', '?'])).unwrap_or("");
        let endpoint =
            parse_base_url(host).map_err(|why| format!("the container's agent: {why}"))?;
        let is_near = is_loopback_host(&endpoint.host) || AGENTS.contains(&&*endpoint.host);
        if !endpoint.tls && !is_near {
            return Err(format!(
                "{FULL} is not https and leads away from this machine"
            ));
        }
        let file = self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        let token = self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        let authorization = match (file, token) {
            (Some(file), _) => Some(AwsAuthorization::File(file.into())),
            (None, token) => token.map(|token| AwsAuthorization::Token(Secret::new(token))),
        };
        Ok(Some(AwsSource::Container(AwsContainer {
            endpoint,
            path: Secret::new(path),
            authorization,
        })))
    }

    /// The instance is the last to be asked, since whether there is one shows only then.
    fn instance(&self) -> Result<Option<AwsSource>, String> {
        const VARIABLE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
        let disabled = self.variable("AWS_EC2_METADATA_DISABLED");
        if disabled.is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let mode = self.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
        let usual = match mode.is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6")) {
            true => "http://[fd00:ec2::254]",
            false => "http://169.254.169.254",
        };
        let url = self.variable(VARIABLE).unwrap_or_else(|| usual.to_owned());
        let endpoint = parse_base_url(&url).map_err(|why| format!("{VARIABLE}: {why}"))?;
        Ok(Some(AwsSource::Instance(endpoint)))
    }
}

/// The domain of a region's services.
pub(super) fn domain(region: &str) -> &'static str {
    match region.starts_with("cn-") {
        true => "amazonaws.com.cn",
        false => "amazonaws.com",
    }
}

pub(super) fn is_region(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// The words of a command line: parted by spaces, held together by quotes; a backslash takes the next character as it is. No shell reads
/// them. `None` when there is no word, or a quote does not end.
fn words(command: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = command.chars();
    while let Some(char) = chars.next() {
        match (char, quote) {
            (_, Some(open)) if char == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().push(chars.next()?),
            (_, Some(_)) => word.get_or_insert_default().push(char),
            ('"' | '\'', None) => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (' ' | '\t', None) => words.extend(word.take()),
            (_, None) => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    (quote.is_none() && words.first().is_some_and(|first| !first.is_empty())).then_some(words)
}
