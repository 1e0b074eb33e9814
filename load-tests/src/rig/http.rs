//! HTTP/1.1 messages, as little of them as load and scripted upstreams need: where one ends, its status, its body.
//!
//! It is no parser to be trusted with strangers: both ends are programs of this machine. Invariant: bytes may arrive in any pieces.

/// Which side's messages are read: an answer without a length ends with its connection, a request without one has no body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// What clients send.
    Request,
    /// What servers send.
    Answer,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Head,
    Sized(u64),
    ChunkSize { size: u64, over: bool },
    Chunk(u64),
    ChunkEnd,
    Trailer { empty: bool },
    ToEnd,
}

/// Reads one message after another.
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    state: State,
    head: Vec<u8>,
    /// The last answer's status; 0 for requests.
    pub status: u16,
    /// The last message said that its connection ends.
    pub close: bool,
}

impl Decoder {
    /// A decoder before its first message.
    pub fn new(role: Role) -> Decoder {
        Decoder {
            role,
            state: State::Head,
            head: Vec::new(),
            status: 0,
            close: false,
        }
    }

    /// Whether an end of the connection ends the message, too.
    pub fn ends_with_connection(&self) -> bool {
        self.state == State::ToEnd
    }

    /// Takes bytes and gives pieces of the body to `body`. When the message is complete, how many bytes belonged to it.
    pub fn feed(&mut self, bytes: &[u8], body: &mut dyn FnMut(&[u8])) -> Option<usize> {
        let mut rest = bytes;
        loop {
            rest = match self.state {
                State::Head => self.feed_head(rest)?,
                State::Sized(left) => {
                    let (piece, after) = split(rest, left);
                    body(piece);
                    self.state = State::Sized(left - piece.len() as u64);
                    after
                }
                State::Chunk(left) => {
                    let (piece, after) = split(rest, left);
                    body(piece);
                    let left = left - piece.len() as u64;
                    self.state = if left == 0 {
                        State::ChunkEnd
                    } else {
                        State::Chunk(left)
                    };
                    after
                }
                State::ToEnd => {
                    body(rest);
                    &[]
                }
                State::ChunkSize { .. } | State::ChunkEnd | State::Trailer { .. } => {
                    let (byte, after) = rest.split_first()?;
                    if self.feed_frame(*byte) {
                        self.state = State::Head;
                        return Some(bytes.len() - after.len());
                    }
                    after
                }
            };
            if self.state == State::Sized(0) {
                self.state = State::Head;
                return Some(bytes.len() - rest.len());
            }
            if rest.is_empty() {
                return None;
            }
        }
    }

    /// One byte between chunks; true when it was the message's last.
    fn feed_frame(&mut self, byte: u8) -> bool {
        self.state = match (self.state, byte) {
            (State::ChunkSize { size: 0, .. }, b'\n') => State::Trailer { empty: true },
            (State::ChunkSize { size, .. }, b'\n') => State::Chunk(size),
            (State::ChunkSize { size, over: false }, digit) => match char::from(digit).to_digit(16)
            {
                Some(digit) => State::ChunkSize {
                    size: (size << 4) | u64::from(digit),
                    over: false,
                },
                None => State::ChunkSize { size, over: true },
            },
            (State::ChunkEnd, b'\n') => State::ChunkSize {
                size: 0,
                over: false,
            },
            (State::Trailer { empty: true }, b'\n') => return true,
            (State::Trailer { .. }, b'\n') => State::Trailer { empty: true },
            (State::Trailer { empty }, b'\r') => State::Trailer { empty },
            (State::Trailer { .. }, _) => State::Trailer { empty: false },
            (state, _) => state,
        };
        false
    }

    /// Takes bytes of a head; the rest after its end, or nothing while it is incomplete.
    fn feed_head<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let known = self.head.len();
        self.head.extend_from_slice(bytes);
        let from = known.saturating_sub(3);
        let end = self
            .head
            .get(from..)?
            .windows(4)
            .position(|window| window == b"\r\n\r\n")?
            + from
            + 4;
        let rest = bytes.get(end - known..).unwrap_or_default();
        let mut head = std::mem::take(&mut self.head);
        head.truncate(end);
        self.begin(&head);
        head.clear();
        self.head = head;
        Some(rest)
    }

    fn begin(&mut self, head: &[u8]) {
        let (mut length, mut chunked) = (None, false);
        self.close = false;
        let mut lines = head.split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        self.status = match self.role {
            Role::Request => 0,
            Role::Answer => number(first.get(9..12).unwrap_or_default())
                .try_into()
                .unwrap_or(0),
        };
        for line in lines {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                continue;
            };
            let (name, value) = line.split_at(colon);
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            match name.len() {
                14 if name.eq_ignore_ascii_case(b"content-length") => length = Some(number(value)),
                17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                    chunked = value.eq_ignore_ascii_case(b"chunked");
                }
                10 if name.eq_ignore_ascii_case(b"connection") => {
                    self.close = value.eq_ignore_ascii_case(b"close");
                }
                _ => {}
            }
        }
        self.state = match (chunked, length, self.role) {
            _ if self.role == Role::Answer && self.status < 200 => State::Head,
            (true, ..) => State::ChunkSize {
                size: 0,
                over: false,
            },
            (false, Some(length), _) => State::Sized(length),
            (false, None, Role::Request) => State::Sized(0),
            (false, None, Role::Answer) => State::ToEnd,
        };
    }
}

