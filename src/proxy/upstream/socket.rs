//! What bytes to an upstream go through: a plain TCP connection, or Pingora's TLS stream over one.
//!
//! Plain ones are our own, since Pingora's streams look at the clock at every read and write, and are dispatched twice.

use std::io::{IoSlice, Result};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use pingora_core::protocols::Stream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A socket.
#[derive(Debug)]
pub enum Socket {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS, or whatever else Pingora connected.
    Other(Stream),
}

impl Socket {
    /// Connects without TLS. What is written leaves at once: pieces are gathered before they are written.
    pub async fn connect(address: SocketAddr) -> Result<Socket> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Socket::Plain(stream))
    }

    /// Whether an idle connection can carry a request: its server has neither closed it nor said anything.
    pub fn is_quiet(&mut self) -> bool {
        let mut byte = [0; 1];
        let read = tokio::task::unconstrained(self.read(&mut byte));
        read.now_or_never().is_none()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::Other(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Other(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(context),
            Socket::Other(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Other(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Socket::Other(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Plain(stream) => stream.is_write_vectored(),
            Socket::Other(stream) => stream.is_write_vectored(),
        }
    }
}
