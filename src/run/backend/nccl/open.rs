//! From options to a backend: driver, device, library, kernels, and the facts on which all ranks must agree before
//! timing.

use super::abi::CtaLimits;
use super::clock::DeviceClock;
use super::communicator::{self, Maker};
use super::device::Device;
use super::environment::{ForcedCtas, Setting};
use super::hold::Hold;
use super::kernels::Kernels;
use super::library::{LIMITS_FROM, Library, Version};
use super::log::Log;
use super::placing::Placing;
use super::readings::NvmlReader;
use super::skip::Capabilities;
use super::state::{Connected, DeviceBuffers, NcclBackend, Ranks, Replays, Timeline};
use super::{driver, environment, near_device, prepared};
use crate::backend::BackendFacts;
use crate::backend::mpi::host;
use crate::mpi_call::{self, Waiting};
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Located;
use commgauge_base::variant::Buffers;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The first version that supports several ranks on one device.
const SHARES_FROM: Version = Version(2, 30, 0);

/// The first version to which parts of one GPU (MIG) are devices of their own (`src/init.cc`: by their UUID, before that by the address).
const TELLS_PARTS_FROM: Version = Version(2, 30, 0);

/// Device name of the stand-ins for tests (tests/doubles/README.md), so that nothing measured on them is mistaken for
/// real.
const DOUBLE: &str = "commgauge double";

/// User options of the backend.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The library's file; without it `libnccl.so.2`, then `libnccl.so`.
    pub library: Option<PathBuf>,
    /// The file of cuBLAS; without it that of the driver's CUDA.
    pub cublas: Option<PathBuf>,
    /// Limits to thread blocks in all cases.
    pub ctas: CtaLimits,
    /// Kinds of buffers that NCCL must support, because no other is requested.
    pub buffers: Buffers,
    /// Whether ranks stay on the processors on which they were started, instead of those nearest to their GPU.
    pub stays_on_processors: bool,
    /// Time limits of everything that may hang.
    pub deadlines: Deadlines,
    /// What flags set in the environment, which the library must know.
    pub settings: Vec<Setting>,
    /// Ranks for each unique id, where a communicator takes several; 0 for one id.
    pub ranks_per_id: u32,
}

/// How long to wait for other ranks, if the user set a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadlines {
    /// Creating or destroying a communicator.
    pub communicator: Option<Duration>,
    /// Replaying a step.
    pub replay: Option<Duration>,
}

/// Resources found by this rank; others may be missing on other ranks.
pub struct Opened {
    device: Device,
    library: &'static Library,
    kernels: Kernels,
    driver_version: (i32, i32),
    driver_file: String,
    forced_ctas: ForcedCtas,
    /// The processors to which the rank was bound, if it was.
    processors: Option<String>,
}

/// Facts that a rank exchanges about its device before it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Name of the device.
    pub model: String,
    /// Its unique name.
    pub uuid: String,
    /// The newest CUDA version that the driver supports.
    pub driver: String,
    /// NCCL's version.
    pub nccl_version: String,
    /// NCCL's file.
    pub nccl_file: String,
}

impl Opened {
    /// Looks for driver, device and library. Not collective: ranks agree on the outcome before they continue.
    ///
    /// # Errors
    /// Usage errors that name what is missing.
    pub fn find(options: &Options, placing: &Placing) -> Result<Opened> {
        let needs = |error: Error| {
            Error::from_exit_code(error.exit_code(), format!("--backend nccl: host {}: {error}", placing.host))
        };
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
            return Err(needs(Error::usage(format!("--min-ctas, --max-ctas: {reason}; leave one out"))));
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
        // Before anything is allocated that should lie near the device.
        let processors = match options.stays_on_processors {
            true => None,
            false => near_device::bind_near(Path::new(near_device::SYSFS), &device.pci, placing.ranks_on_host),
        };
        let with_device = |error: Error| needs(Error::from_exit_code(error.exit_code(), format!("{device}: {error}")));
        let kernels = Kernels::load(&device).map_err(with_device)?;
        let driver_version = driver::version().map_err(needs)?;
        Ok(Opened { device, library, kernels, driver_version, driver_file: driver::file(), forced_ctas, processors })
    }

