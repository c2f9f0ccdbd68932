//! Host memory over MPI: one process, one rank, blocking calls.

mod call;
mod product;
mod replay;

pub(super) use call::IdleCall;
pub use call::{MpiCall, Parts, Rotation, Turns};

use super::{Backend, BackendFacts, Binding, Call, LocalWork, ReplayBinding, Replayer};
use crate::mpi_call::{self, Communicator, Waiting};
use call::Arena;
use commgauge_base::embedded::pairs;
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::pattern::segments::View;
use commgauge_base::units::Bytes;
use commgauge_model::layout::Groups;
use commgauge_model::workload::ProductShape;
use commgauge_model::workload::replay::Regions;
use replay::MpiReplayer;
use std::collections::HashMap;
use std::fs;
use std::ops::Range;

/// Executes ops with MPI on host memory.
pub struct MpiBackend {
    world: Communicator,
    /// By number; `None` where this rank is in none of the groups.
    communicators: HashMap<usize, Option<Communicator>>,
    send: Arena,
    receive: Arena,
    last_level_cache_bytes: u64,
    ranks_on_host: u32,
    resolution_nanoseconds: u64,
}

impl MpiBackend {
    /// The backend of this process. Collective; MPI must be initialised. `ranks_on_host` share this host's memory and
    /// last-level cache.
    pub fn new(ranks_on_host: u32) -> Result<MpiBackend> {
        Ok(MpiBackend {
            world: Communicator::world()?,
            communicators: HashMap::new(),
            send: Arena::default(),
            receive: Arena::default(),
            last_level_cache_bytes: match cache_of_environment(std::env::var(CACHE).ok().as_deref())? {
                Some(bytes) => bytes.0,
                None => last_level_cache_bytes(),
            },
            ranks_on_host: ranks_on_host.max(1),
            resolution_nanoseconds: host::seen_resolution_nanoseconds(),
        })
    }

    /// Like [`Backend::bind`], but returns the concrete type of the call.
    ///
    /// # Errors
    /// As `bind`.
    pub fn bind_call(&mut self, binding: &Binding) -> Result<MpiCall<'_>> {
        let view = binding.view(self.world.rank())?;
        let rotation = self.rotation(binding, &view);
        let (send_elements, receive_elements) = view.buffer_elements();
        for (arena, elements) in [(&mut self.send, send_elements), (&mut self.receive, receive_elements)] {
            arena.reserve(if elements > 0 { rotation.bytes() as usize } else { 0 })?;
        }
        let waiting = self.waiting();
        let communicator = communicator(&self.communicators, binding.groups_number, binding.groups)?;
        MpiCall::new(binding, &view, communicator, rotation, &mut self.send, &mut self.receive, waiting)
    }

    fn waiting(&self) -> Waiting {
        Waiting::of_ranks(self.ranks_on_host, processors())
    }

    /// Buffer regions of the calls of a replay.
    fn regions(&self, binding: &ReplayBinding) -> Result<Regions> {
        let rank = self.world.rank();
        Regions::of(binding.program(rank)?, binding.places(rank))
    }

    /// The buffer rotation for a binding. It is the same on all ranks of a group, so that their data start at the same
    /// index: the stride follows the largest buffer of any rank.
    fn rotation(&self, binding: &Binding, view: &View) -> Rotation {
        // Twice the cache, shared by the ranks of the host, each of which rotates through two buffers.
        let cold = 2 * self.last_level_cache_bytes / u64::from(self.ranks_on_host) / 2;
        let cold = if binding.warm_buffers { 0 } else { cold };
        Rotation::new(binding.largest_buffer_bytes(view), cold)
    }
}

fn communicator<'a>(
    communicators: &'a HashMap<usize, Option<Communicator>>,
    number: usize,
    groups: &Groups,
) -> Result<&'a Communicator> {
    let connected = communicators.get(&number).and_then(Option::as_ref);
    let axis = groups.axis;
    connected.ok_or_else(|| Error::environment(format!("axis {axis} was not connected before its first call")))
}

impl Backend for MpiBackend {
    fn facts(&self) -> BackendFacts {
        BackendFacts {
            name: "mpi",
            library: mpi_call::library_version(),
            transport: transport_from_environment("mpi"),
            ..BackendFacts::default()
        }
    }

    fn local_ranks(&self) -> Range<u32> {
        self.world.rank()..self.world.rank() + 1
    }

    fn connect(&mut self, number: usize, groups: &Groups) -> Result<()> {
        let rank = self.world.rank();
        let place = groups.place_of(rank);
        let fresh =
            self.world.split(place.map(|place| place.group as u32), place.map_or(rank, |place| place.rank_in_group))?;
        match self.communicators.insert(number, fresh).flatten() {
            Some(old) => old.free(),
            None => Ok(()),
        }
    }

