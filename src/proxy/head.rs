//! The size of an HTTP/1.1 head, kept where its bytes are read.
//!
//! Not here: the time for it (`front`), and what it says. Invariant: once a head is read, bytes pass as they are.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use async_trait::async_trait;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::{SslDigest, TlsRef};
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::core::limits::HEAD_BYTES_MAX;

/// Sent to who sends too much, if the socket takes it at once.
const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Where a connection stands between one head and the next.
pub(super) struct Head {
    /// How many heads were waited for.
    begun: AtomicU64,
    is_read: AtomicBool,
    refused: Notify,
}

impl Head {
    pub(super) fn new() -> Head {
        Head {
            begun: AtomicU64::new(0),
            is_read: AtomicBool::new(false),
            refused: Notify::new(),
        }
    }

    /// The next head is waited for.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.is_read.store(false, Ordering::Release);
    }

    /// It has come.
    pub(super) fn end(&self) {
        self.is_read.store(true, Ordering::Release);
    }

    /// Whether it has come.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    /// Waits until it was refused.
    pub(super) async fn refused(&self) {
        self.refused.notified().await;
    }
}

/// A connection whose heads are watched.
pub(super) struct Watched {
    stream: Stream,
    head: Arc<Head>,
    /// The head that the bytes are of.
    number: u64,
    bytes: usize,
}

impl Watched {
    /// A connection before its first head.
    pub(super) fn new(stream: Stream, head: Arc<Head>) -> Watched {
        Watched {
            stream,
            head,
            number: 0,
            bytes: 0,
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let number = self.head.begun.load(Ordering::Relaxed);
        if number != self.number {
            (self.number, self.bytes) = (number, 0);
        }
        // Asked before the next read, so that the body behind a head does not count.
        if self.bytes >= HEAD_BYTES_MAX {
            return self.refuse(cx);
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.bytes += buf.filled().len().saturating_sub(before);
        read
    }

    fn refuse(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = Pin::new(&mut self.stream).poll_write(cx, TOO_LARGE);
        let _ = Pin::new(&mut self.stream).poll_flush(cx);
        self.head.refused.notify_one();
        Poll::Pending
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.head.is_read() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        self.poll_head(cx, buf)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

#[async_trait]
impl Shutdown for Watched {
    async fn shutdown(&mut self) {
        Shutdown::shutdown(&mut *self.stream).await;
    }
}

#[async_trait]
impl Peek for Watched {
    async fn try_peek(&mut self, buf: &mut [u8]) -> io::Result<bool> {
        self.stream.try_peek(buf).await
    }
}

impl UniqueID for Watched {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

impl Ssl for Watched {
    fn get_ssl(&self) -> Option<&TlsRef> {
        self.stream.get_ssl()
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.stream.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.stream.selected_alpn_proto()
    }
}

impl GetTimingDigest for Watched {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.stream.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.stream.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.stream.get_write_pending_time()
    }
}

impl GetProxyDigest for Watched {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.get_proxy_digest()
    }

    fn set_proxy_digest(&mut self, digest: ProxyDigest) {
        self.stream.set_proxy_digest(digest);
    }
}

impl GetSocketDigest for Watched {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }

    fn set_socket_digest(&mut self, digest: SocketDigest) {
        self.stream.set_socket_digest(digest);
    }
}
