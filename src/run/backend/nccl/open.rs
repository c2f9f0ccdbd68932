//! From options to a backend: driver, device, library, kernels, and the facts on which all ranks must agree before
//! timing.

use super::super::mpi::Rotation;
use super::abi::CtaLimits;
use super::adapters::NvmlReader;
use super::communicator::{
    Channel, Communicator, Maker, Members, MembersKey, RecentPairs, Registration, Route, Windows,
};
use super::data::Scratch;
use super::device::{Device, Placing};
use super::driver::{Arena, CUevent, CUstream};
use super::kernels::{Computing, DeviceClock, Hold, Kernels};
use super::library::{ForcedCtas, LIMITS_FROM, Library, Version};
use super::log::Log;
use super::product::{Cublas, OwnWork};
use super::{adapters, communicator, driver, library, prepared};
use crate::backend::{BackendFacts, Binding, Setting, mpi};
use crate::device_probe::RankFabric;
use crate::mpi_call::{self, Waiting};
use crate::world::share_all;
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::error::{Error, Kind, Result};
use commgauge_base::host;
use commgauge_base::pattern::segments::View;
use commgauge_base::sample::Located;
use commgauge_base::variant::{Buffers, Variant};
use commgauge_model::layout::{Axis, Groups};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The first version that supports several ranks on one device.
const SHARES_FROM: Version = Version(2, 30, 0);

/// The first version that treats MIG partitions as separate devices (`src/init.cc`: by UUID, before that by address).
const TELLS_PARTS_FROM: Version = Version(2, 30, 0);

/// Device name of the test doubles (tests/doubles/README.md), so that nothing measured on them passes for real.
const DOUBLE: &str = "commgauge double";

/// User options of the backend.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The library's file; without it `libnccl.so.2`, then `libnccl.so`.
    pub library: Option<PathBuf>,
    /// The file of cuBLAS; by default the one for the driver's CUDA version.
    pub cublas: Option<PathBuf>,
    /// Limits on thread blocks in all cases.
    pub ctas: CtaLimits,
    /// Kinds of buffers that NCCL must support, because no other kind is requested.
    pub buffers: Buffers,
    /// Whether plain buffers are of `ncclMemAlloc` too, where NCCL has it, as those of nccl-tests are (`AllocateBuffs`, `src/common.cu`).
    pub allocates_plain: bool,
    /// Whether ranks stay on the processors on which they were started instead of moving to those nearest to their GPU.
    pub stays_on_processors: bool,
    /// Time limits of everything that may hang.
    pub deadlines: Deadlines,
    /// Environment variables set by flags, which the library must support.
    pub settings: Vec<Setting>,
    /// Ranks for each unique id, where a communicator takes several; 0 for one id.
    pub ranks_per_id: u32,
}

/// Time limits for other ranks, if the user set them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadlines {
    /// Creating or destroying a communicator.
    pub communicator: Option<Duration>,
    /// Replaying a step.
    pub replay: Option<Duration>,
}

/// Resources found by this rank; other ranks may lack them.
pub struct Opened {
    options: Options,
    placing: Placing,
    device: Device,
    library: &'static Library,
    kernels: Kernels,
    driver_version: (i32, i32),
    driver_file: String,
    forced_ctas: ForcedCtas,
    /// The processors to which the rank was bound, if any.
    processors: Option<String>,
    reader: NvmlReader,
}

/// Facts about a rank's device that ranks exchange before use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Name of the device.
    pub model: String,
    pub uuid: String,
    /// The newest CUDA version that the driver supports.
    pub driver: String,
    pub nccl_version: String,
    pub nccl_file: String,
}

