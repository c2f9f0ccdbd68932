//! Reads the work of a suite: the `[model]`, `[training]` and `[serving]` tables, at the top or of one layout, and the layouts
//! that divide it.

use super::Model;
use super::document::{Item, Place, Table};
use super::model::find::{name_of, preset_file};
use super::shipped::read_text;
use super::step::{LayoutTable, ModelWork, Serving, Training};
use super::suite_sweep::{read_size, read_sizes};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Result, named};
use commgauge_base::units::Bytes;
use commgauge_base::writing::eprintln;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::{Arc, Once};

/// Reads the work of a suite: tables at the top are the default of every layout.
pub(super) struct WorkReader<'a> {
    pub path: &'a Path,
    pub hash: &'a mut Sha256,
}

/// The tables that describe the work of a model, each where it was given.
#[derive(Clone, Default)]
struct WorkTables {
    model: Option<Model>,
    training: Option<Training>,
    serving: Option<Serving>,
}

impl WorkReader<'_> {
    /// The layouts that are measured, and the one whose parallelisms are ranked.
    pub fn layouts(&mut self, root: &mut Table) -> Result<(Vec<LayoutTable>, Option<LayoutTable>)> {
        let common = self.tables(root)?;
        let tables = root.tables("layout")?;
        let ranking = root.take("ranking").map(Item::table).transpose()?;
        let ranking = ranking.map(|table| self.ranking(table, &common)).transpose()?;
        if tables.is_empty() && ranking.is_none() && common.model.is_some() {
            return Err(root.place.wrong(
                "[model] needs a [[layout]]; say how the model is divided, for example `[[layout]]` with `tp = 2`",
            ));
        }
        if let (None, Some(training), true) = (&common.model, &common.training, tables.is_empty() && ranking.is_none())
        {
            return Err(training.places.table().wrong("needs a [model] that it trains"));
        }
        let layouts = tables.into_iter().map(|table| self.layout(table, &common)).collect::<Result<_>>()?;
        Ok((layouts, ranking))
    }

    fn layout(&mut self, mut table: Table, common: &WorkTables) -> Result<LayoutTable> {
        let own = self.tables(&mut table)?;
        let mut layout = LayoutTable::read(table)?;
        layout.work = work(own, common, &layout.place)?.map(Arc::new);
        Ok(layout)
    }

    /// A layout with its own number of ranks, since the run may have fewer, and a training step.
    fn ranking(&mut self, table: Table, common: &WorkTables) -> Result<LayoutTable> {
        let layout = self.layout(table, common)?;
        if layout.dp.is_none() {
            return Err(layout.place.wrong("`dp` is missing: this layout has a number of ranks of its own"));
        }
        match layout.work.as_ref().map(|work| work.training.is_some()) {
            Some(true) => Ok(layout),
            Some(false) => Err(layout.place.wrong("[serving] alone has one parallelism; accepted: a [training] step")),
            None => Err(layout.place.wrong("needs a [model], whose step is divided this way")),
        }
    }

    fn tables(&mut self, table: &mut Table) -> Result<WorkTables> {
        let model = table.take("model").map(|item| read_model(self.path, item.table()?, self.hash)).transpose()?;
        let training = table.take("training").map(|item| Training::read(item.table()?)).transpose()?;
        let serving = table.take("serving").map(|item| Serving::read(item.table()?)).transpose()?;
        Ok(WorkTables { model, training, serving })
    }
}

/// A layout's own tables take precedence over those at the top of the suite; a layout that only serves is not trained
/// as well.
fn work(own: WorkTables, common: &WorkTables, place: &Place) -> Result<Option<ModelWork>> {
    let names_work = own.training.is_some() || own.serving.is_some();
    let (training, serving) = match names_work {
        true => (own.training, own.serving),
        false => (common.training.clone(), common.serving.clone()),
    };
    let Some(model) = own.model.or_else(|| common.model.clone()) else {
        return match training {
            Some(training) => Err(training.places.table().wrong("needs a [model] that it trains")),
            None => Ok(None),
        };
    };
    if training.is_none() && serving.is_none() {
        return Err(place.wrong("[model] needs [training], with `sequence` and batch, or [serving]"));
    }
    training.as_ref().map_or(Ok(()), |training| training.ensure_fits(&model))?;
    Ok(Some(ModelWork { model, training, serving }))
}

