//! Splits a byte stream into its lines, wherever the chunks end: JSON objects, one a line, as Ollama's own interface sends them.
//!
//! Not here: what a line means. Memory is bounded: a line over the bound ends the splitting, and [`LineSplitter::overflowed`] says so.

/// An incremental splitter.
#[derive(Debug)]
pub struct LineSplitter {
    line: Vec<u8>,
    line_max: usize,
    overflowed: bool,
}

impl LineSplitter {
    /// A splitter for lines of at most `line_max` bytes.
    pub fn new(line_max: usize) -> LineSplitter {
        LineSplitter {
            line: Vec::new(),
            line_max,
            overflowed: false,
        }
    }

    /// Whether a line was larger than the bound. Nothing is split from then on.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Takes the next bytes and gives out the lines that they complete; blank ones are passed over.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(&[u8])) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            // The line feed is no byte of the line: with or without it, at the end of a stream, the bound is the same.
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            if self.overflowed || self.line.len().saturating_add(text.len()) > self.line_max {
                self.overflowed = true;
                return;
            }
            self.line.extend_from_slice(text);
            if text.len() < part.len() {
                self.finish(sink);
            }
        }
    }

    /// The stream has ended: gives out the line that was begun.
    pub fn finish(&mut self, sink: &mut impl FnMut(&[u8])) {
        let line = self.line.trim_ascii();
        if !line.is_empty() && !self.overflowed {
            sink(line);
        }
        self.line.clear();
    }
}
