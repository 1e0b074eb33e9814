//! What a provider is to the gateway: where it is, how it authenticates, and its tables.
//!
//! Not here: paths and headers of requests ([`super::outbound`], [`super::outbound_headers`]), answers being judged. An adapter is data, so a new one is a file of constants.

use super::outbound_headers::AuthScheme;
use super::pushback::DelaySource;
use super::request_style::RequestStyle;
use super::rules::{Kind, Path, Rule};
use crate::core::api::ApiSet;

/// One kind of provider.
#[derive(Debug)]
pub struct Adapter {
    /// Name in the configuration.
    pub name: &'static str,
    /// API formats it speaks natively.
    pub speaks: ApiSet,
    /// Where it is, unless the configuration says otherwise; absent for servers that anyone can run anywhere.
    pub default_base_url: Option<&'static str>,
    /// How a key is sent.
    pub auth: AuthScheme,
    /// How its paths are built.
    pub style: RequestStyle,
    /// How events are framed in its good streams.
    pub framing: Framing,
    /// Its error envelope.
    pub envelope: Envelope,
    /// Rows that withhold a certificate, evaluated before all others and not overruled by the operator.
    pub deny: &'static [&'static [Rule]],
    /// The other rows; the first that matches decides.
    pub rules: &'static [&'static [Rule]],
    /// Delay directives beside the common headers.
    pub delays: &'static [DelaySource],
}

/// How events are framed in a good stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events; one JSON array when the media type is JSON and the format is Gemini's.
    EventStream,
    /// The same, and AWS frames where the media type says so.
    EventStreamOrAws,
    /// Not understood: such a stream commits with its first byte.
    Opaque,
}

/// The form of an error body.
#[derive(Debug, Clone, Copy)]
pub struct Envelope {
    /// Documented types of its members. A body that breaks them is never certified.
    pub shape: &'static [(Path, Kind)],
    /// Whether it may come as the only element of an array.
    pub in_array: bool,
    /// Whether the members of `error` may stand at the root.
    pub flat: Flat,
    /// Whether a whole error envelope may come under status 200. It then proves neither success nor rejection.
    pub under_200: bool,
    /// Whether `application/problem+json` is its media type, too.
    pub problem_json: bool,
    /// The header that carries the code of AWS services, whose bodies have no `error` and may be empty.
    pub code_header: Option<&'static str>,
}

/// Whether the members of `error` may stand at the root of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flat {
    /// No.
    No,
    /// Beside `"object": "error"`.
    Marked,
    /// Where both `code` and `message` do.
    CodeAndMessage,
}

impl Envelope {
    /// One JSON object with these members, under an error status.
    pub const fn of(shape: &'static [(Path, Kind)]) -> Envelope {
        Envelope {
            shape,
            in_array: false,
            flat: Flat::No,
            under_200: false,
            problem_json: false,
            code_header: None,
        }
    }
}
