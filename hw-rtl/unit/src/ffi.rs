// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C ABI of the Verilated modules (written by build.rs). All `unsafe` of the crate is here.

use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Verilator has one random source a thread, and all of them begin anew when a model anywhere gets its seed. So that a
/// seed means the same whatever else runs, one model is made at a time.
static MAKING: Mutex<()> = Mutex::new(());

/// The model on the C++ side.
enum Model {}

/// A port as the model lists it, or a field of one that is a record.
#[repr(C)]
struct PortInfo {
    name: *const c_char,
    low: u32,
    bits: u32,
    input: u32,
    at: unsafe extern "C" fn(*mut Model) -> *mut u8,
}

/// What the generated C++ exports for each module and width.
#[repr(C)]
struct Api {
    ports: *const PortInfo,
    count: u64,
    make: unsafe extern "C" fn(c_int) -> *mut Model,
    release: unsafe extern "C" fn(*mut Model),
    eval: unsafe extern "C" fn(*mut Model, c_int),
    trace: unsafe extern "C" fn(*mut Model, *const c_char) -> c_int,
}

include!(concat!(env!("OUT_DIR"), "/units.rs"));

/// A port of one [`Module`], or a field of a port that is a record (`port.field`); other modules refuse it.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    module: NonNull<Model>,
    at: NonNull<u8>,
    low: u32,
    bits: u32,
    input: bool,
    // of the module's thread
    _not_send: PhantomData<*mut u8>,
}

impl Port {
    /// Bits of the port.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Of the model's bytes that hold some of it, byte `i`: where it is, and which of its bits are the port's.
    fn part(&self, i: usize) -> (usize, u8) {
        let (first, end) = (self.low as usize % 8, self.low as usize % 8 + self.bits as usize);
        let from = if i == 0 { first } else { 0 };
        let upto = (end - 8 * i).min(8);
        (self.low as usize / 8 + i, ((1_u16 << upto) - (1_u16 << from)) as u8)
    }

    /// So many bytes of the model hold some of it.
    fn parts(&self) -> usize {
        (self.low as usize % 8 + self.bits as usize).div_ceil(8)
    }
}

/// A module of hw-rtl/rtl with a clock named `clk`.
///
/// A cycle: set inputs, [`Module::settle`], read outputs (they belong to this cycle, so a handshake is valid and ready
/// here), [`Module::edge`].
#[derive(Debug)]
pub struct Module {
    api: &'static Api,
    model: NonNull<Model>,
    cycles: u64,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("ports", &self.count).finish_non_exhaustive()
    }
}

impl Module {
    /// The widths (`DATA_W`) of a module that are built in; `BERTH_DATA_W` chooses one.
    ///
    /// # Panics
    /// When that one is not built in.
    #[must_use]
    pub fn widths(name: &str) -> Vec<u32> {
        let only = berth_random::number("BERTH_DATA_W");
        let wanted = |width: &u32| only.is_none_or(|w| w == u64::from(*width));
        let widths: Vec<u32> = units().iter().filter(|u| u.0 == name).map(|u| u.1).filter(wanted).collect();
        assert!(only.is_none() || !widths.is_empty(), "{name} is not built at the width in BERTH_DATA_W");
        widths
    }

    /// A module that has not been reset yet, all inputs 0. Registers and memories hold anything, by `BERTH_SEED`.
    ///
    /// # Panics
    /// As [`Module::with_seed`].
    #[must_use]
    pub fn new(name: &str, width: u32) -> Self {
        Self::with_seed(name, width, berth_random::number("BERTH_SEED").unwrap_or(1))
    }

    /// A module that has not been reset yet, all inputs 0. Registers and memories hold anything, by `seed`: what a module
    /// makes of them must not matter.
    ///
    /// # Panics
    /// When it is not built in at this width.
    #[must_use]
    pub fn with_seed(name: &str, width: u32, seed: u64) -> Self {
        let Some(&(_, _, api)) = units().iter().find(|u| u.0 == name && u.1 == width) else {
            let there: Vec<_> = units().iter().map(|u| format!("{} of {}", u.0, u.1)).collect();
            panic!("{name} of DATA_W = {width} is not built in, only {}", there.join(", "));
        };
        let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a number; the result is a fresh model that this value owns.
        let model = unsafe { (api.make)(berth_random::beginning(seed)) };
        let model = NonNull::new(model).expect("operator new does not give null");
        Self { api, model, cycles: 0 }
    }