impl Training {
    /// Refuses a model whose steps have no list of calls and a sequence that is longer than the model allows. Where the model scales
    /// positions, such a sequence has a warning, once.
    pub fn ensure_fits(&self, model: &Model) -> Result<()> {
        static WARNED: Once = Once::new();
        if let Some(problem) = model.steps_refused() {
            return Err(self.places.table().wrong(problem));
        }
        let Some(most) = model.embedding.maximum_positions.filter(|most| self.sequence > *most) else { return Ok(()) };
        let limit = format!("{} allows up to {most} (max_position_embeddings)", model.name);
        if !model.embedding.scales_positions {
            return Err(self.at("sequence").wrong(format!("found {}; {limit}", self.sequence)));
        }
        let warn = || {
            eprintln!(
                "commgauge: warning: a sequence of {}; {limit}, and scales positions (rope_scaling)",
                self.sequence
            )
        };
        WARNED.call_once(warn);
        Ok(())
    }
}

/// Reads a table that names a model.
pub(super) fn read_model(suite: &Path, mut table: Table, hash: &mut Sha256) -> Result<Model> {
    let (config, preset) = (table.take("config"), table.take("preset"));
    let (place, name, file) = match (config, preset) {
        (Some(config), None) => {
            let file = suite.parent().unwrap_or(Path::new("")).join(config.text()?);
            (config.place, name_of(&file), file)
        }
        (None, Some(preset)) => {
            let name = preset.text()?.to_owned();
            let file = preset_file(suite, &name).map_err(|problem| preset.wrong(problem))?;
            (preset.place, name, file)
        }
        _ => {
            let accepted = "accepted: either `config`, a path relative to the suite, or `preset`, a shipped model";
            return Err(table.place.wrong(accepted));
        }
    };
    let text = read_text(&file, &place)?;
    add_to_hash(hash, &text);
    let mut model = Model::read(&file, &name, &text)?;
    if let Some(layers) = table.take("layers") {
        model.keep_layers(layers.count()?).map_err(|problem| layers.wrong(problem))?;
    }
    table.finish()?;
    Ok(model)
}

// Reads a suite's `[pairs]` table: what is measured between every two nodes, or every two ranks.

/// The largest message: MPI counts elements in 32 bits.
pub const LARGEST_MESSAGE: Bytes = Bytes(i32::MAX as u64);

/// Measurement of all pairs, in rounds of disjoint pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct PairsTable {
    /// Where it was requested.
    pub place: Place,
    /// What the pairs consist of.
    pub between: Between,
    /// Which of the pairs are measured; by the number of nodes where it is not given.
    pub selection: Option<Selection>,
    /// Every two ranks of each node too, all nodes at once.
    pub inside_nodes: bool,
    /// Message whose one-way time is the latency.
    pub latency_bytes: Bytes,
    /// Message whose rate is the bandwidth.
    pub bandwidth_bytes: Bytes,
    /// Each pair alone, instead of all pairs of a round at once.
    pub one_at_a_time: bool,
}

/// What the pairs consist of: ranks or nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Between {
    /// Every two nodes: each rank with the rank of the same place on the other node, all at once.
    Nodes,
    /// Every two ranks.
    Ranks,
}

/// Which pairs are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Selection {
    /// Every one.
    All,
    /// A few rounds, in which each node meets random others.
    Screen,
}

impl PairsTable {
    /// Reads and checks the table.
    pub(super) fn read(mut table: Table) -> Result<PairsTable> {
        let between = table.take("between").map_or(Ok(Between::Nodes), |item| item.parsed(named))?;
        let latency = table.take("latency_bytes");
        let bandwidth = table.take("bandwidth_bytes");
        let bytes = |item: &Option<Item>, default: u64| {
            item.as_ref().map_or(Ok(Bytes(default)), |item| read_size(item, LARGEST_MESSAGE))
        };
        let (latency_bytes, bandwidth_bytes) = (bytes(&latency, 8)?, bytes(&bandwidth, 4 << 20)?);
        if let Some(item) = bandwidth.or(latency)
            && latency_bytes >= bandwidth_bytes
        {
            return Err(item.wrong(format!(
                "a latency message of {latency_bytes} is not below a bandwidth message of {bandwidth_bytes}"
            )));
        }
        let one_at_a_time = table.take("one_at_a_time").map_or(Ok(false), |item| item.truth())?;
        let inside = table.take("inside_nodes");
        let inside_nodes = inside.as_ref().map_or(Ok(false), Item::truth)?;
        if let Some(item) = inside.filter(|_| inside_nodes && (one_at_a_time || between == Between::Ranks)) {
            return Err(
                item.wrong("pairs of all ranks include those inside nodes, and those inside nodes meet all at once")
            );
        }
        let selected = table.take("pairs");
        let selection = selected.as_ref().map(|item| item.parsed(named)).transpose()?;
        if let Some(item) =
            selected.filter(|_| selection == Some(Selection::Screen) && (one_at_a_time || between == Between::Ranks))
        {
            return Err(item.wrong("nodes are screened, not ranks, and all at once; accepted with these keys: all"));
        }
        let place = table.place.clone();
        table.finish()?;
        Ok(PairsTable { place, between, selection, inside_nodes, latency_bytes, bandwidth_bytes, one_at_a_time })
    }
}

