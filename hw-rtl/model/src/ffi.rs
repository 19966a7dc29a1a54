// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C ABI of the Verilated card (`cpp/shim.cpp`). All `unsafe` of the crate is here.

use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Verilator has one random source a thread, and all of them begin anew when a model anywhere gets its seed. So that a
/// seed means the same whatever else runs, one model is made at a time.
static MAKING: Mutex<()> = Mutex::new(());

/// Declares a struct of the C ABI.
macro_rules! ports {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default)]
        #[allow(missing_docs)] // the ports are described in berth_core.sv
        pub struct $name { $(pub $field: $ty,)* }
    };
}

/// A beat of the MAC port: the lowest byte first, `DATA_W` / 64 words count.
pub type Beat = [u64; 8];

/// A beat of the host port: twice as many words count.
pub type HostBeat = [u64; 16];

ports! {
    /// Input ports of `berth_core`, by their names there.
    Inputs {
        mmio_wdata: u64,
        hcpl_data: HostBeat,
        rx_data: Beat,
        rx_keep: u64,
        skip: u64,
        mmio_addr: u32,
        dbg_addr: u32,
        dbg_wdata: u32,
        hcpl_off: u16,
        hcpl_len: u16,
        rst: u8,
        mmio_valid: u8,
        mmio_write: u8,
        mmio_bar: u8,
        mmio_wstrb: u8,
        hrd_ready: u8,
        hcpl_valid: u8,
        hcpl_tag: u8,
        hcpl_last: u8,
        hcpl_err: u8,
        hwr_ready: u8,
        msix_ready: u8,
        cfg_max_payload: u8,
        cfg_max_read_req: u8,
        tx_ready: u8,
        rx_valid: u8,
        rx_last: u8,
        rx_err: u8,
        dbg_req: u8,
        dbg_we: u8,
    }
}

ports! {
    /// Output ports of `berth_core`, by their names there.
    Outputs {
        mmio_rdata: u64,
        hrd_addr: u64,
        hwr_addr: u64,
        hwr_data: HostBeat,
        tx_data: Beat,
        tx_keep: u64,
        timer_deadline: u64,
        cycles: u64,
        dbg_rdata: u32,
        hrd_len: u16,
        hwr_len: u16,
        mmio_ready: u8,
        mmio_rvalid: u8,
        hrd_valid: u8,
        hrd_tag: u8,
        hcpl_ready: u8,
        hwr_valid: u8,
        hwr_first: u8,
        hwr_last: u8,
        msix_valid: u8,
        msix_vector: u8,
        tx_valid: u8,
        tx_last: u8,
        rx_ready: u8,
        idle: u8,
        timer_armed: u8,
        dbg_ack: u8,
    }
}

/// The model on the C++ side.
enum Model {}

/// What the shim exports for each width of the card.
#[repr(C)]
struct Api {
    make: unsafe extern "C" fn(c_int) -> *mut Model,
    free: unsafe extern "C" fn(*mut Model),
    settle: unsafe extern "C" fn(*mut Model, *const Inputs, *mut Outputs),
    edge: unsafe extern "C" fn(*mut Model, *mut Outputs),
    run: unsafe extern "C" fn(*mut Model, u64, *mut Outputs) -> u64,
    trace: unsafe extern "C" fn(*mut Model, *const c_char) -> c_int,
    points: unsafe extern "C" fn(*mut Model) -> u32,
    cover: unsafe extern "C" fn(*mut Model, *mut u32),
    cover_write: unsafe extern "C" fn(*mut Model, *const u32, *const c_char) -> c_int,
}

unsafe extern "C" {
    static berth_api_64: Api;
    #[cfg(feature = "widths")]
    static berth_api_128: Api;
    #[cfg(feature = "widths")]
    static berth_api_256: Api;
    #[cfg(feature = "ends")]
    static berth_api_512: Api;
}

/// The widths (`DATA_W`) that are built in.
pub const WIDTHS: &[usize] = if cfg!(feature = "widths") {
    &[64, 128, 256, 512]
} else if cfg!(feature = "ends") {
    &[64, 512]
} else {
    &[64]
};

/// The model of a width, when it is built in.
fn api(width: usize) -> Option<&'static Api> {
    // SAFETY: the tables are constants of the shim.
    unsafe {
        Some(match width {
            64 => &berth_api_64,
            #[cfg(feature = "widths")]
            128 => &berth_api_128,
            #[cfg(feature = "widths")]
            256 => &berth_api_256,
            #[cfg(feature = "ends")]
            512 => &berth_api_512,
            _ => return None,
        })
    }
}

/// The Verilated card, clock by clock: [`Core::settle`] shows the outputs that belong to
/// the inputs of a cycle, [`Core::edge`] ends the cycle.
pub struct Core {
    api: &'static Api,
    model: NonNull<Model>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("model", &self.model).finish_non_exhaustive()
    }
}

