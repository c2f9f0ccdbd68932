//! Device memory over NCCL: one process, one rank, one GPU, calls on a stream.
//!
//! Building needs neither CUDA nor NCCL; both are loaded when the backend is requested, and an error names what is missing.

mod abi;
mod adapters;
mod call;
mod communicator;
mod copies;
mod data;
mod device;
mod driver;
mod first_call;
mod kernels;
mod library;
mod log;
mod open;
mod prepared;
mod product;
mod replay;
mod replay_limits;

pub use abi::CtaLimits;
pub use device::{Placing, visible_devices};
pub use library::{Environment, Library, Version};
pub use log::Log;
pub use open::{Deadlines, DeviceFacts, NcclBackend, Opened, Options};

use super::mpi::{IdleCall, Rotation};
use super::{Backend, BackendFacts, Binding, Call, DeviceReader, LocalWork, ReplayBinding, Replayer, product_bytes};
use call::NcclCall;
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use commgauge_base::pattern::segments::View;
use commgauge_base::units::Bytes;
use commgauge_base::variant::Buffers;
use commgauge_model::config::{CopyParts, HostMemory, OtherEnd};
use commgauge_model::layout::Groups;
use commgauge_model::record::library_use::LibraryUse;
use commgauge_model::workload::replay::Regions;
use commgauge_model::workload::{CopyShape, ProductShape};
use communicator::{Communicator, Members, NO_WINDOWS, Registration, TRIED_BYTES};
use copies::{DeviceCopy, Peer, copies_per_sample};
use driver::Arena;
use kernels::{Computing, EVENT_RESOLUTION_NANOSECONDS};
use product::{Cublas, DeviceProduct};
use replay::{NcclReplayer, placement};
use replay_limits::ensure_replayable;
use std::ffi::c_void;
use std::ops::Range;
use std::path::Path;
use std::ptr::null_mut;
use std::rc::Rc;

/// Memory that stays free for what NCCL allocates itself: a fraction of the device's, and at least this.
const HEADROOM_BYTES: u64 = 256 << 20;

const HEADROOM_DIVISOR: u64 = 32;

/// Fraction of the device's memory that a communicator takes at its first call: more than 1 GiB of 80, as NCCL does for eight ranks with
/// multicast.
const BUFFERS_DIVISOR: u64 = 64;

/// Maximum number of these before their memory is known.
const MOST_UNUSED: u64 = 8;

/// Bytes that stay free on a device of this size while some communicators have no buffers yet.
fn headroom(device_bytes: u64, unused_communicators: usize) -> u64 {
    let unused = (unused_communicators as u64).min(MOST_UNUSED);
    HEADROOM_BYTES.max(device_bytes / HEADROOM_DIVISOR) + unused * (device_bytes / BUFFERS_DIVISOR)
}

impl NcclBackend {
    /// Buffer regions of the calls of a replay.
    fn regions(&self, binding: &ReplayBinding) -> Result<Regions> {
        let rank = self.world.rank();
        Regions::placed(binding.program(rank)?, binding.places(rank), placement)
    }

