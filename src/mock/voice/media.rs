//! Images, speech, transcripts, moderation and ranking.

use bytes::Bytes;

use super::{CREATED, Line, Out, quoted};

/// A PNG of one transparent pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
/// A frame of silence: MPEG-1 layer III, 32 kbit/s, 44.1 kHz, mono.
const SILENCE_HEADER: [u8; 4] = [0xFF, 0xFB, 0x10, 0xC4];
const SILENCE_BYTES: usize = 104;

impl Line {
    pub(super) fn images(&self, out: &mut Out) {
        let Line { input, .. } = self;
        out.raw(format_args!(
            r#"{{"created":{CREATED},"data":[{{"b64_json":"{PIXEL}"}}],"usage":{{"input_tokens":{input},"output_tokens":1,"total_tokens":{}}}}}"#,
            input + 1
        ));
    }

    pub(super) fn speech(&self, out: &mut Out) {
        let mut frame = [0; SILENCE_BYTES];
        let header = frame.iter_mut().zip(SILENCE_HEADER);
        header.for_each(|(byte, wanted)| *byte = wanted);
        // As many frames as words, so that a longer text is a longer recording.
        out.whole("audio/mpeg", Bytes::from(frame.repeat(self.output)));
    }

    pub(super) fn transcript(&self, out: &mut Out) {
        let text = format!("{}\n", self.words.concat());
        out.whole("text/plain; charset=utf-8", Bytes::from(text));
    }

    pub(super) fn transcript_stream(&self, out: &mut Out) {
        let Line { text, .. } = self;
        for word in &self.words {
            let word = quoted(word);
            out.data(format_args!(
                r#"{{"type":"transcript.text.delta","delta":{word}}}"#
            ));
        }
        out.data(format_args!(
            r#"{{"type":"transcript.text.done","text":{text}}}"#
        ));
    }

    pub(super) fn moderation(&self, out: &mut Out) {
        let Line { id, model, .. } = self;
        out.raw(format_args!(
            r#"{{"id":"modr-{id}","model":{model},"results":[{{"flagged":false,"categories":{{"violence":false}},"category_scores":{{"violence":0.0001}}}}]}}"#
        ));
    }

    pub(super) fn ranking(&self, out: &mut Out) {
        let Line {
            id, model, input, ..
        } = self;
        out.raw(format_args!(
            r#"{{"id":"rerank-{id}","model":{model},"results":[{{"index":0,"relevance_score":0.9}}],"usage":{{"total_tokens":{input}}}}}"#
        ));
    }
}