    /// The port of this name.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn port(&self, name: &str) -> Port {
        self.find(name).unwrap_or_else(|| panic!("the module has no port {name}"))
    }

    /// The port of this name, if there is one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Port> {
        // SAFETY: the table is a constant of the generated C++ with `count` entries.
        let infos = unsafe { std::slice::from_raw_parts(self.api.ports, self.api.count as usize) };
        // SAFETY: the names are string constants.
        let called = |info: &PortInfo| unsafe { CStr::from_ptr(info.name) }.to_bytes() == name.as_bytes();
        let info = infos.iter().find(|info| called(info))?;
        // SAFETY: the model is live.
        let at = NonNull::new(unsafe { (info.at)(self.model.as_ptr()) })?;
        Some(Port {
            module: self.model,
            at,
            low: info.low,
            bits: info.bits,
            input: info.input != 0,
            _not_send: PhantomData,
        })
    }

    /// Sets an input of up to 64 bits.
    ///
    /// # Panics
    /// When the port is no input of this module, is wider, or the value does not fit.
    pub fn set(&mut self, port: Port, value: impl Into<u64>) {
        let value = value.into();
        assert!(port.bits >= 64 || value >> port.bits == 0, "{value:#x} does not fit {} bits", port.bits);
        self.set_wide(port, &[value]);
    }

    /// Sets an input of any width; the lowest word first, missing words are 0.
    ///
    /// # Panics
    /// When the port is no input of this module.
    pub fn set_wide(&mut self, port: Port, words: &[u64]) {
        assert!(port.module == self.model && port.input, "no input of this module");
        let shift = port.low as usize % 8;
        for i in 0..port.parts() {
            // of the value
            let byte = |k: usize| words.get(k / 8).map_or(0, |word| (word >> (8 * (k % 8))) as u8);
            let below = if i == 0 { 0 } else { byte(i - 1) };
            let new = ((u16::from(byte(i)) << 8 | u16::from(below)) >> (8 - shift)) as u8;
            let (at, mask) = port.part(i);
            // SAFETY: the port belongs to the live model, which this call borrows, and has that byte. Bits above the
            // port's width stay 0, as Verilator wants it.
            unsafe {
                let place = port.at.add(at);
                place.write(place.read() & !mask | new & mask);
            }
        }
    }

    /// A port of up to 64 bits.
    ///
    /// # Panics
    /// When the port is not of this module, or wider.
    #[must_use]
    pub fn get(&self, port: Port) -> u64 {
        assert!(port.module == self.model && port.bits <= 64, "no port of up to 64 bits of this module");
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(self.bytes(port)) {
            *to = from;
        }
        u64::from_le_bytes(bytes)
    }

    /// Whether a port of one bit is 1.
    #[must_use]
    pub fn is(&self, port: Port) -> bool {
        self.get(port) != 0
    }

    /// A port of any width, the lowest byte first.
    ///
    /// # Panics
    /// When the port is not of this module.
    #[must_use]
    pub fn bytes(&self, port: Port) -> Vec<u8> {
        assert!(port.module == self.model, "no port of this module");
        let part = |i: usize| {
            let (at, mask) = port.part(i);
            // SAFETY: as in `set_wide`.
            u16::from(unsafe { port.at.add(at).read() } & mask)
        };
        let (n, shift) = (port.parts(), port.low % 8);
        let next = |i: usize| if i + 1 < n { part(i + 1) } else { 0 };
        (0..port.bits.div_ceil(8) as usize).map(|i| ((next(i) << 8 | part(i)) >> shift) as u8).collect()
    }

    /// A port of any width, the lowest word first.
    ///
    /// # Panics
    /// When the port is not of this module.
    #[must_use]
    pub fn words(&self, port: Port) -> Vec<u64> {
        self.bytes(port)
            .chunks(8)
            .map(|chunk| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
            .collect()
    }

    /// The outputs become those of the inputs and of the state before the clock edge.
    pub fn settle(&mut self) {
        // SAFETY: the model is live and not shared.
        unsafe { (self.api.eval)(self.model.as_ptr(), 0) }
    }

    /// The clock edge.
    pub fn edge(&mut self) {
        // SAFETY: as for `settle`.
        unsafe { (self.api.eval)(self.model.as_ptr(), 1) }
        self.cycles += 1;
    }

    /// Clock edges so far.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Resets it through `rst` for four cycles; at first, as after power-on, through `hard_rst` too if it has that.
    pub fn reset(&mut self) {
        let hard = if self.cycles == 0 { self.find("hard_rst") } else { None };
        let resets: Vec<Port> = hard.into_iter().chain([self.port("rst")]).collect();
        for rst in &resets {
            self.set(*rst, 1_u8);
        }
        for _ in 0..4 {
            self.settle();
            self.edge();
        }
        for rst in &resets {
            self.set(*rst, 0_u8);
        }
    }

    /// Starts a waveform file (FST), or with `None` ends it.
    ///
    /// # Errors
    /// When the crate was built without the feature `trace`, or the path holds a NUL.
    pub fn trace(&mut self, path: Option<&Path>) -> Result<(), String> {
        let path = path.map(|p| CString::new(p.as_os_str().as_encoded_bytes())).transpose();
        let path = path.map_err(|_| "the file name holds a NUL".to_string())?;
        let pointer = path.as_ref().map_or(std::ptr::null(), |p| p.as_ptr());
        // SAFETY: the model is live; the path is null or a string that outlives the call.
        match unsafe { (self.api.trace)(self.model.as_ptr(), pointer) } {
            0 => Ok(()),
            _ => Err("built without waveforms: rebuild berth-rtl-unit with the feature `trace`".into()),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the model is live, and nobody uses it afterwards.
        unsafe { (self.api.release)(self.model.as_ptr()) }
    }
}