impl Opened {
    /// Looks for driver, device and library. Not collective: ranks agree on the outcome before they continue.
    ///
    /// # Errors
    /// Usage errors that name what is missing.
    pub fn find(options: Options, placing: Placing) -> Result<Opened> {
        let host = placing.host.clone();
        let needs =
            |error: Error| Error::from_exit_code(error.exit_code(), format!("--backend nccl: host {host}: {error}"));
        let devices = driver::start().map_err(needs)?;
        let library = Library::load(options.library.as_deref()).map_err(needs)?;
        match options.buffers {
            Buffers::Plain => {}
            Buffers::Allocated => {
                library.newer(library.call.memory_allocate, "ncclMemAlloc").map(drop).map_err(needs)?;
            }
            Buffers::Registered => library.newer(library.call.register, "ncclCommRegister").map(drop).map_err(needs)?,
            Buffers::Symmetric => {
                library.newer(library.call.window_register, "ncclCommWindowRegister").map(drop).map_err(needs)?;
            }
        }
        if let Some(refusal) = options.settings.iter().find_map(|setting| setting.refusal(library.version)) {
            return Err(needs(Error::usage(format!("{refusal} ({})", library.file))));
        }
        let forced_ctas = ForcedCtas::read();
        if let Some(reason) = forced_ctas.conflict_with(options.ctas) {
            return Err(needs(Error::usage(format!("--min-ctas, --max-ctas: {reason}; remove one"))));
        }
        if options.ctas != CtaLimits::default() && library.version < LIMITS_FROM {
            let text = format!("--min-ctas, --max-ctas: {}", library.limits_refusal());
            return Err(needs(Error::usage(text)));
        }
        if placing.share_gpu && library.version < SHARES_FROM {
            let text = format!("--share-gpu needs NCCL 2.30, found {} ({})", library.version, library.file);
            return Err(needs(Error::usage(text)));
        }
        let device = Device::open(placing.device(devices)?).map_err(needs)?;
        // Before anything that should be near the device is allocated.
        let bind = || adapters::bind_near(Path::new(adapters::SYSFS), &device.pci, placing.ranks_on_host);
        let processors = (!options.stays_on_processors).then(bind).flatten();
        let with_device = |error: Error| needs(Error::from_exit_code(error.exit_code(), format!("{device}: {error}")));
        let kernels = Kernels::load(&device).map_err(with_device)?;
        let driver_version = driver::version().map_err(needs)?;
        Ok(Opened {
            reader: NvmlReader::new(&device.uuid, &device.pci),
            device,
            library,
            kernels,
            driver_version,
            driver_file: driver::file(),
            forced_ctas,
            processors,
            options,
            placing,
        })
    }

    /// The device in words, for reports.
    pub fn device(&self) -> String {
        self.device.to_string()
    }

    /// The NVLink fabric of the device.
    pub fn fabric(&self) -> RankFabric {
        let channels = std::fs::read_dir("/dev/nvidia-caps-imex-channels");
        let has_imex_channel = channels.is_ok_and(|mut channels| channels.next().is_some());
        RankFabric { fabric: self.reader.fabric(), has_imex_channel }
    }

    /// Facts by which the ranks of a launch are compared.
    pub fn device_facts(&self) -> DeviceFacts {
        let Library { version, file, .. } = self.library;
        DeviceFacts {
            model: self.device.name.clone(),
            uuid: self.device.uuid.clone(),
            driver: format!("for CUDA {}.{}", self.driver_version.0, self.driver_version.1),
            nccl_version: version.to_string(),
            nccl_file: file.clone(),
        }
    }

