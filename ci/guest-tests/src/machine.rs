// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of the machine: interrupts move, processors go, memory runs out, the driver comes and goes while it is read
//! (docs/concepts/field-reports.md).

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use berth_abi::counters as c;
use libberth::{Device, Error};

use crate::connections::loopback_works;
use crate::env::Env;
use crate::service::{
    after_reset, driver_dir, end_of, function_level_reset, nothing_left, pci_address, start_helper, wait_for_device,
    wait_in_service,
};
use crate::util::{Mem, Res, check, depths, fail, loop_pair, wait_until};
use crate::{ensure, ensure_eq, tests};

tests! {
    One: inv_6_interrupts_move_and_processors_go_under_traffic, inv_3_out_of_memory_killer_takes_a_receiver;
    One Disruptive: inv_3_card_is_bound_again_and_again_while_it_is_read, fw_log_of_before_a_crash_is_there_after_the_reset,
         inv_6_limits_of_the_slot_hold_at_once;
}

/// Folders of the card's interrupts in `/proc/irq`.
fn interrupts() -> Res<Vec<PathBuf>> {
    let folder = format!("/sys/bus/pci/devices/{}/msi_irqs", pci_address()?);
    let numbers = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<Res<Vec<_>>>()?;
    Ok(numbers.into_iter().map(|number| Path::new("/proc/irq").join(number)).collect())
}

fn inv_6_interrupts_move_and_processors_go_under_traffic(env: &Env) -> Res {
    const BYTES: usize = 8192;
    let online = Path::new("/sys/devices/system/cpu/cpu1/online");
    ensure!(online.exists(), "this test wants a second processor");
    let interrupts = interrupts()?;
    ensure!(!interrupts.is_empty(), "the card has no interrupts");
    let (source, target) = (Mem::pattern(BYTES, 760)?, Mem::new(BYTES)?);
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 1010)?;
    let over = AtomicBool::new(false);
    let rounds = env.cases(12, 200);
    let moved = thread::scope(|scope| -> Res<u64> {
        let mover = scope.spawn(|| -> Res {
            let moves = || -> Res {
                for round in 0..rounds {
                    for (n, interrupt) in (0..).zip(&interrupts) {
                        // Those that the kernel pins to a processor of its choice refuse.
                        let _ = fs::write(interrupt.join("smp_affinity"), if (n + round) % 2 == 0 { "1" } else { "2" });
                    }
                    // Its interrupts and the driver's work go elsewhere, and what ran there.
                    fs::write(online, "0")?;
                    thread::sleep(Duration::from_millis(20));
                    fs::write(online, "1")?;
                    thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            };
            let outcome = moves();
            over.store(true, Ordering::Release);
            outcome
        });
        // Each completion is waited for, so that a lost interrupt stops this.
        let mut messages = 0;
        while !over.load(Ordering::Acquire) || messages < 8 {
            to.recv(messages, &[target.sge(0, BYTES)])?;
            from.send(messages, &[source.sge(0, BYTES)])?;
            to.received(env)?.ok()?;
            from.sent(env)?.ok()?;
            check(target.bytes(), 760, 0)?;
            messages += 1;
        }
        mover.join().unwrap_or_else(|_| fail("panicked"))?;
        Ok(messages)
    });
    fs::write(online, "1")?;
    println!("figures: {} messages beside {rounds} times that a processor went", moved?);
    Ok(())
}

/// The kernel's own choice and its own way, on request: its worst process, which holds memory that the card may write.
fn inv_3_out_of_memory_killer_takes_a_receiver(env: &Env) -> Res {
    for name in ["granted", "traffic"] {
        let mut child = start_helper(env, name)?;
        fs::write(format!("/proc/{}/oom_score_adj", child.id()), "1000")?;
        fs::write("/proc/sysrq-trigger", "f")?;
        let status = child.wait()?;
        ensure_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
        nothing_left(env)?;
    }
    loopback_works(env, 1012)
}

/// Reads whatever the driver shows, until it is killed.
fn reader() -> Res<Child> {
    const LOOP: &str = "while :; do berth info; cat /sys/kernel/debug/berth/*/* /sys/class/misc/berth*/*; \
                        cat /dev/berth0; done";
    Ok(Command::new("sh")
        .args(["-c", LOOP])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?)
}

