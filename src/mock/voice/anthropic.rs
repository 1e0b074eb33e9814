//! Messages.

use super::{ARGUMENTS, Line, Out, quoted};

impl Line {
    pub(super) fn message(&self, out: &mut Out) {
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

    pub(super) fn message_stream(&self, out: &mut Out) {
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
}