    /// The device in words, for reports.
    pub fn device(&self) -> String {
        self.device.to_string()
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
    /// That all ranks have the same library and a device each was checked before ([`crate::launch_check`]).
    ///
    /// # Errors
    /// Those of MPI and the driver.
    pub fn into_backend(self, options: &Options, placing: &Placing, log: Option<Log>) -> Result<NcclBackend> {
        let Opened { device, library, .. } = &self;
        let world = mpi_call::Communicator::world()?;
        let (name, ranks_on_host) = (&placing.host, placing.ranks_on_host);
        let mine = format!("{name}\n{}\n{}", device.uuid, device.pci);
        let mut all = world.gather_bytes(mine.as_bytes())?.join(&b'\0');
        world.broadcast_bytes(&mut all)?;
        let all = String::from_utf8_lossy(&all).into_owned();
        let ranks: Vec<Vec<&str>> = all.split('\0').map(|rank| rank.split('\n').collect()).collect();
        let of_each =
            |field: usize| ranks.iter().map(|rank| rank.get(field).copied().unwrap_or_default().to_owned()).collect();
        let (hosts, uuids) = (of_each(0), of_each(1));
        if let Some(refusal) = parts_of_one_gpu(&ranks).filter(|_| self.library.version < TELLS_PARTS_FROM) {
            let found = self.library.description();
            return Err(Error::mismatch(format!(
                "{refusal}; to NCCL before 2.30 those are one, found {found}: give each rank a GPU of its own, or take NCCL 2.30"
            ))
            .shared());
        }
        let ranks_on_device = sharing(&ranks, world.rank() as usize);
        // Of any device: the record has what rank 0 says, which may have one for itself.
        let ranks_on_fullest = (0..ranks.len()).map(|rank| sharing(&ranks, rank)).max().unwrap_or(1);
        let mut facts = self.facts(placing, ranks_on_fullest);
        if log.is_some() {
            facts.warnings.push(
                "NCCL wrote its log during the timed calls, to show what it chooses (--record-algorithm): times are longer \
                 than without"
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
        let place = format!("rank {}, host {name}, {device}", world.rank());
        let library = *library;
        // The same on all ranks, including those with a device for themselves, or their numbers of channels would
        // differ.
        let sharing = environment::SHARING_CTAS.max(options.ctas.least.unwrap_or(0));
        let most = options.ctas.most.or(placing.share_gpu.then_some(sharing));
        let ctas = CtaLimits { least: options.ctas.least, most };
        let deadline = options.deadlines.communicator.unwrap_or(communicator::DEADLINE);
        let mut cold =
            [Located { value: (device.cache_bytes / u64::from(ranks_on_device)) as f64, rank: world.rank() as i32 }];
        world.all_max(&mut cold)?;
        // Whole numbers far below 2^53.
        let cold_bytes = cold[0].value as u64;
        let reader = NvmlReader::new(&device.uuid, &device.pci);
        let capabilities = Capabilities {
            library,
            driver: self.driver_version,
            capability: device.capability,
            least_ctas: ctas.least,
            forced_ctas: self.forced_ctas,
        };
        Ok(NcclBackend {
            world,
            reader,
            log,
            maker: Maker { library, device: Arc::new(self.device), place, ctas, deadline },
            connected: Connected { ranks_per_id: options.ranks_per_id, ..Connected::default() },
            capabilities,
            ranks: Ranks { hosts, uuids, on_device: ranks_on_device },
            kernels: self.kernels,
            stream,
            buffers: DeviceBuffers { cold_bytes, ..DeviceBuffers::default() },
            timeline: Timeline { events: Vec::new(), clock },
            hold: Rc::new(RefCell::new(Hold::new()?)),
            replays: Replays { deadline: options.deadlines.replay, ..Replays::default() },
            waiting: Waiting::of_ranks(ranks_on_host, host::processors()),
            facts,
            cublas: (options.cublas.clone(), None),
        })
    }

    fn facts(&self, placing: &Placing, ranks_on_fullest: u32) -> BackendFacts {
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
                "ranks keep to the processors nearest to their GPUs ({processors} for that of rank 0); --no-numa-binding leaves them where \
                 they were started"
            ));
        }
        if library.call.split.is_none() {
            notes.push("communicators of groups from unique ids: ncclCommSplit needs NCCL 2.18".to_owned());
        }
        let mut warnings = Vec::new();
        if self.device.is_part() {
            warnings.push(
                "ranks have parts of GPUs (MIG): NCCL has no NVLink between them, and parts of a GPU share its memory and its links"
                    .to_owned(),
            );
        }
        let is_double = self.device.name.contains(DOUBLE);
        if is_double {
            warnings.push(format!(
                "synthetic: carried out by stand-ins for tests ({}, {}) in host memory; these are not measurements",
                self.driver_file, library.file
            ));
        }
        if placing.share_gpu && ranks_on_fullest > 1 {
            let set: Vec<String> = environment::SHARING
                .iter()
                .map(|(name, _)| format!("{name}={}", std::env::var(name).unwrap_or_default()))
                .collect();
            warnings.push(format!(
                "{ranks_on_fullest} ranks share a GPU (--share-gpu, {}, kernels of at most {} thread blocks unless set otherwise): data is carried for real, times say nothing about a network",
                set.join(" "),
                environment::SHARING_CTAS
            ));
        }
        BackendFacts {
            name: "nccl",
            synthetic: is_double,
            virtual_clock: false,
            library: library.description(),
            transport: host::transport_from_environment(&environment::TRANSPORTS),
            notes,
            warnings,
        }
    }
}

