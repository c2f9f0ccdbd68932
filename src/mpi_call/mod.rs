//! The thin checked layer over the C interface of MPI.
