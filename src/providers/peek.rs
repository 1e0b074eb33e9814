//! Looks at the beginning of a good answer until it is known whether it may be committed.
//!
//! Not here: the bounds in bytes and time, which the caller keeps. Invariants: at a bound it commits (fail open, R-A4); comments, pings,
//! blank lines and preamble prove nothing; an answer that ends before it says anything is ambiguous. Sound, images and other bytes that
//! are no text commit with the first of them, whatever it is, and a transcript of silence may be empty.

use super::adapter::Adapter;
use super::answer::{RequestTraits, ResponseHead, Verdict};
use super::classify;
use super::json_envelope;
use super::stream::{EVENT_STREAM, JSON_LINES, Progress, StreamWatch};
use crate::core::api::Api;

/// What to do with the beginning of a good answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek {
    /// Hold it and read on.
    NeedMore,
    /// Give it to the client.
    Commit,
    /// It is an error in the clothes of a good answer.
    Error(Verdict),
}

/// Whether more of the answer may come before a decision is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Yes.
    Open,
    /// The answer has ended.
    Ended,
    /// It may, but a bound in bytes or time was reached.
    Bound,
}

/// Judges the first bytes of an answer with a good status. [`StreamWatch`] does the same incrementally for streams.
pub fn peek(
    adapter: &'static Adapter,
    traits: &RequestTraits,
    head: &ResponseHead<'_>,
    prefix: &[u8],
    rest: Rest,
) -> Peek {
    let found = if head.status == 204 {
        Peek::Commit
    } else if is_stream(traits, head) {
        let mut watch = StreamWatch::new(adapter, *traits, head);
        let fed = watch.feed(prefix);
        let progress = match rest {
            Rest::Ended => watch.finish(),
            Rest::Open | Rest::Bound => fed,
        };
        match progress {
            Progress::Preamble => Peek::NeedMore,
            Progress::Output => Peek::Commit,
            Progress::Failed(verdict) => Peek::Error(verdict),
        }
    } else {
        match plain(traits.api, head) {
            Some(Plain::Bytes) if !prefix.is_empty() => Peek::Commit,
            Some(Plain::Transcript) if !prefix.is_empty() || rest == Rest::Ended => Peek::Commit,
            Some(Plain::Bytes | Plain::Transcript) => Peek::NeedMore,
            None => peek_body(adapter, prefix, rest),
        }
    };
    settle(found, rest)
}

/// What [`Peek::NeedMore`] becomes when no more will be waited for.
pub fn settle(found: Peek, rest: Rest) -> Peek {
    match (found, rest) {
        (Peek::NeedMore, Rest::Ended) => Peek::Error(classify::ended_early()),
        (Peek::NeedMore, Rest::Bound) => Peek::Commit,
        (Peek::NeedMore, Rest::Open) => Peek::NeedMore,
        (Peek::Commit | Peek::Error(_), _) => found,
    }
}

/// Whether the answer is read as a stream of events. A stream that was asked for may still be answered by one JSON body.
pub fn is_stream(traits: &RequestTraits, head: &ResponseHead<'_>) -> bool {
    match head.media_type().as_deref() {
        Some("text/event-stream" | EVENT_STREAM | JSON_LINES) => true,
        Some("application/json") => traits.stream && traits.api == Api::Gemini,
        Some(_) | None => traits.stream,
    }
}

/// A body that can be nothing but the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plain {
    /// Sound, an image or the like.
    Bytes,
    /// The text of a recording.
    Transcript,
}

fn plain(api: Api, head: &ResponseHead<'_>) -> Option<Plain> {
    let media = head.media_type()?;
    let (kind, _) = media.split_once('/')?;
    let hears = matches!(api, Api::OpenaiTranscriptions | Api::OpenaiTranslations);
    match kind {
        "audio" | "image" | "video" => Some(Plain::Bytes),
        _ if media == "application/octet-stream" => Some(Plain::Bytes),
        // Subtitles are texts, too.
        "text" if hears && media != "text/html" => Some(Plain::Transcript),
        _ if hears && media == "application/x-subrip" => Some(Plain::Transcript),
        _ => None,
    }
}

/// A body commits with its first byte that is not blank, unless it may turn out to be nothing but an error.
fn peek_body(adapter: &Adapter, prefix: &[u8], rest: Rest) -> Peek {
    let text = prefix.trim_ascii_start();
    if text.is_empty() {
        return Peek::NeedMore;
    }
    if !adapter.envelope.under_200 || !may_be_error(text) {
        return Peek::Commit;
    }
    let whole = json_envelope::read(text).ok();
    match whole.filter(|body| body.get("error").is_some_and(|error| !error.is_null())) {
        Some(_) => Peek::Error(classify::error_under_200()),
        None if rest == Rest::Ended => Peek::Commit,
        None => Peek::NeedMore,
    }
}

/// Whether a body that begins so may still be an error envelope: its first member is `error`, or the type `error`.
fn may_be_error(text: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 2] = [b"{\"error\":", b"{\"type\":\"error\","];
    let mut seen = text.iter().filter(|byte| !byte.is_ascii_whitespace());
    let mut open = BEGINNINGS.map(Some);
    while open.iter().any(Option::is_some) {
        let Some(byte) = seen.next() else {
            return true;
        };
        for beginning in &mut open {
            *beginning = match beginning.and_then(<[u8]>::split_first) {
                Some((wanted, after)) if wanted == byte && after.is_empty() => return true,
                Some((wanted, after)) if wanted == byte => Some(after),
                Some(_) | None => None,
            };
        }
    }
    false
}
