//! The two files that AWS's tools share: `~/.aws/credentials` and `~/.aws/config`.
//!
//! Not here: what a setting means. A file that is not there, or is no text, has no settings.

use std::path::Path;

use super::identity::is_plain;
use crate::config::Env;

/// Both files.
pub(super) struct Profiles {
    credentials: String,
    config: String,
}

impl Profiles {
    pub fn read(env: &dyn Env) -> Profiles {
        let text = |variable: &str, usual: &str| {
            let named = env.var(variable).filter(|file| !file.is_empty());
            let file = match named {
                Some(file) => file,
                None => format!("{}/.aws/{usual}", env.var("HOME")?),
            };
            String::from_utf8(env.read(Path::new(&file)).ok()?).ok()
        };
        Profiles {
            credentials: text("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default(),
            config: text("AWS_CONFIG_FILE", "config").unwrap_or_default(),
        }
    }

    /// Whether a profile stands in one of the files.
    pub fn has(&self, profile: &str) -> bool {
        let in_credentials = self.credentials.lines().filter_map(section);
        let in_config = self.config.lines().filter_map(section);
        in_credentials
            .chain(in_config.filter_map(profile_of))
            .any(|name| name == profile)
    }

    /// A setting of a profile: that of the credentials file, else that of the other.
    pub fn setting(&self, profile: &str, key: &str) -> Option<String> {
        let found = setting_of(&self.credentials, key, |name| name == profile);
        found.or_else(|| setting_of(&self.config, key, |name| profile_of(name) == Some(profile)))
    }
}

/// The name in `[name]`.
fn section(line: &str) -> Option<&str> {
    let inside = line.trim().strip_prefix('[')?;
    inside.split_once(']').map(|(name, _)| name.trim())
}

/// The profile of a section of the configuration file: `default`, or `profile name`. There are sections of other kinds.
fn profile_of(section: &str) -> Option<&str> {
    if section == "default" {
        return Some(section);
    }
    let name = section.strip_prefix("profile")?;
    let is_parted = name.starts_with([' ', '\t']);
    is_parted.then(|| name.trim().trim_matches(['"', '\'']))
}

/// The value of a key in the first section with such a name that has it: `key = value` lines. Indented lines belong to another key.
fn setting_of(text: &str, key: &str, is_wanted: impl Fn(&str) -> bool) -> Option<String> {
    let mut inside = false;
    for line in text.lines() {
        if let Some(name) = section(line) {
            inside = is_wanted(name);
        } else if inside
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((name, value)) = line.split_once('=')
            && name.trim().eq_ignore_ascii_case(key)
        {
            return Some(value.trim().to_owned()).filter(|value| is_plain(value));
        }
    }
    None
}
