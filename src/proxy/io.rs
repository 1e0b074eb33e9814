//! Reading without room that is held while nothing comes.

use std::future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of a usual request or answer. So many are read on the stack and kept in as much room as they take: thousands of connections wait
/// at any moment, and room for what may come would be most of what each of them holds.
pub(super) const READ_BYTES: usize = 4 << 10;

/// Most that is read at once.
const READ_BYTES_MAX: usize = 64 << 10;

/// Room for the next read after one that had room and gave so much. It grows where much comes, and only as long as it does.
pub(super) fn next_room(room: usize, read: usize) -> usize {
    match read {
        _ if read >= room => (2 * room).min(READ_BYTES_MAX),
        _ if read < room / 2 => READ_BYTES,
        _ => room,
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
