//! Splits a streamed JSON array into its elements, wherever the chunks end.
//!
//! Not here: whether an element is valid JSON; that is [`super::json_envelope`]'s to say. Only brackets and strings are followed.
//! Memory is bounded: an element over the bound ends the splitting, and [`ArraySplitter::overflowed`] says so.

/// An incremental splitter of `[element, element, ...]`.
#[derive(Debug)]
pub struct ArraySplitter {
    element: Vec<u8>,
    depth: u32,
    state: State,
    element_max: usize,
    overflowed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Plain,
    Text,
    Escape,
    After,
    NotArray,
}

impl ArraySplitter {
    /// A splitter for elements of at most `element_max` bytes.
    pub fn new(element_max: usize) -> ArraySplitter {
        ArraySplitter {
            element: Vec::new(),
            depth: 0,
            state: State::Before,
            element_max,
            overflowed: false,
        }
    }

    /// Whether an element was larger than the bound. Nothing is split from then on.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Whether the first byte that is not blank did not open an array.
    pub fn not_array(&self) -> bool {
        self.state == State::NotArray
    }

    /// Whether the array was closed.
    pub fn closed(&self) -> bool {
        self.state == State::After
    }

    /// Takes the next bytes and gives out the elements that they complete.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(Vec<u8>)) {
        for byte in bytes {
            if self.overflowed {
                return;
            }
            self.step(*byte, sink);
        }
    }

    fn step(&mut self, byte: u8, sink: &mut impl FnMut(Vec<u8>)) {
        match self.state {
            State::Before if byte.is_ascii_whitespace() => {}
            State::Before if byte == b'[' => self.state = State::Plain,
            State::Before => self.state = State::NotArray,
            State::Plain => self.plain(byte, sink),
            State::Text => {
                self.push(byte);
                match byte {
                    b'\\' => self.state = State::Escape,
                    b'"' => self.state = State::Plain,
                    _ => {}
                }
            }
            State::Escape => {
                self.push(byte);
                self.state = State::Text;
            }
            State::After | State::NotArray => {}
        }
    }

    fn plain(&mut self, byte: u8, sink: &mut impl FnMut(Vec<u8>)) {
        match byte {
            b',' if self.depth == 0 => self.give(sink),
            b']' if self.depth == 0 => {
                self.give(sink);
                self.state = State::After;
            }
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.push(byte);
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.push(byte);
                if self.depth == 0 {
                    self.give(sink);
                }
            }
            b'"' => {
                self.push(byte);
                self.state = State::Text;
            }
            _ if self.depth == 0 && byte.is_ascii_whitespace() => {}
            _ => self.push(byte),
        }
    }

    fn push(&mut self, byte: u8) {
        if self.element.len() >= self.element_max {
            self.overflowed = true;
        } else {
            self.element.push(byte);
        }
    }

    fn give(&mut self, sink: &mut impl FnMut(Vec<u8>)) {
        if !self.element.is_empty() {
            sink(std::mem::take(&mut self.element));
        }
    }
}