    /// Reserves the buffers of a case; none on ranks outside its groups.
    fn take_buffers<'b>(&mut self, binding: &Binding<'b>) -> Result<Option<(View<'b>, Rotation)>> {
        if binding.groups.place_of(self.world.rank()).is_none() {
            return Ok(None);
        }
        let view = binding.view(self.world.rank())?;
        let rotation = self.rotation(binding, &view);
        let (send, receive) = view.buffer_elements();
        self.end_registration()?;
        let buffers = binding.variant.buffers;
        let nccl = self.allocator(binding);
        self.buffers.send.take_from(nccl)?;
        self.buffers.receive.take_from(nccl)?;
        if buffers == Buffers::Symmetric {
            // NCCL maps the memory of all ranks contiguously: it must have the same length everywhere, even on ranks with nothing to send,
            // and independently of earlier cases.
            self.buffers.send.reserve_exactly(rotation.bytes())?;
            self.buffers.receive.reserve_exactly(rotation.bytes())?;
        } else {
            // NCCL has no barrier; the call used instead moves one byte. Both buffers are registered on every rank: NCCL's behaviour is
            // undefined if only some ranks register theirs (NCCL user guide, "User Buffer Registration").
            let all = binding.op.collective == Collective::Barrier || buffers == Buffers::Registered;
            self.buffers.send.reserve(if send > 0 || all { rotation.bytes() } else { 0 })?;
            self.buffers.receive.reserve(if receive > 0 || all { rotation.bytes() } else { 0 })?;
        }
        Ok(Some((view, rotation)))
    }

    /// NCCL, if it allocates the buffers of a case.
    fn allocator(&self, binding: &Binding) -> Option<&'static Library> {
        (binding.variant.buffers != Buffers::Plain || self.buffers.allocates_plain).then_some(self.maker.library)
    }

    /// The memory available to the buffers of a case: the free memory of the device, and buffers of earlier cases.
    fn bytes_available_for(&self, binding: &Binding) -> Bytes {
        let each = binding.view(self.world.rank()).map_or(0, |view| self.rotation(binding, &view).bytes());
        let nccl = self.allocator(binding);
        let [send, receive] = [&self.buffers.send, &self.buffers.receive].map(|arena| arena.available(each, nccl));
        Bytes(self.free_bytes().saturating_add(send).saturating_add(receive))
    }

    /// Why a device cannot hold what is needed; `None` if it can.
    fn without_room(&self, needed: Bytes, available: Bytes) -> Option<String> {
        (needed > available)
            .then(|| format!("needs {needed} of device memory, {available} available on {}", self.maker.place))
    }

    /// Registers the first bytes of the buffers with NCCL.
    fn register(&mut self, binding: &Binding, bytes: u64) -> Result<()> {
        let communicator = self.communicator(self.members(binding), binding.groups.axis, binding.variant.max_ctas)?;
        let (buffers, arenas) = (binding.variant.buffers, [&self.buffers.send, &self.buffers.receive]);
        self.buffers.registration = Some(Registration::begin(&self.maker, communicator, buffers, arenas, bytes)?);
        if buffers == Buffers::Symmetric {
            self.buffers.windows.use_two((binding.groups_number, binding.variant.max_ctas), bytes);
        }
        Ok(())
    }

    /// cuBLAS, loaded when it is first requested.
    fn cublas(&mut self) -> Result<&'static Cublas> {
        if let Some(library) = self.cublas.1 {
            return Ok(library);
        }
        let library = Cublas::load(self.cublas.0.as_deref(), u32::try_from(driver::version()?.0).unwrap_or(0))?;
        Ok(self.cublas.1.insert(library))
    }

    /// The GPUs of the ranks with which a copy is: at a distance in the rank order of the host, or of all others; an error says why this rank
    /// cannot reach one.
    fn peers(&self, shape: &CopyShape) -> std::result::Result<Vec<&str>, String> {
        let me = self.world.rank() as usize;
        let here: Vec<usize> =
            (0..self.ranks.hosts.len()).filter(|rank| self.ranks.hosts[*rank] == self.ranks.hosts[me]).collect();
        let own = here.iter().position(|rank| *rank == me).unwrap_or(0);
        let distances = match shape.peer_distance.map(|distance| distance as usize) {
            Some(distance) => distance..=distance,
            None if shape.kind.parts().other_end == OtherEnd::AllPeers => 1..=(here.len() - 1).max(1),
            None => return Ok(Vec::new()),
        };
        let peer = |distance: usize| {
            let rank = here[(own + distance) % here.len()];
            let uuid = self.ranks.uuids[rank].as_str();
            match copies::refusal(&self.maker.device, uuid) {
                _ if distance >= here.len() => Err(format!("its host has no rank at a distance of {distance}")),
                Some(reason) => Err(format!("to rank {rank}: {reason}")),
                None => Ok(uuid),
            }
        };
        distances.map(peer).collect()
    }

    /// Device memory that is available in addition to what is allocated.
    fn free_bytes(&self) -> u64 {
        let whole = driver::memory().map_or(0, |(_, total)| total);
        let unused = self.live_communicators().iter().filter(|communicator| !communicator.is_used.get()).count();
        let headroom = headroom(whole, unused) * u64::from(self.ranks.on_device);
        self.maker.device.free_bytes().saturating_sub(headroom) / u64::from(self.ranks.on_device)
    }
}

