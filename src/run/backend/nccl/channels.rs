//! One-way channels for the messages of a replay: a communicator of two ranks and a stream for each sender, receiver
//! and message stream.
//!
//! On a single stream a send would block a later receive, and two ranks that both send first would deadlock. With
//! separate channels, messages start when the program starts them, as they do over MPI.

use super::channel::{Channel, ChannelEnd, Route};
use super::driver;
use super::first_call::FirstCall;
use super::memory::Arena;
use super::prepared::Prepared;
use super::state::NcclBackend;
use super::unique_id::read_id;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use std::rc::Rc;
use std::sync::Arc;

impl NcclBackend {
    /// Opens the channels of all ranks that are not open yet. Called by all ranks, each with the routes on which it sends.
    pub(super) fn open_channels(&mut self, mut sends_on: Vec<Route>) -> Result<()> {
        sends_on.sort_unstable();
        sends_on.dedup();
        sends_on.retain(|route| !self.replays.channels.contains_key(route));
        let mine: Vec<(Route, Vec<u8>)> =
            sends_on.into_iter().map(|route| Ok((route, self.maker.unique_id()?.0.to_vec()))).collect::<Result<_>>()?;
        let broken =
            |cause: serde_json::Error| Error::environment(format!("cannot pass on the routes of messages: {cause}"));
        let mine = serde_json::to_vec(&mine).map_err(broken)?;
        let mut all: Vec<(Route, Vec<u8>)> = Vec::new();
        for bytes in self.world.gather_bytes(&mine)? {
            all.extend(serde_json::from_slice::<Vec<_>>(&bytes).map_err(broken)?);
        }
        // The same order on all ranks, since opening a channel blocks until the other end opens it.
        all.sort_unstable();
        let mut shared = serde_json::to_vec(&all).map_err(broken)?;
        self.world.broadcast_bytes(&mut shared)?;
        let all: Vec<(Route, Vec<u8>)> = serde_json::from_slice(&shared).map_err(broken)?;
        let me = self.world.rank();
        for (route, id) in all.into_iter().filter(|(route, _)| route.from == me || route.to == me) {
            self.open_channel(route, &id)?;
        }
        Ok(())
    }

    /// Opens one, and sends a byte: a library connects at the first message, and waits for the other end meanwhile, which in the
    /// middle of a program may be waiting for something else.
    fn open_channel(&mut self, route: Route, id: &[u8]) -> Result<()> {
        let end = if route.from == self.world.rank() { ChannelEnd::Sender } else { ChannelEnd::Receiver };
        let communicator = self.maker.init(read_id(id)?, 2, end.rank())?;
        let channel = Channel { communicator: Rc::new(communicator), stream: driver::create_stream()? };
        let mut byte = Arena::default();
        byte.reserve(1)?;
        let message = Prepared::message(self.maker.library, ElementType::Uint8, 1, end);
        let (address, stream) = (byte.address(), channel.stream);
        // SAFETY: the byte is device memory that is given back only after the stream is done.
        let first = unsafe { FirstCall::new(&Arc::new(message), address, address, stream.cast()) };
        let what = format!("message from rank {} to rank {}", route.from, route.to);
        first.make(&self.maker, &channel.communicator, &what)?;
        self.wait_for(&[stream], std::slice::from_ref(&channel.communicator), self.maker.deadline)?;
        byte.release()?;
        self.replays.channels.insert(route, channel);
        Ok(())
    }

    /// Ends all channels, in the same order on all ranks.
    pub(super) fn close_channels(&mut self) -> Result<()> {
        let mut routes: Vec<Route> = self.replays.channels.keys().copied().collect();
        routes.sort_unstable();
        for route in routes {
            if let Some(channel) = self.replays.channels.remove(&route) {
                self.maker.destroy(&channel.communicator)?;
                driver::destroy_stream(channel.stream);
            }
        }
        Ok(())
    }
}