    /// The backend. Called by all ranks, each with the log of its NCCL, if there is one.
    ///
    /// All ranks have the same library and a device each, as checked before ([`crate::launch_check`]).
    ///
    /// # Errors
    /// Errors of MPI and the driver.
    pub fn into_backend(self, log: Option<Log>) -> Result<NcclBackend> {
        let (library, device, world) = (self.library, &self.device, mpi_call::Communicator::world()?);
        let (options, name) = (&self.options, &self.placing.host);
        let ranks = share_all(&world, &[name, &device.uuid, &device.pci].map(String::from))?;
        let (hosts, uuids) = ranks.iter().map(|[host, uuid, _]| (host.clone(), uuid.clone())).unzip();
        if let Some(refusal) = parts_of_one_gpu(&ranks).filter(|_| self.library.version < TELLS_PARTS_FROM) {
            let found = self.library.description();
            return Err(Error::mismatch(format!(
                "{refusal}; NCCL before 2.30 treats these as one device, found {found}: give each rank its own GPU, or install NCCL 2.30"
            ))
            .shared());
        }
        let ranks_on_device = sharing(&ranks, world.rank() as usize);
        // Of any device: rank 0 writes the record and may have an exclusive one.
        let ranks_on_fullest = (0..ranks.len()).map(|rank| sharing(&ranks, rank)).max().unwrap_or(1);
        let mut facts = self.facts(ranks_on_fullest);
        let allocates_plain = options.allocates_plain && self.library.call.memory_allocate.is_some();
        if allocates_plain {
            facts.notes.push("buffers are of ncclMemAlloc, as those of nccl-tests".to_owned());
        }
        if log.as_ref().is_some_and(Log::has_choices) {
            facts.warnings.push(
                "NCCL logged its choices during the timed calls (--record-algorithm): times are longer than without"
                    .to_owned(),
            );
        }
        let (stream, mut clock) = (driver::create_stream()?, DeviceClock::new()?);
        clock.anchor(stream)?;
        let error_microseconds = clock.error_nanoseconds() as f64 / 1e3;
        facts.notes.push(format!(
            "events lie on rank {}'s host clock to within {error_microseconds:.1} us at the start",
            world.rank()
        ));
        facts.pair_channels =
            library::channels_of_a_pair(library.version).filter(|_| ranks.iter().any(|[host, ..]| host != name));
        let place = format!("rank {}, host {name}, {device}", world.rank());
        // The same on all ranks, also those with an exclusive device; otherwise their numbers of channels would differ.
        let sharing = library::SHARING_CTAS.max(options.ctas.least.unwrap_or(0));
        let most = options.ctas.most.or(self.placing.share_gpu.then_some(sharing));
        let ctas = CtaLimits { least: options.ctas.least, most };
        let deadline = options.deadlines.communicator.unwrap_or_else(|| communicator::deadline(world.ranks()));
        let mut cold =
            [Located { value: (device.cache_bytes / u64::from(ranks_on_device)) as f64, rank: world.rank() as i32 }];
        world.all_max(&mut cold)?;
        // Whole numbers far below 2^53.
        let cold_bytes = cold[0].value as u64;
        let capabilities = Capabilities {
            library,
            driver: self.driver_version,
            capability: device.capability,
            least_ctas: ctas.least,
            forced_ctas: self.forced_ctas,
        };
        Ok(NcclBackend {
            world,
            reader: self.reader,
            log,
            connected: Connected { ranks_per_id: options.ranks_per_id, ..Connected::default() },
            capabilities,
            ranks: Ranks { hosts, uuids, on_device: ranks_on_device },
            kernels: self.kernels,
            stream,
            buffers: DeviceBuffers { cold_bytes, allocates_plain, ..DeviceBuffers::default() },
            timeline: Timeline { events: Vec::new(), clock },
            hold: Rc::new(RefCell::new(Hold::new()?)),
            replays: Replays { deadline: options.deadlines.replay, ..Replays::default() },
            waiting: Waiting::of_ranks(self.placing.ranks_on_host, mpi::processors()),
            facts,
            maker: Maker { library, device: Arc::new(self.device), place, ctas, channels: None, deadline },
            cublas: (self.options.cublas, None),
        })
    }

