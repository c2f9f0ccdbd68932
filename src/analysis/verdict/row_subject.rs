//! What a row of a verdict or of a history is of, as documents say it: a call, a copy or a matrix product.

use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_model::layout::{Axis, Locality};
use commgauge_model::record::copy_line::CopyFacts;
use commgauge_model::record::product_line::ProductFacts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a row is of: a call, whose facts stand in the row itself, or what each rank does by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RowSubject {
    /// A call of all groups of an axis.
    Call(Box<RowCall>),
    /// A copy between a host and its GPUs, or between GPUs.
    Copy {
        /// The copy.
        copy: CopyFacts,
    },
    /// A matrix product.
    Product {
        /// The product.
        product: ProductFacts,
    },
}

/// A call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RowCall {
    /// Axis whose groups carry it out.
    pub axis: Axis,
    /// Ranks in each group.
    pub group_size: u32,
    /// Groups at work at the same time.
    pub groups: u32,
    /// How a group lies on the hosts.
    pub locality: Locality,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// What is timed.
    pub cadence: Cadence,
}

impl RowSubject {
    /// The call, where it is one.
    pub fn call(&self) -> Option<&RowCall> {
        match self {
            RowSubject::Call(call) => Some(call),
            RowSubject::Copy { .. } | RowSubject::Product { .. } => None,
        }
    }

    /// The collective, the kind of copy, or that it is a product.
    pub fn what(&self) -> &'static str {
        match self {
            RowSubject::Call(call) => call.collective.name(),
            RowSubject::Copy { copy } => copy.kind.name(),
            RowSubject::Product { .. } => "product",
        }
    }

    /// The axis, or what stands for it where each rank is by itself.
    pub fn axis(&self) -> String {
        self.call().map_or_else(|| "rank".to_owned(), |call| call.axis.to_string())
    }

    /// The size argument of a call, or the bytes of a copy in each direction.
    pub fn bytes(&self) -> Option<Bytes> {
        match self {
            RowSubject::Call(call) => Some(call.bytes_total),
            RowSubject::Copy { copy } => Some(copy.bytes),
            RowSubject::Product { .. } => None,
        }
    }

    /// Type of the elements; a copy is of bytes.
    pub fn element_type(&self) -> Option<ElementType> {
        match self {
            RowSubject::Call(call) => Some(call.element_type),
            RowSubject::Copy { .. } => None,
            RowSubject::Product { product } => Some(product.element_type),
        }
    }
}