impl Backend for NcclBackend {
    fn facts(&self) -> BackendFacts {
        self.facts.clone()
    }

    fn library_use(&mut self) -> Option<std::result::Result<LibraryUse, String>> {
        Some(self.log.as_mut()?.used())
    }

    fn device_reader(&mut self) -> Option<&mut dyn DeviceReader> {
        Some(&mut self.reader)
    }

    fn device(&self) -> Option<String> {
        let device = &self.maker.device;
        Some(format!("{}, {}, {}", device.name, device.pci, device.uuid))
    }

    fn adapters(&self) -> Vec<String> {
        let filter = std::env::var("NCCL_IB_HCA").ok().filter(|filter| !filter.trim().is_empty());
        adapters::nearest(Path::new(adapters::SYSFS), &self.maker.device.pci, filter.as_deref())
    }

    fn local_ranks(&self) -> Range<u32> {
        self.world.rank()..self.world.rank() + 1
    }

    fn connect(&mut self, number: usize, groups: &Groups) -> Result<()> {
        self.connect_groups(number, groups)
    }

    fn disconnect(&mut self) -> Result<()> {
        self.disconnect_all()
    }

    fn bytes_needed(&self, binding: &Binding) -> Bytes {
        let needed = binding.view(self.world.rank()).map(|view| {
            let rotation = self.rotation(binding, &view);
            let (send, receive) = view.buffer_elements();
            let all = matches!(binding.variant.buffers, Buffers::Registered | Buffers::Symmetric);
            [send, receive].into_iter().filter(|elements| all || *elements > 0).count() as u64 * rotation.bytes()
        });
        Bytes(needed.unwrap_or(0))
    }

    fn bytes_available(&self) -> Bytes {
        let releasable = self.buffers.send.releasable().saturating_add(self.buffers.receive.releasable());
        Bytes(self.free_bytes().saturating_add(releasable))
    }

    fn skip_reason(&self, binding: &Binding) -> Option<String> {
        // First, as all ranks take part in it; their reasons may differ below.
        if let Some(reason) = self.window_skip_reason(binding) {
            return Some(reason);
        }
        if let Some(reason) = self.capabilities.skip_reason(binding) {
            return Some(reason);
        }
        if let Some(reason) = replay_limits::skip_reason(binding) {
            return Some(reason);
        }
        self.without_room(self.bytes_needed(binding), self.bytes_available_for(binding))
    }

    fn refuses_oversized_plans(&self) -> bool {
        false
    }

