//! Reads the choices of data parallelism of a training step.

use super::choices::{BucketRule, DataStyle};
use super::framework_choices::{
    BroadcastBuffers, GradientAccumulation, GradientReduction, OuterSharding, ParameterReturn, ReplicaReduction,
    ShardBuffers, UnitRule,
};
use super::reading::{parse_float, parse_reducible_float, parsed_or, truth_or};
use crate::config::document::{Item, Place, Table};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;

/// Parameters of a bucket of gradients of DeepSpeed (runtime/zero/config.py `reduce_bucket_size`).
pub const DEEPSPEED_BUCKET_PARAMETERS: u64 = 500_000_000;
/// Most parameters that a number of them may name.
const MOST_PARAMETERS: u64 = 1 << 40;

/// Choices of data parallelism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataChoices {
    /// What is sharded.
    pub style: DataStyle,
    /// Type of gradients on the wire.
    pub gradient_element_type: ElementType,
    /// Type of parameters on the wire.
    pub parameter_element_type: ElementType,
    /// How gradients are cut.
    pub bucket_rule: BucketRule,
    /// Parameters in one bucket, where the rule is not to decide.
    pub bucket_parameters: Option<u64>,
    /// Gradients are reduced during the last backward pass.
    pub overlap_gradients: bool,
    /// What is gathered together and for how long (ZeRO-3, FSDP, HSDP).
    pub units: UnitChoices,
    /// How gradients of micro-batches are added up (FSDP, HSDP).
    pub gradient_accumulation: GradientAccumulation,
    /// How gradients are reduced (ZeRO-1, ZeRO-2).
    pub gradient_reduction: GradientReduction,
    /// How often groups of shards add up their gradients (HSDP).
    pub replica_reduction: ReplicaReduction,
    /// What these groups share out among each other (HSDP, unit rule `buckets`).
    pub outer_sharding: OuterSharding,
    /// How updated parameters reach every rank (ZeRO-1).
    pub parameter_return: ParameterReturn,
    /// Buffers that the first replica gives to the others.
    pub broadcast_buffers: BroadcastBuffers,
    /// The groups of ranks that share out what is sharded.
    pub shards: ShardGroups,
}

/// What is gathered together, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitChoices {
    /// What is gathered together.
    pub rule: UnitRule,
    /// Parameters are released after the forward pass and gathered again for the backward pass (FSDP).
    pub reshard_after_forward: bool,
    /// Parameters that stayed gathered after the forward pass are released after the backward pass of each micro-batch (FSDP).
    pub reshard_after_backward: bool,
    /// Parameters of a unit are gathered while the unit before computes.
    pub prefetch: bool,
    /// What DeepSpeed's ZeRO-3 gathers when (unit rule `modules`).
    pub modules: ModuleChoices,
    /// How its calls get the parts of the ranks.
    pub shard_buffers: ShardBuffers,
}

/// The groups of ranks that share out what is sharded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardGroups {
    /// Number of groups of shards with equal content (HSDP, or distributed-optimizer instances); 1 without
    /// replication.
    pub replicas: u32,
    /// Ranks that share out the parameters between the forward and the backward pass, where those are fewer than share them out
    /// otherwise, as the ranks of a node (ZeRO++'s hpZ, arXiv 2306.10209 section 3.2; FSDP2's `reshard_after_forward` with a number).
    pub secondary: Option<u32>,
    /// Ranks of a node, among which parameters are gathered in a second step, behind the first between nodes; absent where one call
    /// gathers them (MiCS, arXiv 2205.00119 section 3.3).
    pub gather_inner: Option<u32>,
    /// Ranks of a node, among which gradients go in 4 bits before they go from node to node; absent where they are reduced as they are
    /// (ZeRO++'s qgZ, arXiv 2306.10209 section 3.3).
    pub quantised_gradients: Option<u32>,
    /// Place of the replicas, of the secondary shards, or of the ranks of a node.
    pub place: Place,
}

impl ShardGroups {
    /// The groups of dp_shard in each of so many ranks of dp x cp: those with equal shards, those that share out what the forward pass
    /// leaves to the backward one, or the nodes of quantised gradients.
    ///
    /// # Errors
    /// Secondary shards or ranks of a node that are no part of these ranks, with what would be, and both where they differ.
    pub fn groups(&self, ranks: u32) -> std::result::Result<u32, String> {
        let (key, of_group) = match (self.secondary, self.quantised_gradients) {
            (None, None) => return Ok(self.replicas),
            (Some(shards), Some(node)) if shards != node => {
                return Err(format!(
                    "secondary_shards = {shards} and quantised_gradients = {node}: both are the ranks of a node; accepted: the same number"
                ));
            }
            (Some(shards), _) => ("secondary_shards", shards),
            (None, Some(node)) => ("quantised_gradients", node),
        };
        if (2..ranks).contains(&of_group) && ranks.is_multiple_of(of_group) {
            return Ok(ranks / of_group);
        }
        let accepted = divisors_among(2..ranks, ranks);
        Err(format!("{key} = {of_group} are no part of the {ranks} ranks of dp x cp; accepted: {accepted}"))
    }
}