fn inv_3_card_is_bound_again_and_again_while_it_is_read(env: &Env) -> Res {
    let (address, driver) = (pci_address()?, driver_dir()?);
    let mut readers = [reader()?, reader()?];
    let rounds = env.cases(3, 200);
    let result = (0..rounds).try_for_each(|round| -> Res {
        fs::write(driver.join("unbind"), &address)?;
        ensure!(Device::open_first().is_err(), "round {round}: the device is still there");
        fs::write(driver.join("bind"), &address)?;
        wait_for_device(env)
    });
    for reader in &mut readers {
        reader.kill()?;
        reader.wait()?;
    }
    result?;
    nothing_left(env)?;
    after_reset(env, 1014)
}

/// The unread rest of the firmware's log, and how much of it was lost.
fn read_log(device: &Device) -> Res<(Vec<u8>, u32)> {
    let (mut bytes, mut lost) = (Vec::new(), 0);
    loop {
        let (taken, gone) = device.read_log(&mut bytes)?;
        lost += gone;
        if taken == 0 {
            return Ok((bytes, lost));
        }
    }
}

fn fw_log_of_before_a_crash_is_there_after_the_reset(env: &Env) -> Res {
    let device = env.device()?;
    // The log entries of a connection and its end.
    read_log(&device)?;
    loopback_works(env, 1016)?;
    let mut usual = Vec::new();
    wait_until("firmware has logged a connection", env.hang, || {
        usual.extend(read_log(&device)?.0);
        Ok(!usual.is_empty())
    })?;
    loopback_works(env, 1017)?;
    let resets = device.counters()?.drv(c::D_RESETS);
    match device.crash(false) {
        Ok(()) | Err(Error::Firmware { .. } | Error::DeviceLost) => {}
        Err(e) => return Err(e.into()),
    }
    wait_until("the driver resets it", env.hang, || Ok(device.counters()?.drv(c::D_RESETS) > resets))?;
    wait_in_service(env)?;
    after_reset(env, 1018)?;
    let (bytes, lost) = read_log(&device)?;
    println!("figures: {} bytes of log over a crash, {lost} lost; {} of a connection", bytes.len(), usual.len());
    // Of both connections, the one before the crash and the one behind it.
    ensure!(bytes.len() >= 2 * usual.len(), "{} bytes of log, {} of one connection", bytes.len(), usual.len());
    ensure_eq!(lost, 0);
    Ok(())
}

/// Device Control of the card's PCI Express capability: its offset in configuration space.
fn device_control(config: &fs::File) -> Res<u64> {
    const PCI_EXPRESS: u8 = 0x10;
    let byte = |at: u64| -> Res<u8> {
        let mut byte = [0];
        config.read_exact_at(&mut byte, at)?;
        Ok(byte[0])
    };
    let mut at = u64::from(byte(0x34)?);
    while at != 0 {
        if byte(at)? == PCI_EXPRESS {
            return Ok(at + 8);
        }
        at = byte(at + 1)?.into();
    }
    fail("no PCI Express capability")
}

/// Maximum payload and maximum read request change while the card moves data, and before a function-level reset. The
/// simulator holds each transfer of the card to them.
fn inv_6_limits_of_the_slot_hold_at_once(env: &Env) -> Res {
    const LIMITS: u16 = 7 << 5 | 7 << 12;
    let function = PathBuf::from(format!("/sys/bus/pci/devices/{}", pci_address()?));
    let config = fs::File::options().read(true).write(true).open(function.join("config"))?;
    let at = device_control(&config)?;
    let read = || -> Res<u16> {
        let mut word = [0; 2];
        config.read_exact_at(&mut word, at)?;
        Ok(u16::from_le_bytes(word))
    };
    let before = read()?;
    let device = env.device()?;
    let change = |payload: u16, read_request: u16| -> Res {
        let limits = before & !LIMITS | payload << 5 | read_request << 12;
        config.write_all_at(&limits.to_le_bytes(), at)?;
        let bytes = |code: u16| 128u64 << code;
        let card = (env.sim_number("pcie_max_payload")?, env.sim_number("pcie_max_read_request")?);
        ensure_eq!(card, (bytes(payload), bytes(read_request)));
        // ... and the card works with them.
        let placed = || device.counters().map(|n| n.rtl(c::C_FP_BYTES_PLACED));
        let now = placed()?;
        wait_until("data moves", env.hang, || Ok(placed()? > now + (64 << 10)))
    };
    let child = start_helper(env, "traffic")?;
    for (payload, read_request) in [(2, 5), (0, 0), (1, 3), (0, 5), (2, 0), (0, 0), (2, 2)] {
        change(payload, read_request)?;
    }
    function_level_reset(env, || end_of(child, env))?;
    after_reset(env, 1026)?;
    config.write_all_at(&before.to_le_bytes(), at)?;
    loopback_works(env, 1028)
}