    fn bind<'b>(&'b mut self, binding: &Binding) -> Result<Box<dyn Call + 'b>> {
        self.connect_pairs(binding)?;
        let prepared = self.limit(binding).and_then(|()| self.take_buffers(binding));
        // Windows are created by all ranks together: if one had no memory, the others would wait for it.
        let all_have_buffers = binding.variant.buffers != Buffers::Symmetric || self.all_succeeded(prepared.is_ok())?;
        let Some((view, rotation)) = prepared? else {
            return Ok(Box::new(IdleCall::new(binding.op.collective, self.waiting)));
        };
        let registers = matches!(binding.variant.buffers, Buffers::Registered | Buffers::Symmetric);
        if registers && all_have_buffers {
            self.register(binding, rotation.bytes())?;
        }
        Ok(Box::new(NcclCall::new(self, binding, &view, rotation)?))
    }

    fn ensure_replayable(&self, binding: &ReplayBinding) -> Result<()> {
        ensure_replayable(self, binding)
    }

    fn replay_bytes_needed(&self, binding: &ReplayBinding) -> Result<Bytes> {
        let regions = self.regions(binding)?;
        let computing =
            if self.replays.computing.is_some() { 0 } else { Computing::bytes(self.maker.device.cache_bytes) };
        Ok(Bytes(regions.send_bytes.saturating_add(regions.receive_bytes).saturating_add(computing)))
    }

    fn bind_replay<'b>(&'b mut self, binding: &ReplayBinding<'b>) -> Result<Box<dyn Replayer + 'b>> {
        let regions = self.regions(binding)?;
        self.end_registration()?;
        self.buffers.send.take_from(None)?;
        self.buffers.receive.take_from(None)?;
        self.buffers.send.reserve(regions.send_bytes)?;
        self.buffers.receive.reserve(regions.receive_bytes)?;
        Ok(Box::new(NcclReplayer::new(self, binding, &regions)?))
    }

    fn prepare_products(&mut self, shapes: &[ProductShape]) -> Result<()> {
        shapes.iter().try_for_each(|shape| product::arithmetic(shape.element_type).map(drop))?;
        self.cublas().map(drop)
    }

    fn product_skip_reason(&self, shape: &ProductShape) -> Option<String> {
        self.without_room(product_bytes(shape), self.bytes_available())
    }

    fn bind_product(&mut self, shape: &ProductShape) -> Result<Box<dyn LocalWork>> {
        let library = self.cublas()?;
        self.release_buffers()?;
        Ok(Box::new(DeviceProduct::new(shape, library, &self.own_work())?))
    }

    fn copy_skip_reason(&self, shape: &CopyShape) -> Option<String> {
        let peers = match self.peers(shape) {
            Ok(peers) => peers.len().max(1) as u64,
            Err(refusal) => return Some(format!("{}: {refusal}", self.maker.place)),
        };
        let far = shape.host_memory.is_some_and(HostMemory::is_far);
        if let Some(Err(refusal)) = far.then(|| copies::on_far_node(&self.maker.device.pci, |_| ())) {
            return Some(format!("{}: {refusal}", self.maker.place));
        }
        let CopyParts { other_end, directions, .. } = shape.kind.parts();
        // Other ranks have as many buffers here as this one has there.
        let ends = if other_end == OtherEnd::Host { 1 } else { 2 * peers };
        let needed = shape.bytes.0.saturating_mul(directions.len() as u64 * ends);
        self.without_room(Bytes(needed), self.bytes_available())
    }

    fn bind_copy(&mut self, shape: &CopyShape) -> Result<(Box<dyn LocalWork>, u32)> {
        self.release_buffers()?;
        let uuids = self.peers(shape).map_err(Error::environment)?;
        let peers = uuids.into_iter().map(|uuid| Peer::open(&self.maker.device, uuid).map(Rc::new));
        let peers = peers.collect::<Result<Vec<_>>>()?;
        Ok((Box::new(DeviceCopy::new(shape, &peers, &self.own_work())?), copies_per_sample(shape)))
    }

    fn product_library(&self) -> &'static str {
        self.cublas.1.map_or("", |library| library.description.as_str())
    }

    fn clock_resolution_nanoseconds(&self) -> u64 {
        EVENT_RESOLUTION_NANOSECONDS
    }
}

/// The first version that reuses window space.
const REUSES_SPACE_FROM: Version = Version(2, 28, 0);
/// From this version on the handle is null if no window was created; 2.28 returns the handle of a registered buffer,
/// 2.27 a handle of its own.
const NULL_HANDLE_FROM: Version = Version(2, 29, 0);

impl NcclBackend {
    /// Why a case on symmetric buffers cannot run; none if it can, or if it uses other buffers. Called by all ranks,
    /// with the same case.
    pub(super) fn window_skip_reason(&self, binding: &Binding) -> Option<String> {
        let call = &self.maker.library.call;
        let asks = binding.variant.buffers == Buffers::Symmetric && binding.op.collective != Collective::Barrier;
        if !asks || call.window_register.is_none() || call.memory_allocate.is_none() {
            return None;
        }
        let number = binding.groups_number;
        let known = self.buffers.windows.are_made.borrow().get(&number).copied();
        let are_made = known.unwrap_or_else(|| {
            // An error here occurs again where the case is bound, and is reported there.
            let found = self.try_window(binding).unwrap_or(true);
            self.buffers.windows.are_made.borrow_mut().insert(number, found);
            found
        });
        if !are_made {
            return Some(NO_WINDOWS.to_owned());
        }
        self.window_space_skip_reason(binding)
    }

