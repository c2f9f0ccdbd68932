//! Memory at the ends of a copy: of the host, of this rank's GPU, and of another GPU of the host.

use super::device::{self, Device};
use super::driver::{self, CUdeviceptr, CUstream};
use super::placing::visible_devices;
use commgauge_base::error::{Error, Result};
use std::cell::Cell;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;
use std::{ptr, slice};

/// The GPU of another rank, opened by this process for as long as this lives: a context of its own on it takes memory there.
pub(super) struct Peer {
    /// This process's own device, whose context is current otherwise.
    own: Arc<Device>,
    device: Device,
}

impl Peer {
    /// Opens the GPU of that name, reachable from this rank's own.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn open(own: &Arc<Device>, uuid: &str) -> Result<Peer> {
        let number = number_of(uuid).ok_or_else(|| Error::environment(format!("this process does not see {uuid}")))?;
        let device = Device::open(number)?;
        let back = own.make_current();
        let peer = Peer { own: own.clone(), device };
        back?;
        driver::enable_access_to(peer.device.context())?;
        Ok(peer)
    }

    /// Carries something out in the context of the other GPU.
    fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = self.device.make_current().and_then(|()| work());
        self.own.make_current()?;
        done
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.device.close();
    }
}

/// Why this rank's GPU cannot copy to the one of that name; `None` if it can.
pub(super) fn refusal(own: &Device, uuid: &str) -> Option<String> {
    if own.uuid == uuid {
        return Some("both ranks are on one GPU".to_owned());
    }
    let Some(number) = number_of(uuid) else {
        return Some(format!(
            "this process does not see the other GPU ({uuid}); show all GPUs of a host to all its ranks"
        ));
    };
    match device::reaches(own.number, number) {
        Ok(true) => None,
        Ok(false) => Some(format!("devices {} and {number} do not reach each other directly", own.number)),
        Err(error) => Some(error.to_string()),
    }
}

fn number_of(uuid: &str) -> Option<u32> {
    visible_devices().iter().position(|name| name == uuid).map(|number| number as u32)
}

/// Memory that is given back when this goes. Nothing enqueued may use it then.
pub(super) enum Buffer {
    /// Of the host, as programs have it.
    Pageable(Box<[Cell<u8>]>),
    /// Of the host, locked.
    Pinned(*mut c_void),
    /// Of this rank's GPU.
    OnDevice(CUdeviceptr),
    /// Of another one.
    OnPeer(CUdeviceptr, Rc<Peer>),
}

impl Buffer {
    pub fn pageable(bytes: usize) -> Buffer {
        Buffer::Pageable(vec![Cell::new(0); bytes].into_boxed_slice())
    }

    pub fn pinned(bytes: usize) -> Result<Buffer> {
        driver::allocate_shared(bytes).map(|(here, _)| Buffer::Pinned(here))
    }

    pub fn on_device(bytes: usize) -> Result<Buffer> {
        driver::allocate(bytes).map(Buffer::OnDevice)
    }

    pub fn on_peer(bytes: usize, peer: Option<&Rc<Peer>>) -> Result<Buffer> {
        let peer = peer.ok_or_else(|| Error::environment("the other GPU was not opened"))?;
        peer.within(|| driver::allocate(bytes)).map(|address| Buffer::OnPeer(address, peer.clone()))
    }

    /// Where it is: host and devices share one space of addresses (CUDA programming guide, "Unified Virtual Address Space").
    pub fn address(&self) -> CUdeviceptr {
        match self {
            Buffer::Pageable(bytes) => bytes.as_ptr() as CUdeviceptr,
            Buffer::Pinned(here) => *here as CUdeviceptr,
            Buffer::OnDevice(address) | Buffer::OnPeer(address, _) => *address,
        }
    }

    /// Writes bytes to a place in it, untimed; returns when they are there.
    pub fn write(&self, to: usize, bytes: &[u8], stream: CUstream) -> Result<()> {
        if let Some(start) = self.on_host() {
            // SAFETY: from the place on it has at least as many bytes, which are only ours, and which no copy uses now.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(to), bytes.len()) };
            return Ok(());
        }
        // SAFETY: as above; the slice outlives the copy, which is waited for.
        unsafe { driver::copy(self.address() + to as u64, bytes.as_ptr() as CUdeviceptr, bytes.len(), stream)? };
        driver::synchronize(stream)
    }

    /// The bytes from a place in it on, untimed, once all copies into it are done; those of devices are copied to `scratch`.
    pub fn read<'a>(
        &'a self,
        from: usize,
        bytes: usize,
        scratch: &'a mut Vec<u8>,
        stream: CUstream,
    ) -> Result<&'a [u8]> {
        if let Some(start) = self.on_host() {
            // SAFETY: from the place on it has at least as many bytes, and no copy writes there before the next run.
            return Ok(unsafe { slice::from_raw_parts(start.add(from).cast_const(), bytes) });
        }
        scratch.resize(bytes, 0);
        let to = scratch.as_mut_ptr() as CUdeviceptr;
        // SAFETY: as above; the scratch is exclusively ours until the copy is done.
        unsafe { driver::copy(to, self.address() + from as u64, bytes, stream)? };
        driver::synchronize(stream)?;
        Ok(scratch)
    }

    /// Where it begins in the host's memory, which needs no driver to be written and read.
    fn on_host(&self) -> Option<*mut u8> {
        match self {
            Buffer::Pageable(bytes) => Some(bytes.as_ptr().cast::<u8>().cast_mut()),
            Buffer::Pinned(here) => Some(here.cast()),
            Buffer::OnDevice(_) | Buffer::OnPeer(..) => None,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // These fail only if the device is lost, which the next call reports.
        let _ = match self {
            Buffer::Pageable(_) => Ok(()),
            // SAFETY: from `allocate_shared`, and not used again.
            Buffer::Pinned(here) => unsafe { driver::free_shared(*here) },
            // SAFETY: from `allocate`, and not used again.
            Buffer::OnDevice(address) => unsafe { driver::free(*address) },
            // SAFETY: as above.
            Buffer::OnPeer(address, peer) => peer.within(|| unsafe { driver::free(*address) }),
        };
    }
}
