//! Small translations between Pingora's types and ours.

use http::HeaderMap;

use crate::providers::answer::HeaderLookup;

/// Response headers as the adapters look them up.
pub struct Headers<'a>(pub &'a HeaderMap);

impl HeaderLookup for Headers<'_> {
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(|value| value.as_bytes())
    }

    fn lines(&self, name: &str) -> usize {
        self.0.get_all(name).iter().count()
    }
}