    /// Before 2.28 the window space of a communicator is as large as the memory of a device and is never reused
    /// (`src/group.cc`, `ncclCommGroupRegisterSymmetric`); behind its end the space of another rank begins.
    fn window_space_skip_reason(&self, binding: &Binding) -> Option<String> {
        let view = binding.view(self.world.rank()).ok()?;
        let (_, whole) = driver::memory().ok()?;
        let key = (binding.groups_number, binding.variant.max_ctas);
        let end = self.buffers.windows.end_of_two(key, self.rotation(binding, &view).bytes());
        (self.maker.library.version < REUSES_SPACE_FROM && end > whole).then(|| {
            format!(
                "NCCL before 2.28 does not take back the space of windows, and this case would end at {} of {}",
                Bytes(end),
                Bytes(whole)
            )
        })
    }

    /// Creates a window and deregisters it; true on ranks that are in no group.
    fn try_window(&self, binding: &Binding) -> Result<bool> {
        self.connect_pairs(binding)?;
        let place = binding.groups.place_of(self.world.rank());
        let mut memory = Arena::default();
        let taken = match place {
            Some(_) => memory.take_from(Some(self.maker.library)).and_then(|()| memory.reserve(TRIED_BYTES)),
            None => Ok(()),
        };
        let all_have_memory = self.all_succeeded(taken.is_ok())?;
        let Some(place) = place.filter(|_| all_have_memory) else { return memory.release().map(|()| true) };
        let communicator = self.communicator(Members::Groups(binding.groups_number), binding.groups.axis, None)?;
        // SAFETY: the memory is freed after the window.
        let window = unsafe { self.maker.register_window(&communicator, memory.address(), TRIED_BYTES as usize)? };
        let mut is_made = window.is_some();
        if let Some(window) = window {
            self.buffers.windows.use_two((binding.groups_number, None), TRIED_BYTES);
            is_made = match self.maker.library.version {
                version if version >= NULL_HANDLE_FROM => true,
                version if version >= REUSES_SPACE_FROM => !self.is_registration(&communicator, &memory, window)?,
                _ => self.is_on_one_host(&binding.groups.groups[place.group]) && !is_switched_off(),
            };
            communicator.deregister_window(window)?;
        }
        memory.release()?;
        Ok(is_made)
    }

    /// Whether a window is only the handle of registered memory: for the same memory NCCL then returns the same handle
    /// again.
    fn is_registration(&self, communicator: &Communicator, memory: &Arena, window: *mut c_void) -> Result<bool> {
        let library = self.maker.library;
        let register = library.newer(library.call.register, "ncclCommRegister")?;
        let deregister = library.newer(library.call.deregister, "ncclCommDeregister")?;
        let (raw, address, mut handle) = (communicator.raw(), memory.address() as *mut c_void, null_mut());
        // SAFETY: the communicator and the memory live, the handle is ours and not used again.
        unsafe {
            library.check(register(raw, address, TRIED_BYTES as usize, &mut handle), "ncclCommRegister")?;
            library.check(deregister(raw, handle), "ncclCommDeregister")?;
        }
        Ok(handle == window)
    }

    fn is_on_one_host(&self, group: &[u32]) -> bool {
        let host = |rank: &u32| self.ranks.hosts.get(*rank as usize);
        group.iter().all(|rank| host(rank) == group.first().and_then(host))
    }
}

fn is_switched_off() -> bool {
    std::env::var("NCCL_WIN_ENABLE").is_ok_and(|value| value.trim() == "0")
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn memory_stays_free_for_every_communicator_that_has_no_buffers_yet() {
        let device = 80 << 30;
        let alone = headroom(device, 0);
        assert_eq!(alone, 2560 << 20);
        for (unused, more) in [(1, 1280), (3, 3 * 1280), (8, 8 * 1280), (100, 8 * 1280)] {
            assert_eq!(headroom(device, unused) - alone, more << 20, "{unused}");
        }
        assert_eq!(headroom(1 << 30, 2), (256 + 2 * 16) << 20);
    }
}