// Reads a suite's `[[copy]]` tables: copies between the memory of hosts and GPUs, within a GPU, and between the GPUs of a host.

/// From where to where: by the copy engines of the rank's own GPU unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "kebab-case")]
pub enum CopyKind {
    /// From the memory of the host to that of a rank's GPU.
    HostToDevice,
    /// The way back.
    DeviceToHost,
    /// Both at once.
    HostBothWays,
    /// From one buffer of a GPU to another.
    WithinDevice,
    /// From a rank's GPU to that of another rank of the host.
    ToPeer,
    /// To it and from it at once.
    PeerBothWays,
    /// From the GPU of another rank of the host, which the rank's own reads.
    FromPeer,
    /// To it and from it at once, each GPU writing to the other.
    PeersWriteBoth,
    /// The same, each reading from the other.
    PeersReadBoth,
    /// From a rank's GPU to those of all other ranks of the host at once.
    ToAllPeers,
    /// From all of them at once, read by the rank's own.
    FromAllPeers,
    /// The same, written by the others.
    AllPeersToOne,
    /// To all of them at once, read by the others.
    AllPeersFromOne,
    /// As without `-sm`, by kernels.
    HostToDeviceSm,
    DeviceToHostSm,
    HostBothWaysSm,
    ToPeerSm,
    FromPeerSm,
    PeersWriteBothSm,
    PeersReadBothSm,
    ToAllPeersSm,
    FromAllPeersSm,
    AllPeersToOneSm,
    AllPeersFromOneSm,
    /// Reads of a kernel's thread that wait for one another, from the memory of the host.
    HostLatencySm,
    /// The same from the GPU of another rank.
    PeerLatencySm,
}

impl CopyKind {
    /// All kinds, in the order in which they are measured.
    pub const ALL: [CopyKind; 26] = *<CopyKind as strum::VariantArray>::VARIANTS.as_array().expect("all of them");

    /// The name in a suite.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What it consists of.
    pub fn parts(self) -> CopyParts {
        use CopyDirection::{In, InByOther, Out, OutByOther};
        use CopyKind::*;
        let (other_end, directions): (_, &'static [CopyDirection]) = match self {
            HostToDevice | HostToDeviceSm | HostLatencySm => (OtherEnd::Host, &[In]),
            DeviceToHost | DeviceToHostSm => (OtherEnd::Host, &[Out]),
            HostBothWays | HostBothWaysSm => (OtherEnd::Host, &[In, Out]),
            WithinDevice => (OtherEnd::Own, &[Out]),
            ToPeer | ToPeerSm => (OtherEnd::Peer, &[Out]),
            FromPeer | FromPeerSm | PeerLatencySm => (OtherEnd::Peer, &[In]),
            PeerBothWays => (OtherEnd::Peer, &[Out, In]),
            PeersWriteBoth | PeersWriteBothSm => (OtherEnd::Peer, &[Out, InByOther]),
            PeersReadBoth | PeersReadBothSm => (OtherEnd::Peer, &[In, OutByOther]),
            ToAllPeers | ToAllPeersSm => (OtherEnd::AllPeers, &[Out]),
            FromAllPeers | FromAllPeersSm => (OtherEnd::AllPeers, &[In]),
            AllPeersToOne | AllPeersToOneSm => (OtherEnd::AllPeers, &[InByOther]),
            AllPeersFromOne | AllPeersFromOneSm => (OtherEnd::AllPeers, &[OutByOther]),
        };
        // In the order of the kinds.
        let movers = [(HostToDeviceSm, Mover::Engine), (HostLatencySm, Mover::Kernel)];
        let mover = movers.into_iter().find(|(end, _)| self < *end).map_or(Mover::Reader, |(_, mover)| mover);
        CopyParts { other_end, directions, mover }
    }

    /// Whether one read waits for the other.
    pub fn is_latency(self) -> bool {
        self.parts().mover == Mover::Reader
    }
}

