//! One accepted connection: which protocol it speaks, and ending it from inside an answer.
//!
//! Not here: what is answered. hyper drops what it holds when a body fails, unwritten bytes included; an answer that is to break off after so many bytes therefore
//! asks [`Control`] to end the connection, and [`drive`] ends it only after the bytes have reached the socket.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

use super::answer::Close;

/// What an HTTP/2 client sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const OPEN: u8 = 0;
const CLOSED_BY_US: u8 = 1;
const RESET_BY_US: u8 = 2;

/// The state that a connection shares with the answers given on it.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Number of the connection.
    pub id: u64,
    end: AtomicU8,
    flushes: AtomicU64,
    /// Chunks of bodies that are to break off and that hyper still holds.
    unwritten: AtomicU64,
    ending: Notify,
}

impl Control {
    /// The state of a new connection.
    pub fn new(id: u64) -> Control {
        Control {
            id,
            ..Control::default()
        }
    }

    /// Ends the connection as soon as what was sent before is written.
    pub fn finish(&self, close: Close) {
        let end = match close {
            Close::Orderly => CLOSED_BY_US,
            Close::Reset => RESET_BY_US,
        };
        self.end.store(end, Ordering::SeqCst);
        self.ending.notify_one();
    }

    /// Whether this side ended the connection.
    pub fn is_ended_by_us(&self) -> bool {
        self.end.load(Ordering::SeqCst) != OPEN
    }
}

/// Runs a connection until it ends, an answer ends it, or the server stops.
pub(super) async fn drive(
    connection: impl Future,
    control: &Control,
    stop: &mut watch::Receiver<bool>,
) {
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = control.ending.notified() => {}
        () = stopped(stop) => {
            control.finish(Close::Orderly);
            return;
        }
    }
    // What hyper gave up may still be in its buffer: one more flush after that, and the socket has it.
    let mut flushes = None;
    let written = poll_fn(|cx| {
        loop {
            let is_over = connection.as_mut().poll(cx).is_ready();
            let flushed = control.flushes.load(Ordering::SeqCst);
            let is_held = control.unwritten.load(Ordering::SeqCst) > 0;
            match flushes {
                _ if is_over => return Poll::Ready(()),
                _ if is_held => return Poll::Pending,
                None => flushes = Some(flushed),
                Some(before) if flushed > before => return Poll::Ready(()),
                Some(_) => return Poll::Pending,
            }
        }
    });
    tokio::select! {
        () = written => {}
        () = stopped(stop) => {}
    }
}

/// Waits until the server stops.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which is the same.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// Bytes of a body; those of a body that is to break off are counted until hyper has written them.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: Bytes,
    counted: Option<Arc<Control>>,
}

impl Chunk {
    /// Bytes that nobody waits for.
    pub fn plain(bytes: Bytes) -> Chunk {
        Chunk {
            bytes,
            counted: None,
        }
    }

    /// Bytes that must be written before the connection may be ended.
    pub fn counted(bytes: Bytes, control: &Arc<Control>) -> Chunk {
        control.unwritten.fetch_add(1, Ordering::SeqCst);
        Chunk {
            bytes,
            counted: Some(Arc::clone(control)),
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(control) = &self.counted {
            control.unwritten.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        self.bytes.copy_to_bytes(count)
    }
}

/// The protocol a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1
    Http1,
    /// HTTP/2 with prior knowledge
    Http2,
}

/// Reads as much as tells the protocol; `None` when the client left first.
pub(super) async fn sniff(tcp: &mut TcpStream) -> io::Result<Option<(Protocol, Bytes)>> {
    let mut read = Vec::with_capacity(PREFACE.len());
    while read.len() < PREFACE.len() {
        let missing = PREFACE.len() - read.len();
        if tcp.take(missing as u64).read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
        if !PREFACE.starts_with(&read) {
            return Ok(Some((Protocol::Http1, Bytes::from(read))));
        }
    }
    Ok(Some((Protocol::Http2, Bytes::from(read))))
}

/// A socket whose first bytes were already read, and which counts its flushes.
pub(super) struct Wire {
    tcp: TcpStream,
    first: Bytes,
    control: Arc<Control>,
}

impl Wire {
    /// A socket after [`sniff`].
    pub fn new(tcp: TcpStream, first: Bytes, control: Arc<Control>) -> Wire {
        Wire {
            tcp,
            first,
            control,
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.control.end.load(Ordering::SeqCst) == RESET_BY_US {
            let _ = self.tcp.set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.tcp).poll_read(cx, buffer);
        }
        let count = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.tcp).poll_flush(cx))?;
        self.control.flushes.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
