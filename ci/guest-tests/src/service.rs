// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that tests start beside themselves, and a card that goes and comes back.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use berth_abi::{counters as c, status};
use libberth::Device;

use crate::connections::loopback_works;
use crate::env::Env;
use crate::util::{Res, fail, wait_until};
use crate::{ensure, ensure_eq};

/// Starts a helper; it writes `ready` when it is ready.
pub fn spawn_helper(env: &Env, name: &str, ready: &std::path::Path) -> Res<Child> {
    let child = Command::new(std::env::current_exe()?)
        .args(["--role", env.role.name(), "--helper", name])
        .arg("--own-ip")
        .arg(env.own_ip.to_string())
        .arg("--peer-ip")
        .arg(env.peer_ip.to_string())
        .env("BERTH_TEST_READY", ready)
        .stdin(Stdio::null())
        .spawn()?;
    Ok(child)
}

/// Starts a helper and waits until it says that it is ready.
pub fn start_helper(env: &Env, name: &str) -> Res<Child> {
    let ready = std::env::temp_dir().join(format!("berth-ready-{name}-{}", std::process::id()));
    let _ = fs::remove_file(&ready);
    let mut child = spawn_helper(env, name, &ready)?;
    let result = wait_until("the helper is ready", env.hang, || {
        if let Some(status) = child.try_wait()? {
            return fail(format!("helper {name} ended: {status}"));
        }
        Ok(ready.exists())
    });
    let _ = fs::remove_file(&ready);
    if let Err(e) = result {
        let _ = child.kill();
        let _ = child.wait();
        return Err(e);
    }
    Ok(child)
}

/// Tells the parent of this helper that it is ready.
pub fn ready() -> Res {
    if let Some(path) = std::env::var_os("BERTH_TEST_READY") {
        fs::write(PathBuf::from(path), "")?;
    }
    Ok(())
}

/// Waits until a helper has ended, however.
pub fn end_of(mut child: Child, env: &Env) -> Res {
    let result = wait_until("the program with traffic ends", env.hang, || Ok(child.try_wait()?.is_some()));
    if result.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    result
}

/// Waits until nothing is left of any process.
pub fn nothing_left(env: &Env) -> Res {
    let device = env.device()?;
    wait_until("nothing is left of the process", env.hang, || {
        let n = device.counters()?;
        Ok(n.pinned() == 0 && n.drv(c::D_QPS) == 0 && n.drv(c::D_CONTEXTS) == 0)
    })
}

/// The card works (again): name, firmware, a transfer.
pub fn after_reset(env: &Env, service: u16) -> Res {
    Env::prepare(&env.args)?;
    ensure_eq!(env.device()?.info()?.fw_status, status::FW_RUNNING);
    loopback_works(env, service)
}

/// Waits until firmware runs and answers, after a reset that the driver does by itself. The card may be gone meanwhile.
pub fn wait_in_service(env: &Env) -> Res {
    wait_until("the card is in service again", env.hang, || {
        let running =
            env.device().and_then(|device| Ok(device.info()?)).is_ok_and(|i| i.fw_status == status::FW_RUNNING);
        Ok(running && env.context().is_ok_and(|c| c.create_cq(1).is_ok()))
    })
}

/// A function-level reset by sysfs, then what is to end by it, then the card is in service again. The driver is not told; its
/// watchdog finds firmware stopped, or the card gone for as long as the reset takes.
pub(crate) fn function_level_reset(env: &Env, ends: impl FnOnce() -> Res) -> Res {
    let device = env.device()?;
    let resets = device.counters()?.drv(c::D_RESETS);
    let function = PathBuf::from(format!("/sys/bus/pci/devices/{}", pci_address()?));
    let methods = fs::read_to_string(function.join("reset_method"))?;
    ensure!(methods.contains("flr"), "methods of resetting the card: {methods}");
    fs::write(function.join("reset_method"), "flr")?;
    fs::write(function.join("reset"), "1")?;
    ends()?;
    wait_until("the driver notices", env.hang, || Ok(device.counters().is_ok_and(|n| n.drv(c::D_RESETS) > resets)))?;
    wait_in_service(env)?;
    fs::write(function.join("reset_method"), methods.trim())?;
    Ok(())
}

/// The card's PCI address, such as `0000:00:03.0`.
pub fn pci_address() -> Res<String> {
    for entry in fs::read_dir("/sys/bus/pci/devices")? {
        let path = entry?.path();
        let vendor = fs::read_to_string(path.join("vendor"))?;
        let device = fs::read_to_string(path.join("device"))?;
        if vendor.trim() == "0x10ee" && device.trim() == "0xbe47" {
            let name = path.file_name().and_then(|n| n.to_str()).ok_or("name")?;
            return Ok(name.to_owned());
        }
    }
    fail("no card on the PCI bus")
}

/// Waits until a device node can be opened.
pub fn wait_for_device(env: &Env) -> Res {
    wait_until("the device is back", env.hang, || Ok(Device::open_first().is_ok()))
}

/// Folder of the driver that the card is bound to.
pub fn driver_dir() -> Res<PathBuf> {
    let link = PathBuf::from(format!("/sys/bus/pci/devices/{}/driver", pci_address()?));
    Ok(fs::canonicalize(link)?)
}

/// Removes the module, as soon as it is not used any more, and loads it again.
pub fn reload(env: &Env) -> Res {
    reload_with(env, c"")
}

/// The same, with parameters.
pub fn reload_with(env: &Env, parameters: &std::ffi::CStr) -> Res {
    wait_until("the module is gone", env.hang, || {
        // SAFETY: a name that ends with NUL.
        let ret = unsafe { libc::syscall(libc::SYS_delete_module, c"berth".as_ptr(), libc::O_NONBLOCK) };
        let error = std::io::Error::last_os_error();
        // In use until a killed process has been cleaned up.
        ensure!(
            ret == 0 || matches!(error.raw_os_error(), Some(libc::EWOULDBLOCK | libc::EBUSY)),
            "delete_module: {error}"
        );
        Ok(ret == 0)
    })?;
    let module = fs::File::open(&env.args.module)?;
    // SAFETY: a string that ends with NUL.
    let ret = unsafe { libc::syscall(libc::SYS_finit_module, module.as_raw_fd(), parameters.as_ptr(), 0) };
    ensure!(ret == 0, "finit_module: {}", std::io::Error::last_os_error());
    wait_for_device(env)
}

/// Pulls the card out under a helper's traffic, which ends by itself, and puts it in again.
pub fn replace_card(env: &Env, child: Child) -> Res {
    let address = pci_address()?;
    env.sim_cards("unplug {own}")?;
    let result = (|| -> Res {
        end_of(child, env)?;
        wait_until("the driver notices", env.hang, || {
            Ok(Device::open_first().and_then(|d| d.counters()).map_or(true, |n| n.pinned() == 0))
        })?;
        fs::write(format!("/sys/bus/pci/devices/{address}/remove"), "1")?;
        Ok(())
    })();
    env.sim_cards("replug {own}")?;
    result?;
    fs::write("/sys/bus/pci/rescan", "1")?;
    wait_until("the card is back", Duration::from_secs(60), || Ok(pci_address().is_ok()))?;
    wait_for_device(env)
}