    fn bind_product(&mut self, shape: &ProductShape) -> Result<Box<dyn LocalWork>> {
        product::on_host(shape, self.world.rank(), self.bytes_available())
    }

    fn prepare_products(&mut self, shapes: &[ProductShape]) -> Result<()> {
        product::check_types(shapes)
    }

    fn product_library(&self) -> &'static str {
        product::HOST_PRODUCT_LIBRARY
    }

    fn disconnect(&mut self) -> Result<()> {
        // In the same order on all ranks: freeing is collective.
        let mut numbers: Vec<usize> = self.communicators.keys().copied().collect();
        numbers.sort_unstable();
        let freed = numbers.into_iter().filter_map(|number| self.communicators.remove(&number).flatten());
        freed.collect::<Vec<_>>().into_iter().try_for_each(Communicator::free)
    }

    fn bytes_needed(&self, binding: &Binding) -> Bytes {
        let needed = binding.view(self.world.rank()).map(|view| {
            let rotation = self.rotation(binding, &view);
            let (send, receive) = view.buffer_elements();
            [send, receive].into_iter().filter(|elements| *elements > 0).count() as u64 * rotation.bytes()
        });
        Bytes(needed.unwrap_or(0))
    }

    fn bytes_available(&self) -> Bytes {
        Bytes(host::available_memory_bytes() / u64::from(self.ranks_on_host))
    }

    fn bind<'b>(&'b mut self, binding: &Binding) -> Result<Box<dyn Call + 'b>> {
        if binding.groups.place_of(self.world.rank()).is_none() {
            return Ok(Box::new(IdleCall::new(binding.op.collective, self.waiting())));
        }
        Ok(Box::new(self.bind_call(binding)?))
    }

    fn ensure_replayable(&self, _: &ReplayBinding) -> Result<()> {
        Ok(())
    }

    fn replay_bytes_needed(&self, binding: &ReplayBinding) -> Result<Bytes> {
        let regions = self.regions(binding)?;
        Ok(Bytes(regions.send_bytes.saturating_add(regions.receive_bytes)))
    }

    fn bind_replay<'b>(&'b mut self, binding: &ReplayBinding<'b>) -> Result<Box<dyn Replayer + 'b>> {
        let regions = self.regions(binding)?;
        let waiting = self.waiting();
        self.send.reserve(regions.send_bytes as usize)?;
        self.receive.reserve(regions.receive_bytes as usize)?;
        let rank = self.world.rank();
        let (send, receive) = (&mut self.send, &mut self.receive);
        let replayer = MpiReplayer::new(binding, rank, &regions, &self.communicators, send, receive, waiting)?;
        Ok(Box::new(replayer))
    }

    fn clock_resolution_nanoseconds(&self) -> u64 {
        self.resolution_nanoseconds
    }
}

// Caches, memory and MPI transports of the host, as the system and the MPI library report them.

/// Used if no cache size can be read: larger than most last-level caches.
const ASSUMED_CACHE_BYTES: u64 = 64 << 20;

/// Size of the last-level cache where the system reports another one, as some virtual machines do.
const CACHE: &str = "COMMGAUGE_CACHE";

fn cache_of_environment(text: Option<&str>) -> Result<Option<Bytes>> {
    let size = |text| Bytes::parse(text).map_err(|reason| Error::usage(format!("{CACHE}={text}: {reason}")));
    text.map(size).transpose()
}

/// Bytes of the largest cache of the first processor, from sysfs.
pub fn last_level_cache_bytes() -> u64 {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    caches.filter_map(size).max().unwrap_or(ASSUMED_CACHE_BYTES)
}

/// Processors that are online, whichever processes may use them.
pub fn processors() -> u32 {
    host::online_processors().max(1)
}

/// The transports that the environment names for a backend, as `variable=value` pairs; `None` where the library chooses itself.
pub fn transport_from_environment(backend: &str) -> Option<String> {
    let names = pairs(include_str!("../transports.txt")).filter(|(of, _)| *of == backend);
    let set: Vec<String> =
        names.filter_map(|(_, name)| std::env::var(name).ok().map(|value| format!("{name}={value}"))).collect();
    (!set.is_empty()).then(|| set.join(" "))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_size_of_the_cache_can_be_given_and_a_wrong_one_is_refused() {
        assert_eq!(cache_of_environment(None).unwrap(), None);
        assert_eq!(cache_of_environment(Some("1MiB")).unwrap(), Some(Bytes(1 << 20)));
        let error = cache_of_environment(Some("large")).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("COMMGAUGE_CACHE=large"), "{error}");
    }

    #[test]
    fn the_host_has_a_cache_and_memory() {
        assert!(last_level_cache_bytes() >= 64 << 10);
        assert!(host::available_memory_bytes() > 1 << 20);
        assert!(processors() >= 1);
    }
}