    fn facts(&self, ranks_on_fullest: u32) -> BackendFacts {
        let library = self.library;
        let mut notes = vec![
            format!("driver for CUDA {}.{} ({})", self.driver_version.0, self.driver_version.1, self.driver_file),
            "timed by events on the stream; isolated starts held by a kernel that waits for the host".to_owned(),
        ];
        for collective in Collective::ALL {
            if let Some(how) = prepared::decomposition(library, collective) {
                notes.push(format!("{collective} is {how}"));
            }
        }
        if let Some(processors) = &self.processors {
            notes.push(format!(
                "ranks are bound to the processors nearest to their GPUs ({processors} for rank 0); --no-numa-binding leaves them where they were started"
            ));
        }
        if library.call.split.is_none() {
            notes.push("communicators of groups from unique ids: ncclCommSplit needs NCCL 2.18".to_owned());
        }
        let mut warnings = Vec::new();
        if self.device.is_part() {
            warnings.push(
                "ranks use MIG partitions: NCCL has no NVLink between them, and partitions of a GPU share its memory and links"
                    .to_owned(),
            );
        }
        let is_double = self.device.name.contains(DOUBLE);
        if is_double {
            warnings.push(format!(
                "synthetic: executed by test doubles ({}, {}) in host memory; these are not measurements",
                self.driver_file, library.file
            ));
        }
        if self.placing.share_gpu && ranks_on_fullest > 1 {
            let set: Vec<String> = library::SHARING
                .iter()
                .map(|(name, _)| format!("{name}={}", std::env::var(name).unwrap_or_default()))
                .collect();
            warnings.push(format!(
                "{ranks_on_fullest} ranks share a GPU (--share-gpu, {}, kernels of at most {} thread blocks unless set otherwise): data is really transferred, but times say nothing about a network",
                set.join(" "),
                library::SHARING_CTAS
            ));
        }
        BackendFacts {
            name: "nccl",
            synthetic: is_double,
            library: library.description(),
            transport: mpi::transport_from_environment("nccl"),
            notes,
            warnings,
            ..BackendFacts::default()
        }
    }
}

/// Host, UUID and PCI address of a rank's device.
type RankDevice = [String; 3];

/// Two ranks on partitions of one GPU: names that differ at the same address of the same host.
fn parts_of_one_gpu(ranks: &[RankDevice]) -> Option<String> {
    ranks.iter().enumerate().find_map(|(second, theirs)| {
        let [host, uuid, pci] = theirs;
        let is_other_part = |other: &RankDevice| other != theirs && other[0] == *host && other[2] == *pci;
        let first = ranks[..second].iter().position(is_other_part)?;
        Some(format!("ranks {first} and {second} of host {host} are on MIG partitions of one GPU ({pci}, {uuid})"))
    })
}

/// Number of ranks on the device of rank `me`.
fn sharing(ranks: &[RankDevice], me: usize) -> u32 {
    ranks.iter().filter(|rank| **rank == ranks[me]).count() as u32
}

/// Executes ops with NCCL on GPU memory.
pub struct NcclBackend {
    pub(super) world: mpi_call::Communicator,
    pub(super) maker: Maker,
    pub(super) connected: Connected,
    pub(super) capabilities: Capabilities,
    pub(super) ranks: Ranks,
    pub(super) kernels: Kernels,
    pub(super) stream: CUstream,
    pub(super) buffers: DeviceBuffers,
    pub(super) timeline: Timeline,
    /// Shared with products, which hold the stream too.
    pub(super) hold: Rc<RefCell<Hold>>,
    pub(super) replays: Replays,
    /// More ranks than processors: a waiting rank must yield, or the rank that it waits for may not be scheduled.
    pub(super) waiting: Waiting,
    pub(super) facts: BackendFacts,
    pub(super) reader: NvmlReader,
    /// NCCL's log of this process, where it was asked for.
    pub(super) log: Option<Log>,
    /// cuBLAS: the named file, if any, and the library after its first use.
    pub(super) cublas: (Option<PathBuf>, Option<&'static Cublas>),
}

#[derive(Default)]
pub(super) struct Connected {
    /// All ranks; others are split off from it. Created for every replicate.
    pub base: Option<Rc<Communicator>>,
    /// Those split off; `None` if this rank is in none of the groups. Those of pairs are created when a call needs them.
    pub of_groups: RefCell<HashMap<MembersKey, Option<Rc<Communicator>>>>,
    pub recent_pairs: RefCell<RecentPairs>,
    /// Ranks for each unique id, where a communicator of all ranks takes several; 0 for one id.
    pub ranks_per_id: u32,
}

/// The place of each rank, in rank order.
pub(super) struct Ranks {
    pub hosts: Vec<String>,
    /// The name of the device of each.
    pub uuids: Vec<String>,
    /// Ranks on this rank's device, including itself.
    pub on_device: u32,
}

impl Ranks {
    /// The ranks of each host, hosts in the order of their first ranks.
    pub fn by_host(&self) -> Groups {
        let (mut groups, mut known) = (Vec::new(), HashMap::new());
        for (rank, host) in (0..).zip(&self.hosts) {
            let number = *known.entry(host).or_insert(groups.len());
            groups.resize_with(known.len(), Vec::new);
            groups[number].push(rank);
        }
        Groups { axis: Axis::Node, groups }
    }

