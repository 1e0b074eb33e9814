//! `generateContent` and its stream.

use super::{ARGUMENTS, Line, Out, quoted};

/// How the chunks of a stream are framed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// As server-sent events.
    Events,
    /// As one JSON array.
    Array,
}

impl Line {
    /// One `GenerateContentResponse`; the last one carries the finish reason and usage.
    pub(super) fn gemini_chunk(&self, part: &str, last: bool) -> String {
        let Line {
            id,
            model,
            input,
            output,
            ..
        } = self;
        let finish = if last {
            r#","finishReason":"STOP""#
        } else {
            ""
        };
        let usage = if last {
            format!(
                r#","usageMetadata":{{"promptTokenCount":{input},"candidatesTokenCount":{output},"totalTokenCount":{}}}"#,
                self.total()
            )
        } else {
            String::new()
        };
        format!(
            r#"{{"candidates":[{{"content":{{"role":"model","parts":[{part}]}}{finish},"index":0}}]{usage},"modelVersion":{model},"responseId":"{id}"}}"#
        )
    }

    /// The parts of the content, a call or the given text.
    pub(super) fn gemini_call(&self) -> Option<String> {
        let tool = self.tool.as_ref()?;
        let args = ARGUMENTS.concat();
        Some(format!(
            r#"{{"functionCall":{{"name":{tool},"args":{args}}}}}"#
        ))
    }

    pub(super) fn gemini(&self, out: &mut Out) {
        let text = || format!(r#"{{"text":{}}}"#, self.text);
        let part = self.gemini_call().unwrap_or_else(text);
        out.raw(format_args!("{}", self.gemini_chunk(&part, true)));
    }

    pub(super) fn gemini_stream(&self, out: &mut Out, framing: Framing) {
        let parts: Vec<String> = match self.gemini_call() {
            Some(call) => vec![call],
            None => {
                let texts = self
                    .words
                    .iter()
                    .map(|word| format!(r#"{{"text":{}}}"#, quoted(word)));
                texts.collect()
            }
        };
        let count = parts.len();
        for (index, part) in parts.iter().enumerate() {
            let chunk = self.gemini_chunk(part, index + 1 == count);
            match framing {
                Framing::Events => out.data(format_args!("{chunk}")),
                Framing::Array => {
                    out.pause();
                    let open = if index == 0 { "[" } else { "," };
                    out.raw(format_args!("{open}{chunk}\n"));
                }
            }
        }
        if framing == Framing::Array {
            out.raw(format_args!("]"));
        }
    }
}
