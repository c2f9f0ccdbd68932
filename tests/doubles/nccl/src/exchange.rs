//! Messages between the ranks of a communicator: all of a call's, or of a group's, in flight at the same time.

use crate::communicator::Communicator;
use crate::result::{Answer, INVALID_USAGE, failure};
use std::collections::VecDeque;

/// Key of a message; both ends must use the same.
pub type Tag = u64;

/// Messages to each rank and from each rank, in order.
pub struct Exchange {
    send: Vec<VecDeque<Message>>,
    receive: Vec<VecDeque<Message>>,
}

struct Message {
    tag: Tag,
    address: usize,
    bytes: usize,
    /// Bytes of heading and content that have passed.
    passed: usize,
    heading: [u8; HEADING],
}

const HEADING: usize = 16;

impl Exchange {
    pub fn new(ranks: u32) -> Exchange {
        let none = || (0..ranks).map(|_| VecDeque::new()).collect();
        Exchange { send: none(), receive: none() }
    }

    pub fn send(&mut self, to: u32, tag: Tag, address: usize, bytes: usize) {
        let mut message = Message { tag, address, bytes, passed: 0, heading: [0; HEADING] };
        message.heading[..8].copy_from_slice(&tag.to_le_bytes());
        message.heading[8..].copy_from_slice(&(bytes as u64).to_le_bytes());
        self.send[to as usize].push_back(message);
    }

    pub fn receive(&mut self, from: u32, tag: Tag, address: usize, bytes: usize) {
        self.receive[from as usize].push_back(Message { tag, address, bytes, passed: 0, heading: [0; HEADING] });
    }

    /// Carries all messages out. Ends early, without an error, where the communicator is aborted: false then.
    pub fn run(mut self, communicator: &Communicator) -> Answer<bool> {
        let segment = communicator.segment()?;
        let me = communicator.rank as usize;
        while self.send.iter().chain(&self.receive).any(|messages| !messages.is_empty()) {
            let bell = segment.bell(me);
            let mut moved = false;
            for (peer, messages) in self.send.iter_mut().enumerate() {
                moved |= pass(messages, |bytes| segment.write(me, peer, bytes), Direction::Out)
                    .or_else(|text| failure(INVALID_USAGE, text))?;
            }
            for (peer, messages) in self.receive.iter_mut().enumerate() {
                moved |= pass(messages, |bytes| segment.read(peer, me, bytes), Direction::In)
                    .or_else(|text| failure(INVALID_USAGE, format!("rank {me} from rank {peer}: {text}")))?;
            }
            if communicator.is_aborted() {
                return Ok(false);
            }
            if !moved {
                segment.wait_for_bell(me, bell);
            }
        }
        Ok(true)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Out,
    In,
}

/// Moves the first messages of one queue on as far as the ring lets; whether anything moved.
fn pass(
    messages: &mut VecDeque<Message>,
    mut through: impl FnMut(&mut [u8]) -> usize,
    direction: Direction,
) -> Result<bool, String> {
    let mut moved = false;
    while let Some(message) = messages.front_mut() {
        let whole = HEADING + message.bytes;
        while message.passed < whole {
            let piece = if message.passed < HEADING {
                &mut message.heading[message.passed..]
            } else {
                let done = message.passed - HEADING;
                unsafe { std::slice::from_raw_parts_mut((message.address + done) as *mut u8, message.bytes - done) }
            };
            let count = through(piece);
            if count == 0 {
                return Ok(moved);
            }
            moved = true;
            message.passed += count;
            if message.passed == HEADING && direction == Direction::In {
                message.check()?;
            }
        }
        messages.pop_front();
    }
    Ok(moved)
}

impl Message {
    /// That the sender means the same call and as many bytes.
    fn check(&self) -> Result<(), String> {
        let number = |at: usize| u64::from_le_bytes(self.heading[at..at + 8].try_into().expect("8 bytes"));
        if number(0) == self.tag && number(8) == self.bytes as u64 {
            return Ok(());
        }
        let describe = |tag: u64, bytes: u64| format!("{bytes} bytes of {}", crate::op::name_of_tag(tag));
        let (came, wanted) = (describe(number(0), number(8)), describe(self.tag, self.bytes as u64));
        Err(format!("{came} came where {wanted} were expected: the ranks called different things"))
    }
}
