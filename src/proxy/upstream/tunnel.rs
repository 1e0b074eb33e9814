//! What an upgraded connection becomes: bytes in both directions, each read and written without waiting for the other.
//!
//! Not here: frames, which nobody reads, and the handshake, which is an attempt like any other. Invariants: a tunnel ends when either side
//! closes, after a silence of both, or at the total limit; what ended it is told once.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use pingora_core::protocols::Stream;
use pingora_core::{Error, ErrorType, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until, timeout};

use super::http1::Http1;
use super::socket::Socket;
use crate::proxy::operation::OperationCell;

/// Bytes read at once: a few frames of speech.
const READ_BYTES: usize = 16 << 10;
/// Time for the close of the writing half to leave.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// How long a tunnel may last.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Longest silence of both sides, and longest pause of a write to the target.
    pub idle: Duration,
    /// When it has to be over.
    pub total_ends: Instant,
}

/// The target's end of a tunnel.
pub struct Tunnel {
    socket: Socket,
    /// What came with the head.
    early: Bytes,
    cell: Arc<OperationCell>,
    limits: Limits,
}

impl Tunnel {
    pub(super) fn new(connection: Http1, cell: Arc<OperationCell>, limits: Limits) -> Tunnel {
        let (socket, early) = connection.into_parts();
        Tunnel {
            socket,
            early,
            cell,
            limits,
        }
    }

    /// Passes bytes on until the tunnel ends; `Ok` is its proper end. `early` is what the client sent before there was a tunnel, and no
    /// write to it may take longer than `pause_max`.
    pub async fn run(
        self,
        client: &mut Stream,
        early: BytesMut,
        pause_max: Duration,
    ) -> Result<()> {
        let (cell, limits) = (&self.cell, self.limits);
        let active = Active(Mutex::new(Instant::now()));
        let (mut from_target, mut to_target) = split(self.socket);
        let (mut from_client, mut to_client) = split(client);
        let down = async {
            let mut part = BytesMut::from(&*self.early);
            loop {
                if !part.is_empty() {
                    active.touch();
                    cell.wrote(part.len(), false);
                    let write = write_all(&mut to_client, &part);
                    let wrote = timeout(pause_max, write).await;
                    match wrote {
                        Ok(wrote) => wrote.map_err(Error::into_down)?,
                        Err(_) => return Err(slow_client()),
                    }
                }
                if read(&mut from_target, &mut part)
                    .await
                    .map_err(Error::into_up)?
                    == 0
                {
                    return Ok(());
                }
            }
        };
        let up = async {
            let mut part = early;
            loop {
                if !part.is_empty() {
                    active.touch();
                    let write = write_all(&mut to_target, &part);
                    match timeout(limits.idle, write).await {
                        Ok(wrote) => wrote.map_err(Error::into_up)?,
                        Err(_) => return Err(late("the target takes nothing")),
                    }
                }
                if read(&mut from_client, &mut part)
                    .await
                    .map_err(Error::into_down)?
                    == 0
                {
                    let _ = timeout(CLOSE_TIME, to_target.shutdown()).await;
                    return Ok(());
                }
            }
        };
        let ended = tokio::select! {
            biased;
            ended = down => ended,
            ended = up => ended,
            error = active.silence(limits) => Err(error),
        };
        if ended.is_ok() {
            cell.wrote(0, true);
        }
        ended
    }
}

/// When something last passed.
struct Active(Mutex<Instant>);

impl Active {
    fn touch(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Resolves when nothing has passed for too long, or the tunnel has been open too long.
    async fn silence(&self, limits: Limits) -> Box<Error> {
        loop {
            let since = *self.0.lock();
            sleep_until(limits.total_ends.min(since + limits.idle)).await;
            if Instant::now() >= limits.total_ends || *self.0.lock() == since {
                return late("the tunnel was silent too long, or open too long");
            }
        }
    }
}

/// Reads the next bytes in place of the last; 0 at the end.
async fn read(from: &mut (impl AsyncRead + Unpin), part: &mut BytesMut) -> Result<usize> {
    part.clear();
    part.reserve(READ_BYTES);
    let read = from.read_buf(part).await;
    read.map_err(|cause| Error::because(ErrorType::ReadError, "reading a tunnel", cause))
}

async fn write_all(to: &mut (impl AsyncWrite + Unpin), part: &[u8]) -> Result<()> {
    let write = async {
        to.write_all(part).await?;
        to.flush().await
    };
    let wrote = write.await;
    wrote.map_err(|cause| Error::because(ErrorType::WriteError, "writing into a tunnel", cause))
}

fn late(why: &'static str) -> Box<Error> {
    Error::explain(ErrorType::ReadTimedout, why).into_up()
}

fn slow_client() -> Box<Error> {
    Error::explain(ErrorType::WriteTimedout, "the client reads too slowly").into_down()
}
