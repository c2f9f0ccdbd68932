//! A connection that never blocks and never uses more memory than a few frames, whatever the peer does.

use super::super::wire::{Frame, MAX_FRAME_BYTES, Malformed};
use super::super::wire::{Session, TAG_BYTES};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;

/// Limit of the send buffer. Downwards only short commands are sent; upwards, the states of a host's ranks.
const MAX_OUTGOING_BYTES: usize = 1 << 18;
const MAX_INCOMING_BYTES: usize = 1 << 14;

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Set once the greeting was sent, or accepted.
    session: Option<Session>,
}

impl Connection {
    pub(super) fn of(stream: TcpStream) -> Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, incoming: Vec::new(), outgoing: Vec::new(), session: None })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Receives available data, at most as much as fits into the buffer.
    ///
    /// # Errors
    /// If the other end is gone and no received data is left.
    pub(super) fn receive(&mut self) -> Result<()> {
        let mut bytes = [0; 4096];
        while self.incoming.len() + bytes.len() <= MAX_INCOMING_BYTES {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.incoming.extend(&bytes[..count]),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    /// Received data that was not consumed yet.
    pub(super) fn incoming(&self) -> &[u8] {
        &self.incoming
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.incoming.drain(..bytes);
    }

    /// The next complete frame.
    pub(super) fn next_frame(&mut self) -> std::result::Result<Option<Frame>, Malformed> {
        let Some(session) = &mut self.session else { return Err(Malformed) };
        let Some((frame, taken)) = session.opener.open(&self.incoming)? else { return Ok(None) };
        self.take(taken);
        Ok(Some(frame))
    }

    /// Seals and opens all further frames with this session.
    pub(super) fn begin(&mut self, session: Session) {
        self.session = Some(session);
    }

    /// Queues a frame. False if there was no greeting yet, or the other end stopped receiving and the buffer is full.
    pub(super) fn queue(&mut self, frame: &Frame) -> bool {
        let Some(session) = &mut self.session else { return false };
        if self.outgoing.len() + MAX_FRAME_BYTES + TAG_BYTES > MAX_OUTGOING_BYTES {
            return false;
        }
        session.sealer.seal(frame, &mut self.outgoing);
        true
    }

    pub(super) fn queue_bytes(&mut self, bytes: &[u8]) {
        self.outgoing.extend(bytes);
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(0) => return Err(Error::from(ErrorKind::WriteZero)),
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }
}
