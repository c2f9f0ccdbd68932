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
    /// How tensor parallelism divides it.
    pub division: Division,
}

/// The dimensions of a tensor. A row is what has one index of the first dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One dimension: norms, biases, numbers of each head.
    Vector,
    /// Two, with so many elements in a row: the width of what is multiplied.
    Matrix { row: u64 },
    /// Three: so many matrices of so many rows, as the experts of a layer, or the filters of a convolution, of one row each.
    Stack { matrices: u64, rows: u64 },
}

/// The dimension of a matrix of which each rank of tp (of etp, in an expert) has a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// None: every rank has all of it.
    Whole,
    /// The first: a column-parallel linear.
    Rows,
    /// The same, with queries, keys and values in one.
    QueriesKeysValues,
    /// The second: a row-parallel linear.
    Columns,
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
        Tensor::of(elements, Shape::Vector)
    }

    /// A dense matrix with so many elements in a row.
    pub fn matrix(elements: u64, row: u64) -> Tensor {
        Tensor::of(elements, Shape::Matrix { row })
    }

    /// Dense filters with so many elements each.
    pub fn filters(elements: u64, of_each: u64) -> Tensor {
        Tensor::of(elements, Shape::Stack { matrices: elements / of_each.max(1), rows: 1 })
    }

    fn of(elements: u64, shape: Shape) -> Tensor {
        Tensor { elements, shape, role: Role::Dense, division: Division::Whole }
    }

    /// The same, of which each rank of tp has a part.
    pub fn divided(self, division: Division) -> Tensor {
        Tensor { division, ..self }
    }

    /// The same tensor of so many experts in one.
    pub fn stacked(self, experts: u64) -> Tensor {
        let shape = match self.shape {
            Shape::Vector => Shape::Matrix { row: self.elements },
            Shape::Matrix { row } => Shape::Stack { matrices: experts, rows: self.elements / row.max(1) },
            Shape::Stack { matrices, rows } => Shape::Stack { matrices: experts * matrices, rows },
        };
        Tensor { elements: experts * self.elements, shape, ..self }
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
            Shape::Matrix { row } => row,
            Shape::Stack { matrices, .. } => self.elements / matrices.max(1),
        }
    }
}
