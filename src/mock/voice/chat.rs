//! Chat completions and legacy completions.

use std::fmt;

use super::{ARGUMENTS, CREATED, Line, Out, arguments, quoted};

impl Line {
    pub(super) fn chat_usage(&self) -> String {
        format!(
            r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0}}}}"#,
            self.input,
            self.output,
            self.total()
        )
    }

    pub(super) fn chat(&self, out: &mut Out) {
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

    pub(super) fn chat_stream(&self, out: &mut Out) {
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

    pub(super) fn completion(&self, out: &mut Out) {
        let Line {
            id, model, text, ..
        } = self;
        out.raw(format_args!(
            r#"{{"id":"cmpl-{id}","object":"text_completion","created":{CREATED},"model":{model},"choices":[{{"index":0,"text":{text},"logprobs":null,"finish_reason":"stop"}}],"usage":{}}}"#,
            self.chat_usage()
        ));
    }

    pub(super) fn completion_stream(&self, out: &mut Out) {
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
}
