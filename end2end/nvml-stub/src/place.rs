//! Where this copy of the library lies, so that it can read the file beside it.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[repr(C)]
struct DlInfo {
    file_name: *const c_char,
    base: *mut c_void,
    symbol_name: *const c_char,
    symbol: *mut c_void,
}

unsafe extern "C" {
    /// Of the C library: which loaded object an address belongs to.
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// The folder of this copy.
pub fn folder() -> Option<PathBuf> {
    let mut info = DlInfo {
        file_name: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol_name: std::ptr::null(),
        symbol: std::ptr::null_mut(),
    };
    // SAFETY: the address is of a function in this library; dladdr fills the structure or returns zero, and the name it
    // points to lives as long as the library is loaded.
    let file = unsafe {
        if dladdr(folder as *const c_void, &raw mut info) == 0 || info.file_name.is_null() {
            return None;
        }
        PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.file_name).to_bytes()))
    };
    file.parent().map(PathBuf::from)
}
