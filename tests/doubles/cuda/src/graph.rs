//! Graphs: what was captured, done again and again.

use crate::answer::{INVALID_VALUE, answer};
use crate::context::current_device;
use crate::handles::Handles;
use crate::stream::{Work, stream_of, wait_for_kernels};
use std::ffi::{c_int, c_uint, c_ulonglong};

pub static GRAPHS: Handles<Graph> = Handles::new();
static EXECUTABLES: Handles<Graph> = Handles::new();

pub struct Graph {
    pub work: Vec<Work>,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut usize,
    graph: usize,
    _flags: c_ulonglong,
) -> c_int {
    answer(|| {
        // It gets memory for the nodes.
        wait_for_kernels(current_device()?)?;
        *executable = EXECUTABLES.add(GRAPHS.get(graph)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphUpload(executable: usize, stream: usize) -> c_int {
    answer(|| {
        stream_of(stream)?;
        EXECUTABLES.get(executable).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(executable: usize, stream: usize) -> c_int {
    answer(|| {
        let stream = stream_of(stream)?;
        for work in &EXECUTABLES.get(executable)?.work {
            stream.enqueue(match work {
                Work::Record(event, _) => Work::Record(event.clone(), event.record()),
                other => other.clone(),
            });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize) -> c_int {
    answer(|| {
        // Nodes have no handles here; callers only need their number.
        if !nodes.is_null() {
            return Err(INVALID_VALUE);
        }
        *count = GRAPHS.get(graph)?.work.len();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(executable: usize) -> c_int {
    answer(|| EXECUTABLES.remove(executable).map(|_| ()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: usize) -> c_int {
    answer(|| GRAPHS.remove(graph).map(|_| ()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuProfilerStart() -> c_int {
    answer(|| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuProfilerStop() -> c_int {
    answer(|| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetCacheConfig(_function: usize, _config: c_uint) -> c_int {
    answer(|| Ok(()))
}
