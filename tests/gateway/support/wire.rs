//! The client side of HTTP/2, frame by frame, for what no library would send.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::frames::{
    DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS,
    bytes,
};
use super::soon;

/// A connection whose frames are written by hand.
pub struct Wire {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
}

/// How a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// An answer that came whole: whether it was a 200, and its body.
    Answered { ok: bool, body: String },
    /// The stream was reset.
    Reset(u32),
    /// The connection said goodbye, with this code and text.
    Goaway(u32, String),
    /// The connection was closed without a word.
    Closed,
}

impl Wire {
    /// Connects, with these settings as pairs of id and value.
    pub async fn open(addr: SocketAddr, settings: &[(u16, u32)]) -> Wire {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (reader, writer) = stream.into_split();
        let mut wire = Wire { reader, writer };
        let mut payload = Vec::new();
        for (id, value) in settings {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut first = PREFACE.to_vec();
        first.extend(bytes(SETTINGS, 0, 0, &payload));
        wire.write(&first).await;
        wire
    }

    /// Writes bytes; who is cut off inside them reads why.
    pub async fn write(&mut self, bytes: &[u8]) {
        let _ = self.writer.write_all(bytes).await;
    }

    /// Writes as much as the other side takes while its answers are read too, and returns the last frame that is an end of anything.
    pub async fn pour(&mut self, bytes: &[u8]) -> Option<End> {
        let Wire { reader, writer } = self;
        let write = async {
            let _ = writer.write_all(bytes).await;
            std::future::pending::<()>().await;
        };
        let read = async {
            loop {
                match next(reader).await {
                    None => return Some(End::Closed),
                    Some(frame) if frame.kind == GOAWAY => return Some(goodbye(&frame)),
                    // The answer to the ping behind all of it.
                    Some(frame) if frame.kind == PING && frame.payload == LAST => return None,
                    Some(_) => {}
                }
            }
        };
        soon(async {
            tokio::select! {
                () = write => unreachable!("it never ends"),
                end = read => end,
            }
        })
        .await
    }

    /// How this stream ends, or the connection.
    pub async fn end(&mut self, stream: u32) -> End {
        let (mut ok, mut body) = (false, Vec::new());
        soon(async {
            loop {
                let Some(frame) = next(&mut self.reader).await else {
                    return End::Closed;
                };
                match frame.kind {
                    GOAWAY => return goodbye(&frame),
                    RST_STREAM if frame.stream == stream => {
                        return End::Reset(number(&frame.payload));
                    }
                    // `:status: 200` is entry 8 of the static table.
                    HEADERS if frame.stream == stream => ok |= frame.payload.first() == Some(&0x88),
                    DATA if frame.stream == stream => body.extend_from_slice(&frame.payload),
                    _ => continue,
                }
                if frame.stream == stream && frame.flags & END_STREAM != 0 {
                    let body = String::from_utf8_lossy(&body).into_owned();
                    return End::Answered { ok, body };
                }
            }
        })
        .await
    }
}

/// The ping that marks the end of what is poured.
pub const LAST: &[u8] = b"the last";

async fn next(reader: &mut OwnedReadHalf) -> Option<Frame> {
    let mut head = [0; 9];
    reader.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    reader.read_exact(&mut payload).await.ok()?;
    Some(Frame {
        kind: head[3],
        flags: head[4],
        stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
        payload,
    })
}

fn number(payload: &[u8]) -> u32 {
    payload[..4].try_into().map(u32::from_be_bytes).unwrap()
}

fn goodbye(frame: &Frame) -> End {
    let text = String::from_utf8_lossy(&frame.payload[8..]).into_owned();
    End::Goaway(number(&frame.payload[4..]), text)
}

/// A header block of literal fields, as they are.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    let text = |block: &mut Vec<u8>, text: &str| {
        match u8::try_from(text.len()) {
            Ok(length) if length < 127 => block.push(length),
            _ => {
                block.push(127);
                let mut rest = text.len() - 127;
                while rest >= 128 {
                    block.push(u8::try_from(rest % 128).unwrap() | 128);
                    rest /= 128;
                }
                block.push(u8::try_from(rest).unwrap());
            }
        }
        block.extend_from_slice(text.as_bytes());
    };
    for (name, value) in fields {
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    block
}

/// The fields of a chat request.
pub const CHAT: [(&str, &str); 5] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "g"),
    (":path", "/v1/chat/completions"),
    ("content-type", "application/json"),
];

/// A whole request: its head, and its body in one piece.
pub fn request(stream: u32, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut frames = bytes(HEADERS, END_HEADERS, stream, &block(fields));
    frames.extend(bytes(DATA, END_STREAM, stream, body.as_bytes()));
    frames
}
