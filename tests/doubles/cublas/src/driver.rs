//! The functions of the stand-in for libcuda that this one calls. It refuses to work with the real driver.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::LazyLock;

type Answer = Result<(), ()>;
type HostFunction = unsafe extern "C" fn(*mut c_void);

struct Driver {
    get_device: unsafe extern "C" fn(*mut c_int) -> c_int,
    get_name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    launch: unsafe extern "C" fn(usize, HostFunction, *mut c_void) -> c_int,
    range: unsafe extern "C" fn(*mut usize, *mut usize, usize) -> c_int,
}

static DRIVER: LazyLock<Option<Driver>> = LazyLock::new(|| unsafe {
    let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
    if library.is_null() {
        return None;
    }
    let symbol = |name: &CStr| Some(libc::dlsym(library, name.as_ptr())).filter(|symbol| !symbol.is_null());
    // SAFETY: the functions of the stand-in have these signatures.
    Some(Driver {
        get_device: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(symbol(
            c"cuCtxGetDevice",
        )?),
        get_name: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>(symbol(
            c"cuDeviceGetName",
        )?),
        launch: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize, HostFunction, *mut c_void) -> c_int>(
            symbol(c"cuLaunchHostFunc")?,
        ),
        range: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut usize, *mut usize, usize) -> c_int>(
            symbol(c"cuMemGetAddressRange_v2")?,
        ),
    })
});

fn driver() -> Result<&'static Driver, ()> {
    DRIVER.as_ref().ok_or(())
}

fn done(code: c_int) -> Answer {
    if code == 0 { Ok(()) } else { Err(()) }
}

/// Checks that a context of a stand-in is current.
pub fn check_context() -> Answer {
    let (driver, mut device, mut name) = (driver()?, 0, [0; 64]);
    unsafe {
        done((driver.get_device)(&mut device))?;
        done((driver.get_name)(name.as_mut_ptr(), name.len() as c_int, device))?;
        if CStr::from_ptr(name.as_ptr()).to_string_lossy().contains("double") { Ok(()) } else { Err(()) }
    }
}

/// Checks that this many bytes from an address are in one allocation of the driver.
pub fn check_buffer(address: usize, bytes: usize) -> Answer {
    let (mut start, mut room) = (0, 0);
    done(unsafe { (driver()?.range)(&mut start, &mut room, address) })?;
    if address + bytes <= start + room { Ok(()) } else { Err(()) }
}

pub fn launch_host_function(stream: usize, function: HostFunction, data: *mut c_void) -> Answer {
    done(unsafe { (driver()?.launch)(stream, function, data) })
}
