//! The page for people: one file, no outside assets. It holds no data; its script asks the JSON endpoints, with the token if needed.

use hyper::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY};

use super::server::{Answer, text, with_header};

const PAGE: &str = include_str!("index.html");
/// Nothing but the page's own style, script and endpoints; the script sets values as text, never as markup.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn page() -> Answer {
    let answer = text("text/html; charset=utf-8", PAGE.to_owned());
    let answer = with_header(answer, CONTENT_SECURITY_POLICY, POLICY);
    with_header(answer, REFERRER_POLICY, "no-referrer")
}