    /// The place of each of some ranks of one host among all of them.
    pub fn on_host(&self, ranks: &[u32]) -> Vec<u32> {
        let hosts = self.by_host();
        ranks.iter().filter_map(|rank| Some(hosts.place_of(*rank)?.rank_in_group)).collect()
    }
}

/// The buffers of calls on this rank's device.
#[derive(Default)]
pub(super) struct DeviceBuffers {
    pub send: Arena,
    pub receive: Arena,
    pub scratch: Scratch,
    /// Registration of the case that was bound last.
    pub registration: Option<Registration>,
    pub windows: Windows,
    /// Total length that the copies of a call's buffers must exceed to leave the cache of any rank's device. The same on all ranks, as is
    /// the number of copies: data differ by copy, and windows have the same length on all ranks.
    pub cold_bytes: u64,
    /// Whether plain buffers are memory of NCCL too.
    pub allocates_plain: bool,
}

impl DeviceBuffers {
    /// Notes that a graph captures calls on the buffers.
    pub fn note_capture(&mut self) {
        self.send.note_capture();
        self.receive.note_capture();
    }

    /// Frees what was kept for graphs; the communicators are gone.
    pub fn release_kept(&mut self) -> Result<()> {
        self.send.release_kept()?;
        self.receive.release_kept()
    }
}

/// Start and end times of calls, from marks on the streams of the device.
pub(super) struct Timeline {
    pub events: Vec<CUevent>,
    pub clock: DeviceClock,
}

/// What only replays need.
#[derive(Default)]
pub(super) struct Replays {
    /// One stream for each group of a replay.
    pub axis_streams: Vec<CUstream>,
    pub computing: Option<Computing>,
    pub channels: HashMap<Route, Channel>,
    pub deadline: Option<Duration>,
}

/// Interval between two checks for background errors while waiting.
const NANOSECONDS_BETWEEN_POLLS: u64 = 200_000;

impl NcclBackend {
    /// Copies of the buffers that together leave the cache of the device, the same on all ranks of a group.
    pub(super) fn rotation(&self, binding: &Binding, view: &View) -> Rotation {
        let cold_bytes = if binding.warm_buffers { 0 } else { self.buffers.cold_bytes };
        // As nccl-tests walks through the buffers of its largest size (`startColl` of its `src/common.cu`).
        let within = binding.rotation_within.filter(|_| !binding.warm_buffers);
        driver::rotation(binding.largest_buffer_bytes(view), cold_bytes, within.map(|within| within.0), binding.variant)
    }

    /// The communicator with these members and this limit on thread blocks, if any.
    pub(super) fn communicator(&self, members: Members, axis: Axis, max_ctas: Option<u32>) -> Result<Rc<Communicator>> {
        let limit = max_ctas.filter(|blocks| !self.maker.limits_to(*blocks));
        let connected = match (members, limit) {
            (Members::World, None) => self.connected.base.clone(),
            key => self.connected.of_groups.borrow().get(&key).cloned().flatten(),
        };
        connected.ok_or_else(|| Error::environment(format!("axis {axis} was not connected before its first call")))
    }