/// The candidates that divide a number, for readers: `2, 4`, or `none`.
pub fn divisors_among(candidates: impl Iterator<Item = u32>, number: u32) -> String {
    let divisors: Vec<String> =
        candidates.filter(|candidate| number.is_multiple_of(*candidate)).map(|divisor| divisor.to_string()).collect();
    if divisors.is_empty() { "none".to_owned() } else { divisors.join(", ") }
}

/// What DeepSpeed's ZeRO-3 gathers when, in parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleChoices {
    /// Tensors of fewer stay on every rank (`stage3_param_persistence_threshold`).
    pub persistent_parameters: u64,
    /// So many are gathered ahead at each module (`stage3_prefetch_bucket_size`).
    pub prefetch_bucket: u64,
    /// None are gathered ahead where so many are there (`stage3_max_live_parameters`).
    pub live_parameters: u64,
    /// What is used again within so many is not released (`stage3_max_reuse_distance`).
    pub reuse_distance: u64,
    /// Parameters are gathered in 8 bits, with a scale of 32 for each block (`zero_quantized_weights`: ZeRO++'s qwZ, arXiv 2306.10209
    /// section 3.1).
    pub quantised: bool,
}

pub(super) fn read_data(table: &mut Table) -> Result<DataChoices> {
    Ok(DataChoices {
        style: parsed_or(table, "data_style", DataStyle::Ddp, str::parse)?,
        gradient_element_type: parsed_or(table, "gradient_element_type", ElementType::Float32, parse_reducible_float)?,
        parameter_element_type: parsed_or(table, "parameter_element_type", ElementType::Bfloat16, parse_float)?,
        bucket_rule: parsed_or(table, "bucket_rule", BucketRule::Megatron, str::parse)?,
        bucket_parameters: table.take("bucket_parameters").map(|item| item.whole(1..=MOST_PARAMETERS)).transpose()?,
        overlap_gradients: truth_or(table, "overlap_gradients", true)?,
        units: read_units(table)?,
        gradient_accumulation: parsed_or(table, "gradient_accumulation", GradientAccumulation::Sharded, str::parse)?,
        gradient_reduction: parsed_or(table, "gradient_reduction", GradientReduction::ReduceScatter, str::parse)?,
        replica_reduction: parsed_or(table, "replica_reduction", ReplicaReduction::Step, str::parse)?,
        outer_sharding: parsed_or(table, "outer_sharding", OuterSharding::NoShard, str::parse)?,
        parameter_return: parsed_or(table, "parameter_return", ParameterReturn::AllGather, str::parse)?,
        broadcast_buffers: parsed_or(table, "broadcast_buffers", BroadcastBuffers::None, str::parse)?,
        shards: read_shards(table)?,
    })
}

fn read_units(table: &mut Table) -> Result<UnitChoices> {
    Ok(UnitChoices {
        rule: parsed_or(table, "unit_rule", UnitRule::Layers, str::parse)?,
        reshard_after_forward: truth_or(table, "reshard_after_forward", true)?,
        reshard_after_backward: truth_or(table, "reshard_after_backward", false)?,
        prefetch: truth_or(table, "prefetch_parameters", true)?,
        modules: read_modules(table)?,
        shard_buffers: parsed_or(table, "shard_buffers", ShardBuffers::Flat, str::parse)?,
    })
}

fn read_shards(table: &mut Table) -> Result<ShardGroups> {
    let (replicas, secondary) = (table.take("replicas_of_shards"), table.take("secondary_shards"));
    let (gather_inner, quantised_gradients) = (table.take("gather_inner"), table.take("quantised_gradients"));
    Ok(ShardGroups {
        replicas: replicas.as_ref().map(Item::count).transpose()?.unwrap_or(1),
        secondary: secondary.as_ref().map(Item::count).transpose()?,
        gather_inner: gather_inner.as_ref().map(Item::count).transpose()?,
        quantised_gradients: quantised_gradients.as_ref().map(Item::count).transpose()?,
        place: replicas
            .or(secondary)
            .or(gather_inner)
            .or(quantised_gradients)
            .map_or_else(|| table.place.clone(), |item| item.place),
    })
}

impl Default for ModuleChoices {
    /// Those of DeepSpeed's runtime/zero/config.py.
    fn default() -> ModuleChoices {
        ModuleChoices {
            persistent_parameters: 100_000,
            prefetch_bucket: 50_000_000,
            live_parameters: 1_000_000_000,
            reuse_distance: 1_000_000_000,
            quantised: false,
        }
    }
}

fn read_modules(table: &mut Table) -> Result<ModuleChoices> {
    let default = ModuleChoices::default();
    let quantised = truth_or(table, "quantised_parameters", default.quantised)?;
    let mut parameters = |key, default| -> Result<u64> {
        Ok(table.take(key).map(|item| item.whole(0..=MOST_PARAMETERS)).transpose()?.unwrap_or(default))
    };
    Ok(ModuleChoices {
        persistent_parameters: parameters("persistent_parameters", default.persistent_parameters)?,
        prefetch_bucket: parameters("prefetch_bucket", default.prefetch_bucket)?,
        live_parameters: parameters("live_parameters", default.live_parameters)?,
        reuse_distance: parameters("reuse_distance", default.reuse_distance)?,
        quantised,
    })
}
