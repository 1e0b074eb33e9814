//! What an upgraded connection becomes: two halves, each read and written without waiting for the other.
//!
//! Not here: frames, which nobody reads, and the handshake, which is an attempt like any other. Invariants: a tunnel ends when either side
//! closes, after a silence of both, or at the total limit; what ended it is told once, as the error that Pingora's pump ends with. An error
//! it has to be: after the proper end of an upgraded answer the custom pump of Pingora 0.9.1 waits for the client to close
//! (`upgrades::the_upstream_leaves`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use pingora_core::protocols::http::custom::BodyWrite;
use pingora_core::{Error, ErrorType, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::http1::Http1;
use super::socket::Socket;
use crate::proxy::operation::OperationCell;

/// The error of a tunnel that one of its ends has closed: its proper end.
pub const TUNNEL_CLOSED: ErrorType = ErrorType::Custom("the tunnel was closed");

/// Bytes read at once: a few frames of speech.
const READ_BYTES: usize = 16 << 10;
/// Time for the close of the writing half to leave.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// The writing end, which Pingora takes before there is a connection. Empty until the upstream has switched protocols.
#[derive(Default)]
pub(super) struct Slot {
    writer: Mutex<Option<Writer>>,
}

struct Writer {
    half: WriteHalf<Socket>,
    shared: Arc<Shared>,
    limits: Limits,
    cell: Arc<OperationCell>,
}

/// How long a tunnel may last.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Longest silence of both sides, and longest pause of a write.
    pub idle: Duration,
    /// When it has to be over.
    pub total_ends: Instant,
}

/// What both halves know.
struct Shared {
    active: Mutex<Instant>,
    end: Mutex<Option<Box<Error>>>,
    ended: Notify,
}

impl Shared {
    fn touch(&self) {
        *self.active.lock() = Instant::now();
    }

    /// The first end counts.
    fn end(&self, error: Box<Error>) {
        self.end.lock().get_or_insert(error);
        self.ended.notify_one();
    }
}

/// The reading end.
pub(super) struct Tunnel {
    half: ReadHalf<Socket>,
    shared: Arc<Shared>,
    limits: Limits,
}

impl Tunnel {
    /// Splits an upgraded connection. The bytes are those that came with the head.
    pub(super) fn open(
        connection: Http1,
        slot: &Slot,
        cell: &Arc<OperationCell>,
        limits: Limits,
    ) -> (Tunnel, Option<Bytes>) {
        let (socket, early) = connection.into_parts();
        let early = Some(early).filter(|early| !early.is_empty());
        let (half, writer) = tokio::io::split(socket);
        let shared = Arc::new(Shared {
            active: Mutex::new(Instant::now()),
            end: Mutex::new(None),
            ended: Notify::new(),
        });
        *slot.writer.lock() = Some(Writer {
            half: writer,
            shared: Arc::clone(&shared),
            limits,
            cell: Arc::clone(cell),
        });
        let tunnel = Tunnel {
            half,
            shared,
            limits,
        };
        (tunnel, early)
    }

    /// The next bytes for the client, or what ended the tunnel.
    pub(super) async fn read(&mut self) -> Result<Bytes> {
        let mut bytes = BytesMut::with_capacity(READ_BYTES);
        let Limits { idle, total_ends } = self.limits;
        loop {
            let silent_since = *self.shared.active.lock();
            let due = total_ends.min(silent_since + idle);
            tokio::select! {
                read = self.half.read_buf(&mut bytes) => return match read {
                    Ok(0) => Err(Error::new_up(TUNNEL_CLOSED)),
                    Ok(_) => {
                        self.shared.touch();
                        Ok(bytes.freeze())
                    }
                    Err(error) => {
                        Err(Error::because(ErrorType::ReadError, "reading a tunnel", error).into_up())
                    }
                },
                () = self.shared.ended.notified() => {
                    let end = self.shared.end.lock().take();
                    return Err(end.unwrap_or_else(|| Error::new_up(TUNNEL_CLOSED)));
                }
                () = sleep_until(due) => {
                    if Instant::now() >= total_ends || *self.shared.active.lock() == silent_since {
                        let late = "the tunnel was silent too long, or open too long";
                        return Err(Error::explain(ErrorType::ReadTimedout, late).into_up());
                    }
                }
            }
        }
    }
}

/// Pingora's writer of a request body. Before the switch it takes nothing; after it, the client's frames.
///
/// It never fails: an error here would leave Pingora's pump waiting for the other direction. The reading end tells it.
#[derive(Default)]
pub(super) struct TunnelWriter {
    slot: Arc<Slot>,
    writer: Option<Writer>,
}

impl TunnelWriter {
    pub(super) fn new(slot: Arc<Slot>) -> TunnelWriter {
        TunnelWriter { slot, writer: None }
    }
}

#[async_trait]
impl BodyWrite for TunnelWriter {
    async fn write_all_buf(&mut self, data: &mut Bytes) -> Result<()> {
        if let Some(writer) = self.writer.as_mut() {
            let write = async {
                writer.half.write_all(data).await?;
                writer.half.flush().await
            };
            match timeout(writer.limits.idle, write).await {
                Ok(Ok(())) => writer.shared.touch(),
                Ok(Err(error)) => {
                    let error =
                        Error::because(ErrorType::WriteError, "writing into a tunnel", error);
                    writer.shared.end(error.into_up());
                }
                Err(_) => {
                    let late = Error::explain(ErrorType::ReadTimedout, "the target takes nothing");
                    writer.shared.end(late.into_up());
                }
            }
        }
        data.clear();
        Ok(())
    }

    /// The client has closed: the proper end of a tunnel, although Pingora will call it an error of the client's connection.
    async fn finish(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.as_mut() {
            writer.cell.wrote(0, true);
            let _ = timeout(CLOSE_TIME, writer.half.shutdown()).await;
            writer.shared.end(Error::new_up(TUNNEL_CLOSED));
        }
        Ok(())
    }

    async fn cleanup(&mut self) -> Result<()> {
        Ok(())
    }

    fn upgrade_body_writer(&mut self) {
        if self.writer.is_none() {
            self.writer = self.slot.writer.lock().take();
        }
    }
}
