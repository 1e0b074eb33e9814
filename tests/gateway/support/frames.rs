//! The server side of HTTP/2, frame by frame, for what no library would send.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::raw::Link;

/// One frame.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const PRIORITY: u8 = 2;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// What a client begins with.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const NO_ERROR: u32 = 0;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// The bytes of a frame.
pub fn bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

impl Link {
    /// Reads the preface and sends settings, as pairs of id and value.
    pub async fn greet(&mut self, settings: &[(u16, u32)]) -> Option<()> {
        let mut preface = [0; 24];
        self.stream.read_exact(&mut preface).await.ok()?;
        let mut payload = Vec::new();
        for (id, value) in settings {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.frame(SETTINGS, 0, 0, &payload).await;
        // A wide window for the connection: the tests' bodies are small, their number is not.
        self.frame(WINDOW_UPDATE, 0, 0, &0x0100_0000_u32.to_be_bytes())
            .await;
        Some(())
    }

    /// Writes a frame.
    pub async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.bytes(&bytes(kind, flags, stream, payload)).await;
    }

    /// Writes bytes as they are.
    pub async fn bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next frame; settings and pings are acknowledged on the way.
    pub async fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let frame = Frame {
                kind: head[3],
                flags: head[4],
                stream,
                payload,
            };
            let acknowledged = frame.flags & 1 == 1;
            match frame.kind {
                SETTINGS if !acknowledged => self.frame(SETTINGS, 1, 0, &[]).await,
                6 if !acknowledged => self.frame(6, 1, 0, &frame.payload).await,
                SETTINGS | 6 | WINDOW_UPDATE => {}
                _ => return Some(frame),
            }
        }
    }

    /// Reads until a request is complete, counts it, and returns its stream.
    pub async fn stream(&mut self) -> Option<u32> {
        loop {
            let frame = self.next_frame().await?;
            let ends = matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0;
            if ends {
                self.count();
                return Some(frame.stream);
            }
        }
    }

    /// Resets a stream.
    pub async fn rst(&mut self, stream: u32, code: u32) {
        self.frame(RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    /// Says goodbye.
    pub async fn goaway(&mut self, last: u32, code: u32) {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend_from_slice(&code.to_be_bytes());
        self.frame(GOAWAY, 0, 0, &payload).await;
    }

    /// Answers a stream with a JSON body.
    pub async fn answer_h2(&mut self, stream: u32, status: &str, body: &str) {
        self.head_h2(stream, status, "application/json").await;
        self.frame(DATA, END_STREAM, stream, body.as_bytes()).await;
    }

    /// The head of an answer.
    pub async fn head_h2(&mut self, stream: u32, status: &str, content_type: &str) {
        // Literal fields with names of the static table: `:status` is 8, `content-type` 31.
        let mut block = vec![0x08, u8::try_from(status.len()).unwrap()];
        block.extend_from_slice(status.as_bytes());
        block.extend_from_slice(&[0x0f, 0x10, u8::try_from(content_type.len()).unwrap()]);
        block.extend_from_slice(content_type.as_bytes());
        self.frame(HEADERS, END_HEADERS, stream, &block).await;
    }
}
