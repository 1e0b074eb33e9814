//! Reading without room that is held while nothing comes.

use std::future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::wire::HeadSearch;

/// Bytes of a usual request or answer. So many are read on the stack and kept in as much room as they take: thousands of connections wait
/// at any moment, and room for what may come would be most of what each of them holds.
const READ_BYTES: usize = 4 << 10;

/// Most that is read at once.
const READ_BYTES_MAX: usize = 64 << 10;

/// Room for the next read after one that had room and gave so much. It grows where much comes, and only as long as it does.
fn next_room(room: usize, read: usize) -> usize {
    match read {
        _ if read >= room => (2 * room).min(READ_BYTES_MAX),
        _ if read < room / 2 => READ_BYTES,
        _ => room,
    }
}

/// What was read of a connection and not yet taken.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) bytes: BytesMut,
    /// Room for the next read.
    room: usize,
    search: HeadSearch,
}

impl Incoming {
    pub(super) fn new() -> Incoming {
        Incoming {
            bytes: BytesMut::new(),
            room: READ_BYTES,
            search: HeadSearch::default(),
        }
    }

    /// Reads more; 0 at the end. May be given up at any point.
    pub(super) async fn fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<usize> {
        let read = if self.room > READ_BYTES {
            self.bytes.reserve(self.room);
            stream.read_buf(&mut self.bytes).await?
        } else {
            read_small(stream, &mut self.bytes).await?
        };
        self.room = next_room(self.room, read);
        Ok(read)
    }

    /// Whether a whole head may be there that was not at the last question.
    pub(super) fn may_have_head(&mut self) -> bool {
        self.search.is_due(&self.bytes)
    }

    /// Passes over so much before a head.
    pub(super) fn skip(&mut self, count: usize) {
        self.bytes.advance(count);
        self.search_anew();
    }

    /// What comes next is another head.
    pub(super) fn search_anew(&mut self) {
        self.search = HeadSearch::default();
    }

    /// The next message is as small as most.
    pub(super) fn expect_little(&mut self) {
        self.room = READ_BYTES;
    }

    /// Lets go of room that nothing is left in: its other parts may be held for long, and it is held with each.
    pub(super) fn free(&mut self) {
        if self.bytes.is_empty() {
            self.clear();
        }
    }

    /// Lets go of everything.
    pub(super) fn clear(&mut self) {
        self.bytes = BytesMut::new();
    }
}

/// Reads at most [`READ_BYTES`] behind what is there; 0 at the end. May be given up at any point.
pub(super) async fn read_small(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut BytesMut,
) -> io::Result<usize> {
    future::poll_fn(|context| poll_read_small(stream, bytes, context)).await
}

/// One look for that.
pub(super) fn poll_read_small(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut BytesMut,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut room = [const { MaybeUninit::uninit() }; READ_BYTES];
    let mut read = ReadBuf::uninit(&mut room);
    ready!(Pin::new(stream).poll_read(context, &mut read))?;
    bytes.extend_from_slice(read.filled());
    Poll::Ready(Ok(read.filled().len()))
}
