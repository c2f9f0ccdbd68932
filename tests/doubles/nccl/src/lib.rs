//! A stand-in for libnccl that moves data between processes through shared memory, in the streams of the stand-in for
//! libcuda. For tests only.

mod arithmetic;
mod buffers;
mod collectives;
mod communicator;
mod communicator_calls;
mod config;
mod driver;
mod element;
mod exchange;
mod fifo;
mod fp8;
mod graph_registrations;
mod group;
mod job;
mod link;
mod log;
mod op;
mod operator;
mod residency;
mod result;
mod segment;
mod split;