    /// The number of communicators of groups and of all ranks.
    pub(super) fn live_communicators(&self) -> Vec<Rc<Communicator>> {
        let split = self.connected.of_groups.borrow();
        self.connected.base.iter().chain(split.values().flatten()).cloned().collect()
    }

    /// Whether a step succeeded on all ranks. Called by all of them.
    pub(super) fn all_succeeded(&self, mine: bool) -> Result<bool> {
        let mut worst = [Located { value: if mine { 0.0 } else { 1.0 }, rank: self.world.rank() as i32 }];
        self.world.all_max(&mut worst)?;
        Ok(worst[0].value == 0.0)
    }

    /// Ends the registration of the buffers of the last case.
    pub(super) fn end_registration(&mut self) -> Result<()> {
        self.buffers.registration.take().map_or(Ok(()), Registration::end)
    }

    /// The resources for products and copies of this rank.
    pub(super) fn own_work(&self) -> OwnWork<'_> {
        OwnWork {
            kernels: &self.kernels,
            hold: &self.hold,
            stream: self.stream,
            rank: self.world.rank(),
            place: &self.maker.place,
            pci: &self.maker.device.pci,
            deadline: self.replays.deadline,
        }
    }

    /// Frees the buffers of calls, for work that needs none of them and may need all memory.
    pub(super) fn release_buffers(&mut self) -> Result<()> {
        self.end_registration()?;
        self.buffers.send.release()?;
        self.buffers.receive.release()
    }

    /// Waits until streams are idle, at most for a deadline, and checks the communicators for errors meanwhile.
    pub(super) fn wait_for(
        &self,
        streams: &[CUstream],
        communicators: &[Rc<Communicator>],
        deadline: Duration,
    ) -> Result<()> {
        let begun = host::now_nanoseconds();
        let end = begun.saturating_add(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX));
        let mut next_poll = begun + NANOSECONDS_BETWEEN_POLLS;
        let look = || communicators.iter().try_for_each(|communicator| communicator.asynchronous_error());
        for stream in streams {
            while !driver::is_done(*stream)? {
                let now = host::now_nanoseconds();
                if now >= next_poll {
                    next_poll = now + NANOSECONDS_BETWEEN_POLLS;
                    look()?;
                    if now >= end {
                        let seconds = deadline.as_secs_f64();
                        return Err(Kind::Hang(format!("not done within {seconds} s; aborted")).into());
                    }
                }
                // Times come from events, so yielding to threads of the libraries costs nothing.
                std::thread::yield_now();
            }
        }
        // An error may have left the stream idle, with the correct result of an earlier call in the buffer.
        look()
    }
}

// Cases that NCCL, its version, the driver or the device cannot execute, with the reason as a sentence.

/// Properties that decide whether a case can run.
pub(super) struct Capabilities {
    pub library: &'static Library,
    /// The newest CUDA version that the driver supports.
    pub driver: (i32, i32),
    /// Compute capability of the device.
    pub capability: (u32, u32),
    /// The minimum of thread blocks of all cases, if limited.
    pub least_ctas: Option<u32>,
    pub forced_ctas: ForcedCtas,
}

impl Capabilities {
    /// Why a case is skipped; `None` if it can run.
    pub fn skip_reason(&self, binding: &Binding) -> Option<String> {
        self.call_skip_reason(binding).or_else(|| self.variant_skip_reason(binding.op.collective, binding.variant))
    }