// SAFETY: the model is owned by this value alone and has a Verilator context of its own;
// each call of the C ABI makes that context the thread's current one first.
unsafe impl Send for Core {}

impl Core {
    /// A card of this width (`DATA_W`) that has not been reset yet. With the feature `assert` registers and memories
    /// hold anything, by `BERTH_SEED`, as what the card makes of them must not matter; else zeros.
    ///
    /// # Panics
    /// When the width is none of [`WIDTHS`].
    #[must_use]
    pub fn new(width: usize) -> Self {
        let api = api(width).unwrap_or_else(|| {
            panic!(
                "no card of DATA_W = {width} is built in, only {WIDTHS:?}; the feature `widths` of berth-rtl has all"
            )
        });
        let seed = berth_random::beginning(berth_random::number("BERTH_SEED").unwrap_or(1));
        let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a number; the result is a fresh model that this value owns.
        let model = unsafe { (api.make)(seed) };
        Self { api, model: NonNull::new(model).expect("operator new does not give null") }
    }

    /// Applies the inputs of this cycle and gives the outputs before its clock edge.
    pub fn settle(&mut self, inputs: &Inputs, outputs: &mut Outputs) {
        // SAFETY: the model is live and not shared; both structs match the C ABI.
        unsafe { (self.api.settle)(self.model.as_ptr(), inputs, outputs) }
    }

    /// The clock edge. The outputs are those behind it, with the inputs of the last settle.
    pub fn edge(&mut self, outputs: &mut Outputs) {
        // SAFETY: as for `settle`.
        unsafe { (self.api.edge)(self.model.as_ptr(), outputs) }
    }

    /// One clock: settle and edge; gives the outputs before the edge.
    pub fn step(&mut self, inputs: &Inputs) -> Outputs {
        let mut before = Outputs::default();
        let mut behind = Outputs::default();
        self.settle(inputs, &mut before);
        self.edge(&mut behind);
        before
    }

    /// Clocks until an output becomes valid, the card becomes idle, or `limit` cycles
    /// have passed; gives the cycles done. The last settled inputs must be quiet.
    pub fn run(&mut self, limit: u64, outputs: &mut Outputs) -> u64 {
        // SAFETY: as for `settle`.
        unsafe { (self.api.run)(self.model.as_ptr(), limit, outputs) }
    }

    /// Starts a waveform file (FST), or with `None` ends it.
    ///
    /// # Errors
    /// When the crate was built without the feature `trace`, or the path holds a NUL.
    pub fn trace(&mut self, path: Option<&Path>) -> Result<(), String> {
        let path = path.map(c_path).transpose()?;
        let pointer = path.as_ref().map_or(std::ptr::null(), |p| p.as_ptr());
        // SAFETY: the model is live; the path is null or a string that outlives the call.
        match unsafe { (self.api.trace)(self.model.as_ptr(), pointer) } {
            0 => Ok(()),
            _ => Err("built without waveforms: rebuild berth-rtl with the feature `trace`".into()),
        }
    }

    /// Coverage counters; none without the feature `cover`.
    fn points(&mut self) -> usize {
        // SAFETY: as for `settle`.
        unsafe { (self.api.points)(self.model.as_ptr()) as usize }
    }

    /// Moves the coverage counters to `counts` and begins anew with 0. Without the feature `cover` there are none.
    pub fn take_coverage(&mut self, counts: &mut Vec<u32>) {
        counts.resize(self.points(), 0);
        // SAFETY: as for `settle`; `counts` has as many elements as there are counters.
        unsafe { (self.api.cover)(self.model.as_ptr(), counts.as_mut_ptr()) }
    }

    /// Writes a file in Verilator's format, as if the coverage counters were `counts`. Counting begins anew with 0.
    ///
    /// # Errors
    /// When the crate was built without the feature `cover`, these are not as many counts as
    /// [`take_coverage`](Self::take_coverage) gives, or the path holds a NUL.
    pub fn write_coverage(&mut self, counts: &[u32], path: &Path) -> Result<(), String> {
        let path = c_path(path)?;
        if counts.len() != self.points() {
            return Err(format!("{} counts of {} counters", counts.len(), self.points()));
        }
        // SAFETY: the model is live; there are as many counts as counters; the path is a string that outlives the call.
        match unsafe { (self.api.cover_write)(self.model.as_ptr(), counts.as_ptr(), path.as_ptr()) } {
            0 => Ok(()),
            _ => Err("built without coverage: rebuild berth-rtl with the feature `cover`".into()),
        }
    }
}

/// A path as C has it.
fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| "the file name holds a NUL".into())
}

impl Drop for Core {
    fn drop(&mut self) {
        // SAFETY: the model is live, and nobody uses it afterwards.
        unsafe { (self.api.free)(self.model.as_ptr()) }
    }
}