/// What a kind of copy consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyParts {
    pub other_end: OtherEnd,
    /// Directions between the rank's GPU and each other end, all at once.
    pub directions: &'static [CopyDirection],
    pub mover: Mover,
}

/// The memory at the end of a copy that is not the rank's own GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherEnd {
    Host,
    /// Another buffer of the same GPU.
    Own,
    /// The GPU of another rank of the host.
    Peer,
    /// The GPUs of all other ranks of the host.
    AllPeers,
}

/// A direction as seen by the rank's GPU. That one carries it out, or the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    Out,
    In,
    OutByOther,
    InByOther,
}

/// What moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// A copy engine of the GPU.
    Engine,
    /// A kernel, which reaches no pageable memory.
    Kernel,
    /// A thread of a kernel, each of whose reads waits for the one before.
    Reader,
}

/// Kind of the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum HostMemory {
    /// Locked, so that the GPU reaches it by itself.
    Pinned,
    /// As programs have it; the driver copies it through locked memory of its own.
    Pageable,
    /// As without `_far`, on the NUMA node farthest from the GPU.
    PinnedFar,
    PageableFar,
}

impl HostMemory {
    /// The name in a suite.
    pub fn name(self) -> &'static str {
        self.into()
    }

    pub fn is_pinned(self) -> bool {
        matches!(self, HostMemory::Pinned | HostMemory::PinnedFar)
    }

    pub fn is_far(self) -> bool {
        matches!(self, HostMemory::PinnedFar | HostMemory::PageableFar)
    }
}

/// Whether the ranks of a host copy one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Each {
    /// One rank at a time.
    Alone,
    /// All at once.
    Together,
}

/// Copies to be measured: every kind, with every kind of host memory that it has, at every size, alone and together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTable {
    /// From where to where.
    pub kinds: Vec<CopyKind>,
    /// Of the host's end, where there is one. Both ways at once are of pinned memory only, since of pageable memory one call waits for the
    /// other, and so is what kernels do.
    pub host_memory: Vec<HostMemory>,
    /// Bytes of each copy, in each direction; a latency has its own.
    pub bytes: Vec<Bytes>,
    /// Whether one rank of each host copies at a time; false: all at once.
    pub alone: Vec<bool>,
}

impl CopyTable {
    /// Reads every table.
    pub(super) fn all_of(root: &mut Table) -> Result<Vec<CopyTable>> {
        root.tables("copy")?.into_iter().map(CopyTable::read).collect()
    }

    fn read(mut table: Table) -> Result<CopyTable> {
        let kinds = table.take("kinds").map_or(Ok(CopyKind::ALL.to_vec()), |item| item.each_parsed(named))?;
        let host_memory =
            table.take("host_memory").map_or(Ok(vec![HostMemory::Pinned]), |item| item.each_parsed(named))?;
        let alone = table
            .take("each")
            .map_or(Ok(vec![true, false]), |item| item.each_parsed(|text| Ok(named::<Each>(text)? == Each::Alone)))?;
        let bytes = read_sizes(table.require("bytes", "a size such as \"256MiB\", a list, or a range")?)?;
        table.finish()?;
        Ok(CopyTable { kinds, host_memory, bytes, alone })
    }
}

// Reads a suite's `[[compute]]` tables: models whose matrix products are measured, and how they are divided.

/// Largest degree, micro-batch or sequence.
const LARGEST: u64 = u32::MAX as u64;

/// Types in which layers of models are multiplied; not every backend has all of them.
const TYPES: [ElementType; 4] =
    [ElementType::Float16, ElementType::Bfloat16, ElementType::Float32, ElementType::Float64];

/// A model whose matrix products are measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputeTable {
    /// The model.
    pub model: Model,
    /// Tensor-parallel degrees: each divides the linear layers as it would in training.
    pub tp: Vec<u64>,
    /// Samples of a micro-batch.
    pub micro_batch: Vec<u64>,
    /// Tokens of a sample.
    pub sequence: u64,
    /// Types of the elements.
    pub element_types: Vec<ElementType>,
}

impl ComputeTable {
    /// Reads every table; `suite` is where the model is looked for.
    pub(super) fn all_of(root: &mut Table, suite: &Path, hash: &mut Sha256) -> Result<Vec<ComputeTable>> {
        root.tables("compute")?.into_iter().map(|table| ComputeTable::read(table, suite, hash)).collect()
    }

