//! Error counters and states of a device, as NVML counts them since the driver was loaded. What to ask is in the table of counters; what
//! the device does not answer at first is not asked again.

use super::nccl_files::function;
use commgauge_model::config::machine::{KnownCounter, known_counters};
use libloading::Library;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::{Device, EventSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_longlong, c_uint, c_void};

/// Library of the driver packages; only development packages have the name without a version.
pub const NVML_LIBRARY: &str = "libnvidia-ml.so.1";

/// Maximum number of links of any device.
pub const MAX_NVLINKS: u32 = 36;

/// `nvmlFieldValue_t` (NVML API reference, "Field Value Queries").
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FieldValue {
    field: c_uint,
    /// Number of an NVLink, for fields of one.
    scope: c_uint,
    timestamp: c_longlong,
    latency: c_longlong,
    value_type: c_uint,
    /// 0 where the field has a value.
    code: c_uint,
    value: [u8; 8],
}

/// `NVML_VALUE_TYPE_UNSIGNED_INT`: four bytes. The others that counters have are of eight.
const UNSIGNED_INT: c_uint = 1;

/// `nvmlGpuFabricInfo_v2_t`.
#[repr(C)]
#[derive(Default)]
struct FabricInfo {
    version: c_uint,
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
    health: c_uint,
}

/// States of `nvmlGpuFabricState_t`: without a fabric, and in one.
const NO_FABRIC: u8 = 0;
const IN_FABRIC: u8 = 3;

/// Pairs of bits of `healthMask` that are 1 where something is wrong: bandwidth degraded, routes recovering, routes unhealthy, timeouts.
const HEALTH_PAIRS: [u32; 4] = [0, 2, 4, 6];

/// Where the four bits of `healthMask` begin that are above 1 where the configuration is wrong.
const CONFIGURATION: u32 = 8;

/// Membership of a device in an NVLink fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fabric {
    /// The GPUs that reach one another by NVLink: cluster and clique.
    pub clique: String,
    pub is_healthy: bool,
}

impl Fabric {
    /// Whether GPUs of other hosts may belong to it: a cluster has a name then.
    pub fn spans_hosts(&self) -> bool {
        !self.clique.starts_with("00000000000000000000000000000000:")
    }
}

/// What a rank knows of the NVLink fabric of its GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFabric {
    /// None where the GPU is in no fabric, or its driver does not say.
    pub fabric: Option<Fabric>,
    /// Whether the host has a channel of IMEX, without which GPUs of other hosts stay out of reach.
    pub has_imex_channel: bool,
}

/// What NVML reports where it does not know the number.
const UNKNOWN_XID: u64 = 999;

/// Events that are read at most between two readings.
const MOST_EVENTS: usize = 100;

/// The counters of one device.
pub struct DeviceCounters<'nvml> {
    pub device: Device<'nvml>,
    index: u32,
    library: Option<Library>,
    /// The fields that it answers, with the NVLink of each, and the name of their sum.
    fields: Vec<(c_uint, c_uint, &'static str)>,
    /// NVLinks that it has.
    links: Vec<u32>,
    /// Where the driver reports its errors (XID); read without waiting.
    events: Option<EventSet<'nvml>>,
    /// How often each XID came since the beginning.
    xids: BTreeMap<u64, u64>,
}

