//! A stand-in for libcuda on host memory: the driver's functions that commgauge calls, with streams that are threads.
//! For tests only; the names of its devices make clear that they are not real.

mod answer;
mod capture;
mod connection;
mod context;
mod device;
mod event;
mod graph;
mod handles;
mod host_memory;
mod kernel;
mod memory;
mod module;
mod move_bytes;
mod stream;
mod stream_calls;
