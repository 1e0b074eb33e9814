//! The Responses API.

use std::fmt;

use super::{ARGUMENTS, CREATED, Line, Out, arguments, quoted};

impl Line {
    /// The response object in one state.
    pub(super) fn response_object(&self, status: &str, output: &str, usage: &str) -> String {
        let Line { id, model, .. } = self;
        format!(
            r#"{{"id":"resp_{id}","object":"response","created_at":{CREATED},"status":"{status}","error":null,"incomplete_details":null,"model":{model},"output":[{output}],"parallel_tool_calls":true,"tools":[],"usage":{usage}}}"#
        )
    }

    pub(super) fn response_usage(&self) -> String {
        format!(
            r#"{{"input_tokens":{},"input_tokens_details":{{"cached_tokens":0}},"output_tokens":{},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}}"#,
            self.input,
            self.output,
            self.total()
        )
    }

    pub(super) fn response_item(&self) -> String {
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

    pub(super) fn response(&self, out: &mut Out) {
        let item = self.response_item();
        let object = self.response_object("completed", &item, &self.response_usage());
        out.raw(format_args!("{object}"));
    }

    pub(super) fn response_stream(&self, out: &mut Out) {
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

    pub(super) fn response_call(
        &self,
        tool: &str,
        event: &mut impl FnMut(&str, fmt::Arguments<'_>),
    ) {
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

    pub(super) fn response_text(&self, event: &mut impl FnMut(&str, fmt::Arguments<'_>)) {
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
}