impl<'nvml> DeviceCounters<'nvml> {
    pub fn of(device: Device<'nvml>) -> DeviceCounters<'nvml> {
        // SAFETY: NVML is loaded already, so this runs no code of it.
        let library = unsafe { Library::new(NVML_LIBRARY) }.ok();
        let has_link = |link: &u32| device.link_wrapper_for(*link).is_active().is_ok();
        let links: Vec<u32> = (0..MAX_NVLINKS).filter(has_link).collect();
        let events = device.nvml().create_event_set().ok();
        let events = events.and_then(|set| device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok());
        let index = device.index().unwrap_or_default();
        let mut counters =
            DeviceCounters { device, index, library, fields: Vec::new(), links, events, xids: BTreeMap::new() };
        let asked: Vec<_> = known_counters().flat_map(|counter| fields_of(counter, &counters.links)).collect();
        let answers = counters.values(&asked);
        counters.fields = asked.into_iter().zip(answers).filter_map(|(field, value)| value.map(|_| field)).collect();
        counters
    }

    /// Every counter and state, as `ecc_uncorrected of GPU 5`.
    pub fn read(&mut self) -> BTreeMap<String, u64> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |name: &str, value: u64| {
            let sum = counts.entry(format!("{name} of GPU {}", self.index)).or_default();
            *sum = sum.saturating_add(value);
        };
        for ((_, _, name), value) in self.fields.iter().zip(self.values(&self.fields)) {
            value.into_iter().for_each(|value| add(name, value));
        }
        let is_down = |link: &&u32| self.device.link_wrapper_for(**link).is_active().is_ok_and(|active| !active);
        if !self.links.is_empty() {
            add("nvlinks_down", self.links.iter().filter(is_down).count() as u64);
        }
        if let Some(fabric) = self.fabric() {
            add("fabric_unhealthy", u64::from(!fabric.is_healthy));
        }
        if let Some(events) = &self.events {
            // Nothing to wait for: the call returns at once, also without an event.
            for event in std::iter::from_fn(|| events.wait(0).ok()).take(MOST_EVENTS) {
                let xid = if let Some(XidError::Value(xid)) = event.event_data { xid } else { UNKNOWN_XID };
                *self.xids.entry(xid).or_default() += 1;
            }
            add("xid", 0);
            self.xids.iter().for_each(|(xid, times)| add(&format!("xid {xid}"), *times));
        }
        counts
    }

    /// The fabric that it belongs to; none without one, or where this NVML cannot say.
    pub fn fabric(&self) -> Option<Fabric> {
        type GetFabricInfo = unsafe extern "C" fn(*mut c_void, *mut FabricInfo) -> c_uint;
        // The size, and 2 as the version of the structure.
        let version = size_of::<FabricInfo>() as c_uint | 2 << 24;
        let mut info = FabricInfo { version, ..FabricInfo::default() };
        // SAFETY: `nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t, nvmlGpuFabricInfoV_t *)`, which fills the version that it is told.
        let code = unsafe {
            let get = function::<GetFabricInfo>(self.library.as_ref()?, "nvmlDeviceGetGpuFabricInfoV").ok()?;
            get(self.device.handle().cast(), &mut info)
        };
        let is_healthy = info.state == IN_FABRIC
            && info.status == 0
            && HEALTH_PAIRS.iter().all(|shift| info.health >> shift & 3 != 1)
            && info.health >> CONFIGURATION & 15 <= 1;
        let clique = format!("{:032x}:{}", u128::from_be_bytes(info.cluster), info.clique);
        (code == 0 && info.state != NO_FABRIC).then_some(Fabric { clique, is_healthy })
    }

    /// The value of each field, where it has one.
    fn values(&self, asked: &[(c_uint, c_uint, &str)]) -> Vec<Option<u64>> {
        type GetFields = unsafe extern "C" fn(*mut c_void, c_int, *mut FieldValue) -> c_uint;
        let unanswered = FieldValue { code: c_uint::MAX, ..FieldValue::default() };
        let fields = asked.iter().map(|(field, scope, _)| FieldValue { field: *field, scope: *scope, ..unanswered });
        let mut values: Vec<FieldValue> = fields.collect();
        if let Some(library) = &self.library {
            // SAFETY: `nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t, int, nvmlFieldValue_t *)` fills as many values as it is told.
            unsafe {
                if let Ok(get) = function::<GetFields>(library, "nvmlDeviceGetFieldValues") {
                    get(self.device.handle().cast(), values.len() as c_int, values.as_mut_ptr());
                }
            }
        }
        let used = |value: &FieldValue| if value.value_type == UNSIGNED_INT { u64::from(u32::MAX) } else { u64::MAX };
        values.iter().map(|value| (value.code == 0).then(|| u64::from_ne_bytes(value.value) & used(value))).collect()
    }
}

/// The fields of a counter, and which NVLink each is of: none where it is no field.
fn fields_of(counter: &'static KnownCounter, links: &[u32]) -> Vec<(c_uint, c_uint, &'static str)> {
    let part = counter.part.filter(|_| counter.is_of_device()).unwrap_or_default();
    let (field, scopes) = match part.strip_prefix("link:") {
        Some(field) => (field, links),
        None => (part, &[0][..]),
    };
    let field: Option<c_uint> = field.parse().ok();
    field.into_iter().flat_map(|field| scopes.iter().map(move |scope| (field, *scope, counter.name))).collect()
}
