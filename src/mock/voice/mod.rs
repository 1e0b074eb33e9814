//! Good answers: the bytes of a success in each API format, whole or as a stream, with usage and ids. Pure.
//!
//! Not here: errors (`presets`). The text is the same whether it is streamed or not, and ids name the server and count up, so that a test can tell which answer
//! a client was given. Tokens are estimates: a quarter of the request's bytes, and one a delta.

mod anthropic;
mod chat;
mod gemini;
mod media;
mod responses;

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::gemini::Framing;
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
            batch: ask.batch,
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
            (Surface::Transcriptions, true) => line.transcript_stream(&mut out),
            (Surface::Transcriptions | Surface::Translations, _) if ask.is_text => {
                line.transcript(&mut out);
            }
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

    /// A whole body that is no JSON.
    fn whole(&mut self, content_type: &'static str, bytes: Bytes) {
        self.content_type = content_type;
        let gap = Duration::ZERO;
        self.pieces.push(Piece { gap, bytes });
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

/// The facts that every format tells in its own way. Strings are JSON already, quotes included, except `id` and `words`.
struct Line {
    id: String,
    model: String,
    tool: Option<String>,
    input: usize,
    output: usize,
    words: Vec<String>,
    text: String,
    batch: usize,
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
            Surface::Converse => {
                let (output, total) = (self.output, self.total());
                out.raw(format_args!(
                    r#"{{"output":{{"message":{{"role":"assistant","content":[{{"text":{text}}}]}}}},"stopReason":"end_turn","usage":{{"inputTokens":{input},"outputTokens":{output},"totalTokens":{total}}},"metrics":{{"latencyMs":1}}}}"#
                ));
            }
            Surface::CountContent => out.raw(format_args!(r#"{{"totalTokens":{input}}}"#)),
            Surface::EmbedContent => {
                out.raw(format_args!(r#"{{"embedding":{{"values":{EMBEDDING}}}}}"#));
            }
            Surface::BatchEmbedContents => {
                let one = format!(r#"{{"values":{EMBEDDING}}}"#);
                let all = vec![one; self.batch].join(",");
                out.raw(format_args!(r#"{{"embeddings":[{all}]}}"#));
            }
            Surface::Speech => self.speech(out),
            Surface::Images | Surface::ImageEdits | Surface::ImageVariations => self.images(out),
            Surface::Moderations => self.moderation(out),
            Surface::Rerank => self.ranking(out),
            Surface::Transcriptions | Surface::Translations => {
                out.raw(format_args!(r#"{{"text":{text}}}"#));
            }
            _ => out.raw(format_args!(r#"{{"id":"{id}","text":{text}}}"#)),
        }
    }
}