    fn read(mut table: Table, suite: &Path, hash: &mut Sha256) -> Result<ComputeTable> {
        let model = table.require("model", "a table such as { preset = \"llama-3-8b\" }")?.table()?;
        let model = read_model(suite, model, hash)?;
        let sequence = table.require("sequence", "the tokens of a sample, such as 2048")?;
        let longest = model.embedding.maximum_positions.unwrap_or(LARGEST).min(LARGEST);
        let mut read = ComputeTable {
            sequence: sequence.whole(1..=longest)?,
            model,
            tp: vec![1],
            micro_batch: vec![1],
            element_types: vec![ElementType::Float32],
        };
        if let Some(item) = table.take("tp") {
            read.tp = item.each(|item| {
                let tp = item.whole(1..=LARGEST)?;
                if !read.model.attention.heads.is_multiple_of(tp) || !read.model.feed_forward.is_multiple_of(tp) {
                    let Model { name, feed_forward, .. } = &read.model;
                    let heads = read.model.attention.heads;
                    return Err(item.wrong(format!(
                        "found {tp}, which does not divide the {heads} heads and the feed-forward width of {feed_forward} of {name}"
                    )));
                }
                if let Some(linear) = read.model.linear_attention_in_use() {
                    let (keys, values) = (linear.key_heads, linear.value_heads);
                    if !keys.is_multiple_of(tp) || !values.is_multiple_of(tp) {
                        return Err(item.wrong(format!(
                            "found {tp}, which does not divide the {keys} key heads and {values} value heads of linear attention of {}",
                            read.model.name
                        )));
                    }
                }
                Ok(tp)
            })?;
        }
        if let Some(item) = table.take("micro_batch") {
            read.micro_batch = item.each(|item| item.whole(1..=LARGEST))?;
        }
        if let Some(item) = table.take("element_types") {
            read.element_types = item.each(|item| {
                let element: ElementType = item.parsed(str::parse)?;
                if !TYPES.contains(&element) {
                    return Err(item.wrong(format!(
                        "found {element}; accepted: float16, bfloat16, float32, float64, of which ranks on host memory multiply \
                         float32 and float64"
                    )));
                }
                Ok(element)
            })?;
        }
        table.finish()?;
        Ok(read)
    }
}

// The hash of all files of a suite.

/// The length comes first, so that no two lists of files can give the same bytes.
pub(super) fn add_to_hash(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::config::Suite;
    use std::path::Path;

    fn read(text: &str) -> Result<Vec<CopyTable>> {
        Suite::parse(Path::new("suites/test.toml"), text).map(|suite| suite.copies)
    }

    #[test]
    fn mistakes_are_refused_with_what_would_be_right() {
        for (text, expected) in [
            (
                "[[copy]]\nkinds = 'up'\nbytes = '1MiB'",
                "copy[0].kinds: found `up`; accepted: host-to-device, device-to-host",
            ),
            (
                "[[copy]]\nhost_memory = 'locked'\nbytes = '1MiB'",
                "found `locked`; accepted: pinned, pageable, pinned_far, pageable_far",
            ),
            ("[[copy]]\neach = 'both'\nbytes = '1MiB'", "found `both`; accepted: alone, together"),
            ("[[copy]]\nkinds = 'to-peer'", "`bytes` is missing"),
            ("[[copy]]\nbytes = '1MiB'\npeer = 1", "copy[0].peer: unknown key"),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_name_of_a_kind_tells_its_parts() {
        for kind in CopyKind::ALL {
            let (name, CopyParts { other_end, directions, mover }) = (kind.name(), kind.parts());
            let end = match () {
                () if name.contains("host") => OtherEnd::Host,
                () if name.contains("all-peers") => OtherEnd::AllPeers,
                () if name.contains("peer") => OtherEnd::Peer,
                () => OtherEnd::Own,
            };
            assert_eq!((other_end, directions.len() == 2), (end, name.contains("both")), "{name}");
            assert_eq!((mover != Mover::Engine, kind.is_latency()), (name.ends_with("-sm"), name.contains("latency")));
        }
        assert!(HostMemory::PageableFar.is_far() && HostMemory::PinnedFar.is_pinned() && !HostMemory::Pinned.is_far());
    }

    #[test]
    fn unless_said_every_kind_is_measured_alone_and_together_on_pinned_memory() {
        let tables = read("[[copy]]\nbytes = ['1MiB', '64MiB']").unwrap();
        let expected = CopyTable {
            kinds: CopyKind::ALL.to_vec(),
            host_memory: vec![HostMemory::Pinned],
            bytes: vec![Bytes(1 << 20), Bytes(64 << 20)],
            alone: vec![true, false],
        };
        assert_eq!(tables, [expected]);
    }
}
