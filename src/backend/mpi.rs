//! Host memory over MPI.
