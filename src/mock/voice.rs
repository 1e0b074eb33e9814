//! Good answers: the bytes of a success in each API format, whole or as a stream, with usage and ids. Pure.
//!
//! Not here: errors (`presets`). The text is the same whether it is streamed or not, and ids name the server and count up, so that a test can tell which answer
//! a client was given. Tokens are estimates: a quarter of the request's bytes, and one a delta.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::ask::{Ask, Surface};

/// How a good answer is to sound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Voice {
    /// The text; `Hello from <server name>` when absent.
    pub text: Option<Arc<str>>,
    /// Number of deltas; one a word when absent. The words repeat to fill them.
    pub chunks: Option<u32>,
    /// Pause before every event of a stream after the first.
    pub gap: Duration,
    /// Call a tool when the request offers one.
    pub tools: bool,
}

/// Bytes of a body and the pause before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Pause before the bytes.
    pub gap: Duration,
    /// The bytes.
    pub bytes: Bytes,
}

/// A good answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composed {
    /// Media type.
    pub content_type: &'static str,
    /// The body.
    pub pieces: Vec<Piece>,
}

/// Who speaks: the server's name and how many answers it has given.
#[derive(Debug, Clone, Copy)]
pub struct Speaker<'a> {
    /// Name of the server.
    pub server: &'a str,
    /// Ordinal of the answer.
    pub sequence: u64,
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";
/// A fixed `created`: answers of a script are the same in every run.
const CREATED: u64 = 1_767_225_600;
/// Components of an embedding; small, since nobody searches with them.
const EMBEDDING: &str = "[0.0125,-0.025,0.05,-0.1]";

impl Voice {
    /// The answer to a request.
    pub fn compose(&self, speaker: Speaker<'_>, ask: &Ask<'_>) -> Composed {
        let words = self.words(speaker.server);
        let line = Line {
            id: format!("{}-{:08}", speaker.server, speaker.sequence),
            model: quoted(&ask.model),
            tool: ask.tool.as_deref().filter(|_| self.tools).map(quoted),
            input: (ask.body_len / 4).max(1),
            output: words.len(),
            text: quoted(&words.concat()),
            words,
        };
        let mut out = Out::new(self.gap);
        match (ask.surface, ask.stream) {
            (Surface::Chat, false) => line.chat(&mut out),
            (Surface::Chat, true) => line.chat_stream(&mut out),
            (Surface::Completions, false) => line.completion(&mut out),
            (Surface::Completions, true) => line.completion_stream(&mut out),
            (Surface::Responses, false) => line.response(&mut out),
            (Surface::Responses, true) => line.response_stream(&mut out),
            (Surface::Messages, false) => line.message(&mut out),
            (Surface::Messages, true) => line.message_stream(&mut out),
            (Surface::StreamEvents, _) => line.gemini_stream(&mut out, Framing::Events),
            (Surface::StreamArray, _) => line.gemini_stream(&mut out, Framing::Array),
            (Surface::Generate, _) => line.gemini(&mut out),
            (surface, _) => line.other(&mut out, surface),
        }
        out.finish()
    }

