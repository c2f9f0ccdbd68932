//! A tensor of parameters: its elements on a rank, their shape, what it is part of, and in whose order several stand.

/// The framework whose order of parameters is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Queries, keys and values in one tensor, gate and up projection in one.
    Megatron,
    /// Each for itself where the modules are, as their gradients come.
    PyTorch,
    /// Each for itself where the modules are, as modules define them: norms of gated families behind their layer (Hugging Face).
    Definition,
}

/// One parameter tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    /// Its elements on the rank.
    pub elements: u64,
    /// How they are arranged.
    pub shape: Shape,
    /// What it is part of.
    pub role: Role,
}

/// The dimensions of a tensor. A row is what has one index of the first dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One dimension: norms, biases, numbers of each head.
    Vector,
    /// Two, with so many elements in a row: the width of what is multiplied.
    Matrix { row: u64 },
    /// Three, with so many elements in a row: the filters of a convolution.
    Filters { row: u64 },
}

/// What a tensor is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Of what every rank of a replica has or shares out.
    Dense,
    /// Of a routed expert.
    Expert,
    /// Word embedding or head.
    Words,
    /// The same where two stages have the same values, so that both are sharded equally in a separate bucket.
    SharedWords,
}

impl Tensor {
    /// A dense vector.
    pub fn vector(elements: u64) -> Tensor {
        Tensor { elements, shape: Shape::Vector, role: Role::Dense }
    }

    /// A dense matrix with so many elements in a row.
    pub fn matrix(elements: u64, row: u64) -> Tensor {
        Tensor { elements, shape: Shape::Matrix { row }, role: Role::Dense }
    }

    /// Dense filters with so many elements each.
    pub fn filters(elements: u64, row: u64) -> Tensor {
        Tensor { elements, shape: Shape::Filters { row }, role: Role::Dense }
    }

    /// The same in another role.
    pub fn in_role(self, role: Role) -> Tensor {
        Tensor { role, ..self }
    }

    /// Whether it is part of a routed expert.
    pub fn is_expert(&self) -> bool {
        self.role == Role::Expert
    }

    /// Whether it is an embedding or a head that two stages share.
    pub fn is_shared(&self) -> bool {
        self.role == Role::SharedWords
    }

    /// Elements of a row, which are 1 in a vector.
    pub fn row(&self) -> u64 {
        match self.shape {
            Shape::Vector => 1,
            Shape::Matrix { row } | Shape::Filters { row } => row,
        }
    }
}
