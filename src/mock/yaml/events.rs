//! Bodies of a script: a text, or events of a stream.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;

use super::answer::Compiled;
use super::values::{Millis, TextShape};
use crate::mock::answer::{Content, Ending};
use crate::mock::voice::Piece;

/// One event as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventShape {
    event: Option<String>,
    data: Option<TextShape>,
    id: Option<String>,
    comment: Option<String>,
    raw: Option<String>,
    gap_ms: Option<Millis>,
    silence: Option<bool>,
}

/// The body, and after how many bytes it falls silent.
pub(super) fn content(
    body: Option<TextShape>,
    sse: Option<Vec<EventShape>>,
) -> Compiled<(Option<Content>, Option<Ending>)> {
    match (body, sse) {
        (None, None) => Ok((None, None)),
        (Some(body), None) => Ok((Some(Content::Bytes(Bytes::from(body.0))), None)),
        (None, Some(events)) => {
            let (pieces, hush) = pieces(events)?;
            Ok((Some(Content::Pieces(pieces.into())), hush))
        }
        (Some(_), Some(_)) => Err("only one of `body` and `sse` is allowed".into()),
    }
}

/// Events joined where there is no pause between them.
fn pieces(events: Vec<EventShape>) -> Compiled<(Vec<Piece>, Option<Ending>)> {
    let mut pieces: Vec<(Duration, String)> = Vec::new();
    let mut total = 0;
    for event in events {
        if event.silence == Some(true) {
            let ending = Ending::SilentAfter(total);
            return Ok((finished(pieces), Some(ending)));
        }
        let gap = event.gap_ms.as_ref().map_or(Duration::ZERO, |gap| gap.0);
        let text = event_text(&event)?;
        total = u64::try_from(text.len())
            .unwrap_or(u64::MAX)
            .saturating_add(total);
        match pieces.last_mut() {
            Some((_, last)) if gap.is_zero() => last.push_str(&text),
            _ => pieces.push((gap, text)),
        }
    }
    Ok((finished(pieces), None))
}

fn finished(pieces: Vec<(Duration, String)>) -> Vec<Piece> {
    let pieces = pieces.into_iter().map(|(gap, text)| Piece {
        gap,
        bytes: Bytes::from(text),
    });
    pieces.collect()
}

fn event_text(event: &EventShape) -> Compiled<String> {
    let mut text = String::new();
    if let Some(raw) = &event.raw {
        if event.event.is_some() || event.data.is_some() || event.id.is_some() {
            return Err("`raw` stands alone in an event".into());
        }
        text.push_str(raw);
    }
    let mut line = |field: &str, value: &str| {
        text.push_str(field);
        text.push_str(": ");
        text.push_str(value);
        text.push('\n');
    };
    if let Some(comment) = &event.comment {
        line("", comment);
    }
    if let Some(name) = &event.event {
        line("event", name);
    }
    if let Some(id) = &event.id {
        line("id", id);
    }
    if let Some(TextShape(data)) = &event.data {
        data.split('\n').for_each(|data| line("data", data));
    }
    if text.is_empty() {
        return Err("an event needs `data`, `event`, `comment`, `raw` or `silence`".into());
    }
    if event.raw.is_none() {
        text.push('\n');
    }
    Ok(text)
}