/// Two ranks that are on parts of one GPU: names that differ at the same address of the same host.
fn parts_of_one_gpu(ranks: &[Vec<&str>]) -> Option<String> {
    ranks.iter().enumerate().find_map(|(second, theirs)| {
        let [host, uuid, pci] = theirs[..] else { return None };
        let is_other_part =
            |other: &Vec<&str>| other[..] != theirs[..] && other.first() == Some(&host) && other.get(2) == Some(&pci);
        let first = ranks[..second].iter().position(is_other_part)?;
        Some(format!("ranks {first} and {second} of host {host} are on parts of one GPU ({pci}, {uuid})"))
    })
}

/// Number of ranks on the device of rank `me`, from each rank's host and device.
fn sharing(ranks: &[Vec<&str>], me: usize) -> u32 {
    let mine = ranks.get(me);
    ranks.iter().filter(|rank| Some(*rank) == mine).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_a_device_where_host_and_device_are_the_same() {
        let four = [["a", "u0", "p0"], ["a", "u1", "p1"], ["a", "u1", "p1"], ["b", "u1", "p1"]].map(Vec::from);
        assert_eq!([0, 1, 3].map(|me| sharing(&four, me)), [1, 2, 1]);
        assert_eq!(parts_of_one_gpu(&four), None, "one device, not parts of one");
    }

    #[test]
    fn parts_of_one_gpu_have_names_of_their_own_and_its_address() {
        let parts = [["a", "m0", "p0"], ["b", "m1", "p0"], ["a", "m2", "p0"]].map(Vec::from);
        let expected = "ranks 0 and 2 of host a are on parts of one GPU (p0, m2)";
        assert_eq!(parts_of_one_gpu(&parts).as_deref(), Some(expected));
        assert_eq!(parts_of_one_gpu(&parts[..2]), None, "of two hosts");
    }
}
