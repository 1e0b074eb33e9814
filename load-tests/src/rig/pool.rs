//! Connections of the load to one port, and what comes back over them. When to send is `load`'s business.
//!
//! Invariant: every started request ends in exactly one [`Done`], or is counted as unfinished.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use super::http::{Decoder, Role, Stamps};
use super::sys::{Poller, Ready, now};

/// Bytes read at once.
const READ_MAX: usize = 64 << 10;

/// The end of one request.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Its connection.
    pub place: usize,
    /// When it was meant to begin.
    pub due: u64,
    /// When its last byte was read.
    pub ended: u64,
    /// The answer's status; nothing when the connection ended before the answer did.
    pub status: Option<u16>,
}

struct Connection {
    stream: Option<TcpStream>,
    request: Arc<[u8]>,
    written: usize,
    due: u64,
    busy: bool,
    decoder: Decoder,
    stamps: Stamps,
    events: u64,
}

/// Connections to one port.
pub struct Pool {
    poller: Poller,
    port: u16,
    requests: Vec<Arc<[u8]>>,
    connections: Vec<Connection>,
    ready: Vec<Ready>,
    buffer: Vec<u8>,
    /// What ended since it was last emptied.
    pub done: Vec<Done>,
    /// Nanoseconds from the writing to the reading of each event of a stream.
    pub ages: Vec<u64>,
    /// Connections that were made anew after the other side had closed them.
    pub reopened: u64,
    /// Streams that have begun.
    pub begun: usize,
}

impl Pool {
    /// No connection yet. The requests are sent in turn.
    pub fn new(port: u16, requests: Vec<Arc<[u8]>>) -> io::Result<Pool> {
        Ok(Pool {
            poller: Poller::new()?,
            port,
            requests,
            connections: Vec::new(),
            ready: Vec::new(),
            buffer: vec![0; READ_MAX],
            done: Vec::new(),
            ages: Vec::new(),
            reopened: 0,
            begun: 0,
        })
    }

    /// Connects once more; the place of the connection.
    pub fn open(&mut self) -> io::Result<usize> {
        let place = self.connections.len();
        let request = self
            .requests
            .get(place % self.requests.len().max(1))
            .cloned();
        self.connections.push(Connection {
            stream: Some(connect(&self.poller, self.port, place)?),
            request: request.unwrap_or_default(),
            written: 0,
            due: 0,
            busy: false,
            decoder: Decoder::new(Role::Answer),
            stamps: Stamps::default(),
            events: 0,
        });
        Ok(place)
    }

    /// Sends a request that was due at `due`. A connection that the other side closed is made anew first.
    pub fn start(&mut self, place: usize, due: u64) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(place) else {
            return Ok(());
        };
        if connection.stream.is_none() {
            self.reopened += 1;
            connection.stream = Some(connect(&self.poller, self.port, place)?);
        }
        connection.decoder = Decoder::new(Role::Answer);
        connection.stamps = Stamps::default();
        (connection.due, connection.busy) = (due, true);
        (connection.written, connection.events) = (0, 0);
        connection.push(&self.poller, place);
        Ok(())
    }

    /// Closes the connection of this place.
    pub fn close(&mut self, place: usize) {
        if let Some(connection) = self.connections.get_mut(place) {
            (connection.stream, connection.busy) = (None, false);
        }
    }

    /// When each request that has not ended was due.
    pub fn unfinished(&self) -> Vec<u64> {
        let busy = self.connections.iter().filter(|connection| connection.busy);
        busy.map(|connection| connection.due).collect()
    }

    /// Waits until `until` at most for something to happen, and does what there is to do.
    pub fn poll(&mut self, until: u64) -> io::Result<()> {
        self.poller.wait(until, &mut self.ready)?;
        for at in 0..self.ready.len() {
            let Some(event) = self.ready.get(at).copied() else {
                break;
            };
            let Some(connection) = self.connections.get_mut(event.token) else {
                continue;
            };
            if event.writable {
                connection.push(&self.poller, event.token);
            }
            if event.readable {
                self.read(event.token);
            }
        }
        self.ready.clear();
        Ok(())
    }

    fn read(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        let Some(stream) = connection.stream.as_mut() else {
            return;
        };
        let read = match stream.read(&mut self.buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            read => read.unwrap_or(0),
        };
        let ended = now();
        if read == 0 {
            let whole = connection.decoder.ends_with_connection();
            connection.stream = None;
            if std::mem::take(&mut connection.busy) {
                let status = whole.then_some(connection.decoder.status);
                self.done.push(Done {
                    place,
                    due: connection.due,
                    ended,
                    status,
                });
            }
            return;
        }
        let Connection {
            decoder,
            stamps,
            events,
            ..
        } = connection;
        let (ages, begun) = (&mut self.ages, &mut self.begun);
        let complete = decoder.feed(self.buffer.get(..read).unwrap_or_default(), &mut |bytes| {
            stamps.feed(bytes, &mut |stamp| {
                *begun += usize::from(*events == 0);
                *events += 1;
                ages.push(ended.saturating_sub(stamp));
            });
        });
        if complete.is_some() && std::mem::take(&mut connection.busy) {
            let status = Some(connection.decoder.status);
            self.done.push(Done {
                place,
                due: connection.due,
                ended,
                status,
            });
            if connection.decoder.close {
                connection.stream = None;
            }
        }
    }
}

impl Connection {
    /// Writes what is left of the request. What breaks is seen by the reading side.
    fn push(&mut self, poller: &Poller, place: usize) {
        let Some(stream) = self.stream.as_mut() else {
            return;
        };
        let waited = self.written > 0;
        while let Some(rest) = self
            .request
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            match stream.write(rest) {
                Ok(written) => self.written += written,
                Err(_) => break,
            }
        }
        let waits = self.written < self.request.len();
        if waits || waited {
            let _ = poller.set_writing(stream, place, waits);
        }
    }
}

fn connect(poller: &Poller, port: u16, place: usize) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    poller.add(&stream, place)?;
    Ok(stream)
}
