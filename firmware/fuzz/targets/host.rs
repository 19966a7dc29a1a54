// SPDX-License-Identifier: Apache-2.0 OR MIT
//! See `berth_fuzz::host`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| berth_fuzz::host::run(data));
