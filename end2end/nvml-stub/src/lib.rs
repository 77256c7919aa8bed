//! A stand-in for the NVIDIA driver's management library, for machines without a GPU.
//!
//! It is loaded through the real dlopen path, so it keeps to the C names, structures and return codes of `nvml.h` and
//! knows nothing of the wrapper or the product. What it answers stands in the file `nvml-stub.conf` beside the library
//! (see `scenario.rs`), read anew by each `nvmlInit_v2`: a test copies both into a folder of its own, and each copy is
//! a library of its own.

mod calls;
mod level;
mod place;
mod player;
mod proc_tree;
mod scenario;