    fn words(&self, server: &str) -> Vec<String> {
        let text = match &self.text {
            Some(text) => text.to_string(),
            None => format!("Hello from {server}"),
        };
        let words: Vec<String> = text.split_inclusive(' ').map(str::to_owned).collect();
        match self.chunks {
            None => words,
            Some(count) => {
                let spaced = words.iter().map(|word| format!("{} ", word.trim_end()));
                spaced.cycle().take(count as usize).collect()
            }
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Collects a body; events without a pause between them stay in one piece.
struct Out {
    gap: Duration,
    content_type: &'static str,
    pieces: Vec<Piece>,
    pending: String,
}

impl Out {
    fn new(gap: Duration) -> Out {
        Out {
            gap,
            content_type: JSON,
            pieces: Vec::new(),
            pending: String::with_capacity(1024),
        }
    }

    fn raw(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.pending.write_fmt(text);
    }

    /// Ends the piece so far when the answer is to pause here.
    fn pause(&mut self) {
        if !self.gap.is_zero() && !self.pending.is_empty() {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let gap = if self.pieces.is_empty() {
            Duration::ZERO
        } else {
            self.gap
        };
        let bytes = Bytes::from(std::mem::take(&mut self.pending));
        self.pieces.push(Piece { gap, bytes });
    }

    fn data(&mut self, json: fmt::Arguments<'_>) {
        self.content_type = EVENTS;
        self.pause();
        self.raw(format_args!("data: {json}\n\n"));
    }

    fn event(&mut self, name: &str, json: fmt::Arguments<'_>) {
        self.content_type = EVENTS;
        self.pause();
        self.raw(format_args!("event: {name}\ndata: {json}\n\n"));
    }

    fn finish(mut self) -> Composed {
        if !self.pending.is_empty() {
            self.cut();
        }
        Composed {
            content_type: self.content_type,
            pieces: self.pieces,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Events,
    Array,
}

/// The facts that every format tells in its own way. Strings are JSON already, quotes included, except `id` and `words`.
struct Line {
    id: String,
    model: String,
    tool: Option<String>,
    input: usize,
    output: usize,
    words: Vec<String>,
    text: String,
}

/// The arguments of a tool call, in the pieces in which they are streamed.
const ARGUMENTS: [&str; 3] = ["{\"city\":", "\"Par", "is\"}"];

fn arguments() -> String {
    quoted(&ARGUMENTS.concat())
}

impl Line {
    fn total(&self) -> usize {
        self.input + self.output
    }

    fn chat_usage(&self) -> String {
        format!(
            r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0}}}}"#,
            self.input,
            self.output,
            self.total()
        )
    }

    fn chat(&self, out: &mut Out) {
        let Line {
            id, model, text, ..
        } = self;
        let (message, finish) = match &self.tool {
            Some(tool) => (
                format!(
                    r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"call_{id}","type":"function","function":{{"name":{tool},"arguments":{}}}}}]}}"#,
                    arguments()
                ),
                "tool_calls",
            ),
            None => (
                format!(r#"{{"role":"assistant","content":{text},"refusal":null}}"#),
                "stop",
            ),
        };
        out.raw(format_args!(
            r#"{{"id":"chatcmpl-{id}","object":"chat.completion","created":{CREATED},"model":{model},"choices":[{{"index":0,"message":{message},"logprobs":null,"finish_reason":"{finish}"}}],"usage":{}}}"#,
            self.chat_usage()
        ));
    }

    fn chat_stream(&self, out: &mut Out) {
        let Line { id, model, .. } = self;
        let head = format!(
            r#"{{"id":"chatcmpl-{id}","object":"chat.completion.chunk","created":{CREATED},"model":{model}"#
        );
        let mut chunk = |delta: fmt::Arguments<'_>, finish: &str| {
            out.data(format_args!(
                r#"{head},"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#
            ));
        };
        chunk(
            format_args!(r#"{{"role":"assistant","content":""}}"#),
            "null",
        );
        if let Some(tool) = &self.tool {
            chunk(
                format_args!(
                    r#"{{"tool_calls":[{{"index":0,"id":"call_{id}","type":"function","function":{{"name":{tool},"arguments":""}}}}]}}"#
                ),
                "null",
            );
            for part in ARGUMENTS {
                let part = quoted(part);
                chunk(
                    format_args!(
                        r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{part}}}}}]}}"#
                    ),
                    "null",
                );
            }
            chunk(format_args!("{{}}"), r#""tool_calls""#);
        } else {
            for word in &self.words {
                chunk(format_args!(r#"{{"content":{}}}"#, quoted(word)), "null");
            }
            chunk(format_args!("{{}}"), r#""stop""#);
        }
        out.data(format_args!(
            r#"{head},"choices":[],"usage":{}}}"#,
            self.chat_usage()
        ));
        out.data(format_args!("[DONE]"));
    }

    fn completion(&self, out: &mut Out) {
        let Line {
            id, model, text, ..
        } = self;
        out.raw(format_args!(
            r#"{{"id":"cmpl-{id}","object":"text_completion","created":{CREATED},"model":{model},"choices":[{{"index":0,"text":{text},"logprobs":null,"finish_reason":"stop"}}],"usage":{}}}"#,
            self.chat_usage()
        ));
    }

    fn completion_stream(&self, out: &mut Out) {
        let Line { id, model, .. } = self;
        let head = format!(
            r#"{{"id":"cmpl-{id}","object":"text_completion","created":{CREATED},"model":{model}"#
        );
        for word in &self.words {
            let word = quoted(word);
            out.data(format_args!(
                r#"{head},"choices":[{{"index":0,"text":{word},"finish_reason":null}}]}}"#
            ));
        }
        out.data(format_args!(
            r#"{head},"choices":[{{"index":0,"text":"","finish_reason":"stop"}}]}}"#
        ));
        out.data(format_args!(
            r#"{head},"choices":[],"usage":{}}}"#,
            self.chat_usage()
        ));
        out.data(format_args!("[DONE]"));
    }

    /// The response object in one state.
    fn response_object(&self, status: &str, output: &str, usage: &str) -> String {
        let Line { id, model, .. } = self;
        format!(
            r#"{{"id":"resp_{id}","object":"response","created_at":{CREATED},"status":"{status}","error":null,"incomplete_details":null,"model":{model},"output":[{output}],"parallel_tool_calls":true,"tools":[],"usage":{usage}}}"#
        )
    }

    fn response_usage(&self) -> String {
        format!(
            r#"{{"input_tokens":{},"input_tokens_details":{{"cached_tokens":0}},"output_tokens":{},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}}"#,
            self.input,
            self.output,
            self.total()
        )
    }

    fn response_item(&self) -> String {
        let Line { id, text, .. } = self;
        match &self.tool {
            Some(tool) => format!(
                r#"{{"id":"fc_{id}","type":"function_call","status":"completed","call_id":"call_{id}","name":{tool},"arguments":{}}}"#,
                arguments()
            ),
            None => format!(
                r#"{{"id":"msg_{id}","type":"message","status":"completed","role":"assistant","content":[{{"type":"output_text","text":{text},"annotations":[]}}]}}"#
            ),
        }
    }

    fn response(&self, out: &mut Out) {
        let item = self.response_item();
        let object = self.response_object("completed", &item, &self.response_usage());
        out.raw(format_args!("{object}"));
    }

    fn response_stream(&self, out: &mut Out) {
        let mut sequence = 0;
        let mut event = |name: &str, fields: fmt::Arguments<'_>| {
            out.event(
                name,
                format_args!(r#"{{"type":"{name}","sequence_number":{sequence},{fields}}}"#),
            );
            sequence += 1;
        };
        let begun = self.response_object("in_progress", "", "null");
        event("response.created", format_args!(r#""response":{begun}"#));
        event(
            "response.in_progress",
            format_args!(r#""response":{begun}"#),
        );
        match &self.tool {
            Some(tool) => self.response_call(tool, &mut event),
            None => self.response_text(&mut event),
        }
        let item = self.response_item();
        event(
            "response.output_item.done",
            format_args!(r#""output_index":0,"item":{item}"#),
        );
        let done = self.response_object("completed", &item, &self.response_usage());
        event("response.completed", format_args!(r#""response":{done}"#));
    }

    fn response_call(&self, tool: &str, event: &mut impl FnMut(&str, fmt::Arguments<'_>)) {
        let id = &self.id;
        event(
            "response.output_item.added",
            format_args!(
                r#""output_index":0,"item":{{"id":"fc_{id}","type":"function_call","status":"in_progress","call_id":"call_{id}","name":{tool},"arguments":""}}"#
            ),
        );
        let place = format!(r#""item_id":"fc_{id}","output_index":0"#);
        for part in ARGUMENTS {
            let part = quoted(part);
            event(
                "response.function_call_arguments.delta",
                format_args!(r#"{place},"delta":{part}"#),
            );
        }
        event(
            "response.function_call_arguments.done",
            format_args!(r#"{place},"arguments":{}"#, arguments()),
        );
    }

    fn response_text(&self, event: &mut impl FnMut(&str, fmt::Arguments<'_>)) {
        let Line { id, text, .. } = self;
        event(
            "response.output_item.added",
            format_args!(
                r#""output_index":0,"item":{{"id":"msg_{id}","type":"message","status":"in_progress","role":"assistant","content":[]}}"#
            ),
        );
        let place = format!(r#""item_id":"msg_{id}","output_index":0,"content_index":0"#);
        event(
            "response.content_part.added",
            format_args!(r#"{place},"part":{{"type":"output_text","text":"","annotations":[]}}"#),
        );
        for word in &self.words {
            let word = quoted(word);
            event(
                "response.output_text.delta",
                format_args!(r#"{place},"delta":{word}"#),
            );
        }
        event(
            "response.output_text.done",
            format_args!(r#"{place},"text":{text}"#),
        );
        event(
            "response.content_part.done",
            format_args!(
                r#"{place},"part":{{"type":"output_text","text":{text},"annotations":[]}}"#
            ),
        );
    }

    fn message(&self, out: &mut Out) {
        let Line {
            id,
            model,
            text,
            input,
            output,
            ..
        } = self;
        let (content, stop) = match &self.tool {
            Some(tool) => (
                format!(
                    r#"{{"type":"tool_use","id":"toolu_{id}","name":{tool},"input":{}}}"#,
                    ARGUMENTS.concat()
                ),
                "tool_use",
            ),
            None => (format!(r#"{{"type":"text","text":{text}}}"#), "end_turn"),
        };
        out.raw(format_args!(
            r#"{{"id":"msg_{id}","type":"message","role":"assistant","model":{model},"content":[{content}],"stop_reason":"{stop}","stop_sequence":null,"usage":{{"input_tokens":{input},"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":{output}}}}}"#
        ));
    }

    fn message_stream(&self, out: &mut Out) {
        let Line {
            id,
            model,
            input,
            output,
            ..
        } = self;
        out.event(
            "message_start",
            format_args!(
                r#"{{"type":"message_start","message":{{"id":"msg_{id}","type":"message","role":"assistant","model":{model},"content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":{input},"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}}}}}"#
            ),
        );
        let block = match &self.tool {
            Some(tool) => {
                format!(r#"{{"type":"tool_use","id":"toolu_{id}","name":{tool},"input":{{}}}}"#)
            }
            None => r#"{"type":"text","text":""}"#.to_owned(),
        };
        out.event(
            "content_block_start",
            format_args!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#),
        );
        out.event("ping", format_args!(r#"{{"type":"ping"}}"#));
        let mut delta = |kind: &str, field: &str, part: &str| {
            let part = quoted(part);
            out.event(
                "content_block_delta",
                format_args!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"{kind}","{field}":{part}}}}}"#
                ),
            );
        };
        let stop = if self.tool.is_some() {
            ARGUMENTS
                .iter()
                .for_each(|part| delta("input_json_delta", "partial_json", part));
            "tool_use"
        } else {
            self.words
                .iter()
                .for_each(|word| delta("text_delta", "text", word));
            "end_turn"
        };
        out.event(
            "content_block_stop",
            format_args!(r#"{{"type":"content_block_stop","index":0}}"#),
        );
        out.event(
            "message_delta",
            format_args!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}","stop_sequence":null}},"usage":{{"output_tokens":{output}}}}}"#
            ),
        );
        out.event("message_stop", format_args!(r#"{{"type":"message_stop"}}"#));
    }

    /// One `GenerateContentResponse`; the last one carries the finish reason and usage.
    fn gemini_chunk(&self, part: &str, last: bool) -> String {
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
    fn gemini_call(&self) -> Option<String> {
        let tool = self.tool.as_ref()?;
        let args = ARGUMENTS.concat();
        Some(format!(
            r#"{{"functionCall":{{"name":{tool},"args":{args}}}}}"#
        ))
    }

    fn gemini(&self, out: &mut Out) {
        let text = || format!(r#"{{"text":{}}}"#, self.text);
        let part = self.gemini_call().unwrap_or_else(text);
        out.raw(format_args!("{}", self.gemini_chunk(&part, true)));
    }

    fn gemini_stream(&self, out: &mut Out, framing: Framing) {
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

    fn other(&self, out: &mut Out, surface: Surface) {
        let Line {
            id,
            model,
            text,
            input,
            ..
        } = self;
        match surface {
            Surface::Embeddings => out.raw(format_args!(
                r#"{{"object":"list","data":[{{"object":"embedding","index":0,"embedding":{EMBEDDING}}}],"model":{model},"usage":{{"prompt_tokens":{input},"total_tokens":{input}}}}}"#
            )),
            Surface::CountTokens => out.raw(format_args!(r#"{{"input_tokens":{input}}}"#)),
            Surface::CountContent => out.raw(format_args!(r#"{{"totalTokens":{input}}}"#)),
            Surface::EmbedContent => {
                out.raw(format_args!(r#"{{"embedding":{{"values":{EMBEDDING}}}}}"#));
            }
            _ => out.raw(format_args!(r#"{{"id":"{id}","text":{text}}}"#)),
        }
    }
}