    fn call_skip_reason(&self, binding: &Binding) -> Option<String> {
        let (op, found) = (binding.op, self.library.version);
        if op.collective == Collective::AllToAll && binding.placement == Placement::InPlace {
            return Some(
                "NCCL has no all_to_all in place: blocks would be overwritten before they are sent".to_owned(),
            );
        }
        if !op.collective.reduces() || !op.element.moves_only() {
            return None;
        }
        if found < Version(2, 24, 0) {
            return Some(format!("reducing {} needs NCCL 2.24, found {found}", op.element));
        }
        let (major, minor) = self.capability;
        if self.capability < (9, 0) {
            return Some(format!("NCCL reduces {} from compute capability 9.0 on, found {major}.{minor}", op.element));
        }
        // It has the kernels but does not choose them: the selecting code is compiled for the host and requires the device's architecture
        // (`ncclLaunchOneRank` in its src/device/onerank.cu, 2.24 to 2.30; ncclInvalidArgument, seen on an H100).
        let multiplies = matches!(op.reduce_op, Some(ReduceOp::Avg | ReduceOp::PreMulSum));
        (multiplies && binding.groups.group_size() == 1)
            .then(|| format!("NCCL does not multiply {} in a group of one rank, which avg and mulsum need", op.element))
    }

    fn variant_skip_reason(&self, collective: Collective, variant: Variant) -> Option<String> {
        let (call, found) = (&self.library.call, self.library.version);
        let needs = |what: &str, symbol: &str, since: &str| {
            Some(format!("{what} buffers need NCCL {since} ({symbol}), found {found}"))
        };
        match variant.buffers {
            Buffers::Plain => {}
            _ if collective == Collective::Barrier => return Some("a barrier has no buffers".to_owned()),
            Buffers::Allocated if call.memory_allocate.is_none() => return needs("allocated", "ncclMemAlloc", "2.19"),
            Buffers::Registered if call.register.is_none() || call.memory_allocate.is_none() => {
                return needs("registered", "ncclCommRegister", "2.19");
            }
            Buffers::Symmetric if call.window_register.is_none() => {
                return needs("symmetric", "ncclCommWindowRegister", "2.27");
            }
            Buffers::Allocated | Buffers::Registered | Buffers::Symmetric => {}
        }
        if variant.max_ctas.is_some() && found < LIMITS_FROM {
            return Some(self.library.limits_refusal());
        }
        if let Some(reason) = self.forced_ctas.conflict_with(CtaLimits { least: None, most: variant.max_ctas }) {
            return Some(format!("maximum thread blocks: {reason}"));
        }
        if let (Some(most), Some(least)) =
            (variant.max_ctas, self.least_ctas.filter(|least| variant.max_ctas < Some(*least)))
        {
            return Some(format!("a maximum of {most} thread blocks is below --min-ctas {least}"));
        }
        if variant.aggregate > 1 && collective == Collective::PingPong {
            return Some(
                "ping_pong cannot be aggregated: within a group the reply would not wait for the request".to_owned(),
            );
        }
        if variant.calls_in_a_graph().is_some() && self.driver < driver::FIRST_DRIVER {
            let ((major, minor), (least, lesser)) = (self.driver, driver::FIRST_DRIVER);
            return Some(format!("graphs need a driver for CUDA {least}.{lesser}, found one for {major}.{minor}"));
        }
        None
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn ranks_share_a_device_where_host_and_device_are_the_same() {
        let four = [["a", "u0", "p0"], ["a", "u1", "p1"], ["a", "u1", "p1"], ["b", "u1", "p1"]]
            .map(|rank| rank.map(String::from));
        assert_eq!([0, 1, 3].map(|me| sharing(&four, me)), [1, 2, 1]);
        assert_eq!(parts_of_one_gpu(&four), None, "one device, not parts of one");
    }

    #[test]
    fn parts_of_one_gpu_have_names_of_their_own_and_its_address() {
        let parts = [["a", "m0", "p0"], ["b", "m1", "p0"], ["a", "m2", "p0"]].map(|rank| rank.map(String::from));
        let expected = "ranks 0 and 2 of host a are on MIG partitions of one GPU (p0, m2)";
        assert_eq!(parts_of_one_gpu(&parts).as_deref(), Some(expected));
        assert_eq!(parts_of_one_gpu(&parts[..2]), None, "of two hosts");
    }
}
