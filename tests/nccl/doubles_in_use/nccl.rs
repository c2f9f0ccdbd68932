//! NCCL from one rank: its communicator, and calls on buffers of the driver.

use crate::doubles_in_use::api::{Cuda, Library, UniqueId, call, good};
use crate::doubles_in_use::launch::Me;
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// A rank with its device and its communicator.
pub struct Rank {
    pub me: Me,
    pub cuda: Cuda,
    pub nccl: Library,
    pub communicator: usize,
}

/// The first fields of the configuration of a communicator.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    rest: [c_int; 3],
    network: usize,
    more: [c_int; 4],
}

impl Config {
    pub fn new(blocking: bool) -> Config {
        let undefined = c_int::MIN;
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: 22700,
            blocking: blocking.into(),
            rest: [undefined; 3],
            network: 0,
            more: [undefined; 4],
        }
    }
}

impl Rank {
    /// On the device of its number, connected with the others by a call that blocks.
    pub fn connect(me: Me) -> Rank {
        let mut rank = Rank::apart(me);
        let (id, count, number) = (rank.unique_id(), rank.me.ranks as c_int, rank.me.rank as c_int);
        good!(rank.nccl, "ncclCommInitRank", &mut rank.communicator => *mut usize, count => c_int, id => UniqueId, number => c_int);
        rank
    }

    /// The same by a call that does not block.
    pub fn begin_to_connect(me: Me) -> Rank {
        let mut rank = Rank::apart(me);
        let (id, count, number, config) =
            (rank.unique_id(), rank.me.ranks as c_int, rank.me.rank as c_int, Config::new(false));
        let code = call!(
            rank.nccl, "ncclCommInitRankConfig", &mut rank.communicator => *mut usize, count => c_int, id => UniqueId,
            number => c_int, &config => *const Config,
        );
        assert_eq!(code, 7, "in progress");
        rank
    }

    /// On the device of its number, without other ranks.
    pub fn apart(me: Me) -> Rank {
        let cuda = Cuda::start(me.rank as c_int);
        Rank { me, cuda, nccl: Library::load("libnccl.so.2"), communicator: 0 }
    }

    /// Created by rank 0, sent to the others by a file.
    pub fn unique_id(&self) -> UniqueId {
        let file = self.me.folder.join("id");
        if self.me.rank == 0 {
            let mut id = UniqueId([0; 128]);
            good!(self.nccl, "ncclGetUniqueId", &mut id => *mut UniqueId);
            std::fs::write(file.with_extension("new"), id.0).expect("the folder is writable");
            std::fs::rename(file.with_extension("new"), &file).expect("the folder is writable");
            return id;
        }
        eventually("the unique id", || file.exists());
        UniqueId(std::fs::read(file).expect("the id").try_into().expect("128 bytes"))
    }

    /// The asynchronous error of the communicator.
    pub fn state(&self) -> c_int {
        let mut state = 0;
        good!(self.nccl, "ncclCommGetAsyncError", self.communicator => usize, &mut state => *mut c_int);
        state
    }

    /// An all_reduce of `count` float32 in place; its return code.
    pub fn all_reduce(&self, buffer: usize, count: usize) -> c_int {
        call!(
            self.nccl, "ncclAllReduce", buffer => usize, buffer => usize, count => usize, 7 => c_int, 0 => c_int,
            self.communicator => usize, self.cuda.stream => usize,
        )
    }

    /// A message of float32 to a rank; its return code.
    pub fn send(&self, buffer: usize, count: usize, peer: usize) -> c_int {
        call!(
            self.nccl, "ncclSend", buffer => usize, count => usize, 7 => c_int, peer as c_int => c_int,
            self.communicator => usize, self.cuda.stream => usize,
        )
    }

    /// A message of float32 from a rank; its return code.
    pub fn receive(&self, buffer: usize, count: usize, peer: usize) -> c_int {
        call!(
            self.nccl, "ncclRecv", buffer => usize, count => usize, 7 => c_int, peer as c_int => c_int,
            self.communicator => usize, self.cuda.stream => usize,
        )
    }

    /// A buffer of this many float32, all with one value.
    pub fn floats(&self, count: usize, value: f32) -> usize {
        let buffer = self.cuda.allocate(4 * count);
        self.cuda.upload(buffer, &value.to_le_bytes().repeat(count));
        buffer
    }

    /// Content of a buffer of float32.
    pub fn values(&self, buffer: usize, count: usize) -> Vec<f32> {
        let bytes = self.cuda.download(buffer, 4 * count);
        bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
    }

    /// Whether all that was enqueued is done.
    pub fn is_idle(&self) -> bool {
        call!(self.cuda.library, "cuStreamQuery", self.cuda.stream => usize) == 0
    }

    pub fn abort(&self) {
        good!(self.nccl, "ncclCommAbort", self.communicator => usize);
    }

    /// Destroys the communicator collectively.
    pub fn finish(self) {
        self.cuda.synchronize();
        good!(self.nccl, "ncclCommFinalize", self.communicator => usize);
        eventually("the end of the communicator", || self.state() != 7);
        good!(self.nccl, "ncclCommDestroy", self.communicator => usize);
    }
}

/// Waits for a condition.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
