//! The data that collectives carry, as a function of (seed, rank, element), chosen so that every result is known exactly.
//!
//! Moved data are hashed bits, different for every rank and element. Reduced data are small whole numbers from a table:
//! rank r contributes `table[(b(i) + r) mod m]` at element i, `b` being a hash, so that the reduction over all ranks is
//! itself a table look-up and checking costs the same for 2 and for 2,000 ranks. The table is such that every partial
//! result is exact in the element type, in any order of reduction.
//!
//! Kernels on other devices must produce the same bits from the same formulas.