fn split(bytes: &[u8], at: u64) -> (&[u8], &[u8]) {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    bytes.split_at_checked(at).unwrap_or((bytes, &[]))
}

fn number(digits: &[u8]) -> u64 {
    digits
        .iter()
        .take_while(|digit| digit.is_ascii_digit())
        .fold(0_u64, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(u64::from(digit - b'0'))
        })
}

/// Finds `@NUMBER@` in a stream of bytes: the instants at which the upstream wrote its events.
#[derive(Debug, Default)]
pub struct Stamps {
    digits: Option<u64>,
}

impl Stamps {
    /// Takes bytes and gives each complete stamp to `found`.
    pub fn feed(&mut self, bytes: &[u8], found: &mut dyn FnMut(u64)) {
        for byte in bytes {
            self.digits = match (self.digits, byte) {
                (Some(number), b'@') if number > 0 => {
                    found(number);
                    None
                }
                (_, b'@') => Some(0),
                (Some(number), b'0'..=b'9') => Some(
                    number
                        .saturating_mul(10)
                        .saturating_add(u64::from(byte - b'0')),
                ),
                _ => None,
            };
        }
    }
}

/// A chat request of about `size` bytes for `model`, head included in neither.
pub fn chat(model: &str, size: usize, stream: bool) -> String {
    let stream = if stream { r#","stream":true"# } else { "" };
    let frame =
        format!(r#"{{"model":"{model}"{stream},"messages":[{{"role":"user","content":""}}]}}"#);
    let words = "a question of some length that nobody will ever answer well ";
    let content: String = words
        .chars()
        .cycle()
        .take(size.saturating_sub(frame.len()))
        .collect();
    format!(r#"{{"model":"{model}"{stream},"messages":[{{"role":"user","content":"{content}"}}]}}"#)
}

/// A whole request with this body; `headers` are complete lines.
pub fn post(port: u16, body: &str, headers: &str) -> Vec<u8> {
    let mut request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
         authorization: Bearer sk-load\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body.as_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the bytes in pieces of every size and returns bodies, statuses and what is left over, which must not depend on the pieces.
    fn read(role: Role, bytes: &[u8]) -> Vec<(u16, String)> {
        let whole = read_in(role, bytes, bytes.len());
        for piece in 1..bytes.len() {
            assert_eq!(read_in(role, bytes, piece), whole, "in pieces of {piece}");
        }
        whole
    }

    fn read_in(role: Role, bytes: &[u8], piece: usize) -> Vec<(u16, String)> {
        let (mut decoder, mut messages, mut body) = (Decoder::new(role), Vec::new(), Vec::new());
        for mut rest in bytes.chunks(piece) {
            while let Some(used) = decoder.feed(rest, &mut |bytes| body.extend_from_slice(bytes)) {
                let text = String::from_utf8_lossy(&std::mem::take(&mut body)).into_owned();
                messages.push((decoder.status, text));
                rest = &rest[used..];
                if rest.is_empty() {
                    break;
                }
            }
        }
        messages
    }

    #[test]
    fn answers_with_a_length_and_in_chunks_follow_each_other() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
            HTTP/1.1 429 Too Many\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\nt: v\r\n\r\n\
            HTTP/1.1 204 No\r\ncontent-length: 0\r\n\r\n";
        let got = read(Role::Answer, bytes);
        let want = [(200, "hello"), (429, "abc0123456789"), (204, "")];
        assert_eq!(got, want.map(|(status, text)| (status, text.to_owned())));
    }

    #[test]
    fn a_request_without_a_length_has_no_body() {
        let got = read(
            Role::Request,
            b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nab",
        );
        assert_eq!(got, [(0, String::new()), (0, "ab".to_owned())]);
    }

    #[test]
    fn an_answer_without_a_length_ends_with_its_connection() {
        let mut decoder = Decoder::new(Role::Answer);
        let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc";
        assert_eq!(decoder.feed(head, &mut |_| {}), None);
        assert!(decoder.ends_with_connection() && decoder.close);
    }

    #[test]
    fn stamps_are_found_across_pieces() {
        let (mut stamps, mut found) = (Stamps::default(), Vec::new());
        for piece in ["x @1", "2@ a@b @7", "@", " @", "9@"] {
            stamps.feed(piece.as_bytes(), &mut |stamp| found.push(stamp));
        }
        assert_eq!(found, [12, 7, 9]);
    }

    #[test]
    fn chat_requests_have_the_size_that_was_asked_for() {
        for size in [200, 1024, 100 << 10] {
            assert_eq!(chat("m0", size, true).len(), size);
            assert!(serde_json::from_str::<serde_json::Value>(&chat("m0", size, false)).is_ok());
        }
    }
}
