// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Allocations and copies that fail: the kernel's fault injection, for allocations made by the driver only.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::ensure;
use crate::util::Res;

const KINDS: [&str; 3] = ["failslab", "fail_page_alloc", "fail_usercopy"];

fn set(kind: &str, name: &str, value: &str) -> Res {
    let path = format!("/sys/kernel/debug/{kind}/{name}");
    fs::write(&path, value).map_err(|e| format!("{path}: {e}"))?;
    Ok(())
}

/// Addresses of the driver's code, and perhaps of what lies behind it.
fn driver_text() -> Res<(u64, u64)> {
    let modules = fs::read_to_string("/proc/modules")?;
    let line = modules.lines().find(|l| l.starts_with("berth ")).ok_or("the driver is not loaded")?;
    let words: Vec<_> = line.split_whitespace().collect();
    let size: u64 = words.get(1).ok_or("size")?.parse()?;
    let start = words.iter().find_map(|w| w.strip_prefix("0x")).ok_or("address")?;
    let start = u64::from_str_radix(start, 16)?;
    ensure!(start != 0, "the kernel hides addresses");
    Ok((start, start + size))
}

/// Addresses of a function of the kernel.
fn function(name: &str) -> Res<(u64, u64)> {
    let text = fs::read_to_string("/proc/kallsyms")?;
    let symbols = text.lines().filter_map(|l| {
        let mut words = l.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((address, words.nth(1)?))
    });
    let mut all: Vec<_> = symbols.collect();
    all.sort_unstable();
    let (start, _) = *all.iter().find(|(_, n)| *n == name).ok_or("no such function")?;
    let (end, _) = *all.iter().find(|(a, _)| *a > start).ok_or("no function behind it")?;
    ensure!(start != 0, "the kernel hides addresses");
    Ok((start, end))
}

/// From now on only what is under a function of the driver may fail; when dropped nothing does.
pub struct Faults(());

impl Faults {
    /// Nothing fails yet.
    pub fn new() -> Res<Self> {
        let (start, end) = driver_text()?;
        for kind in KINDS {
            set(kind, "probability", "0")?;
            set(kind, "verbose", "0")?;
            set(kind, "interval", "1")?;
            set(kind, "space", "0")?;
            set(kind, "times", "-1")?;
            set(kind, "require-start", &format!("{start:#x}"))?;
            set(kind, "require-end", &format!("{end:#x}"))?;
        }
        // Those too that may wait for memory.
        for kind in ["failslab", "fail_page_alloc"] {
            set(kind, "ignore-gfp-wait", "N")?;
        }
        set("fail_page_alloc", "ignore-gfp-highmem", "N")?;
        set("fail_page_alloc", "min-order", "0")?;
        Ok(Self(()))
    }

    /// Of the driver's next allocations outside of ioctls each `interval`-th fails, `times` in all (-1: without end);
    /// also those that may wait for memory (`waiting`), or only those that must not.
    pub fn allocations(&self, times: i32, interval: u32, waiting: bool) -> Res {
        let (start, end) = function("__x64_sys_ioctl")?;
        set("failslab", "reject-start", &format!("{start:#x}"))?;
        set("failslab", "reject-end", &format!("{end:#x}"))?;
        set("failslab", "ignore-gfp-wait", if waiting { "N" } else { "Y" })?;
        set("failslab", "interval", &interval.to_string())?;
        set("failslab", "times", &times.to_string())?;
        set("failslab", "probability", "100")
    }

    /// Of the driver's allocations and copies, wherever they are, each `interval`-th fails from now on.
    pub fn everywhere(interval: u32) -> Res<Self> {
        let faults = Self::new()?;
        for kind in KINDS {
            set(kind, "interval", &interval.to_string())?;
            set(kind, "probability", "100")?;
        }
        Ok(faults)
    }

    /// None fails any more.
    pub fn none(&self) -> Res {
        set("failslab", "probability", "0")?;
        set("failslab", "reject-start", "0")?;
        set("failslab", "reject-end", "0")
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        for kind in KINDS {
            let off = [
                ("probability", "0"),
                ("require-start", "0"),
                ("require-end", "0xffffffffffffffff"),
                ("reject-start", "0"),
                ("reject-end", "0"),
            ];
            for (name, value) in off {
                if let Err(e) = set(kind, name, value) {
                    eprintln!("fault injection is not off: {e}");
                }
            }
        }
    }
}

/// Has the n-th allocation or copy of this thread under the driver fail.
pub struct FailNth(fs::File);

impl FailNth {
    /// Nothing fails yet.
    pub fn new(_faults: &Faults) -> Res<Self> {
        Ok(Self(fs::File::options().read(true).write(true).open("/proc/thread-self/fail-nth")?))
    }

    /// The `n`-th from now on fails.
    pub fn arm(&self, n: u32) -> Res {
        self.0.write_all_at(n.to_string().as_bytes(), 0)?;
        Ok(())
    }

    /// Nothing fails any more; answers whether something has.
    pub fn disarm(&self) -> Res<bool> {
        let mut text = [0; 16];
        let n = self.0.read_at(&mut text, 0)?;
        let left: u32 = std::str::from_utf8(&text[..n])?.trim().parse()?;
        self.arm(0)?;
        Ok(left == 0)
    }
}
