// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that end in every way, firmware that crashes, a driver that goes, a card that is pulled out.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use berth_abi::{counters as c, ioctl, status};
use libberth::{Device, Error, Reason, Status, Stream};

use crate::connections::loopback_works;
use crate::env::{Env, Role};
use crate::service::{
    after_reset, driver_dir, end_of, function_level_reset, nothing_left, pci_address, ready, reload, reload_with,
    replace_card, start_helper, wait_for_device, wait_in_service,
};
use crate::util::{Conn, Mem, PAGE, Res, check, depths, establish, in_child, loop_pair, wait_pid, wait_until};
use crate::{ensure, ensure_eq, tests};

tests! {
    One: inv_3_killed_process_leaves_nothing_pinned, inv_3_exec_leaves_nothing_pinned,
         qp_10_inherited_descriptor_is_refused;
    Pair: qp_17_killed_peer_is_noticed, tool_moves_a_file;
    Pair Disruptive: inv_3_card_is_unbound_while_the_peer_sends;
    One: tool_tells_what_there_is;
    One Disruptive: fw_refused_image_is_named, inv_5_doorbell_page_is_gone_after_unbind,
         fw_panic_is_reported_and_reset_repairs, fw_hang_is_noticed_and_reset_repairs,
         fw_that_fails_again_and_again_is_given_up_until_a_reset, reset_under_traffic,
         function_level_reset_under_traffic,
         inv_3_memory_is_reaped_while_grants_are_out,
         inv_3_unbind_under_traffic, inv_3_module_goes_and_comes_back, inv_3_unplugged_card_is_let_go;
}

/// Writes its doorbell page when told to, after the driver was unbound and bound again.
pub fn stale_doorbell(env: &Env) -> Res {
    crate::field::own_sigbus_handler();
    let context = env.context()?;
    let page = libberth::raw::doorbell_page(&context).cast::<u64>();
    let go = PathBuf::from(std::env::var_os("BERTH_TEST_READY").ok_or("no file")?).with_extension("go");
    ready()?;
    wait_until("told to go on", env.hang, || Ok(go.exists()))?;
    // SAFETY: the point of the test: the page is not the card's any more, and the library puts memory in its place.
    let read_back = unsafe {
        page.write_volatile(16);
        page.read_volatile()
    };
    // A register page would not have kept it: doorbells are write-only.
    ensure_eq!(read_back, 16);
    crate::field::own_sigbus_goes_to_its_handler()
}

/// Loopback traffic until it fails or is killed.
pub fn traffic(env: &Env) -> Res {
    let context = env.context()?;
    let from = Stream::new(&context, &depths(8, 8), PAGE)?;
    let to = Stream::new(&context, &depths(8, 8), 256 << 10)?;
    let (mut from, mut to) = (from, to);
    to.post_recv(&[16384; 8])?;
    crate::util::loop_back(env, &context, from.queue_pair(), to.queue_pair(), 800)?;
    let mut count = 0u64;
    loop {
        while from.has_send_room() {
            from.send(libberth::Buffer::new(16384)?, false)?;
        }
        let piece = to.next_piece(None)?.ok_or("no buffer")?;
        drop(piece);
        to.post_recv(&[16384])?;
        while let Some(sent) = from.try_next_sent()? {
            sent.completion.ok()?;
        }
        count += 1;
        if count == 4 {
            ready()?;
        }
    }
}

/// Receives granted, and then nothing.
pub fn granted(env: &Env) -> Res {
    let mem = Mem::new(64 << 10)?;
    let context = env.context()?;
    let (_from, mut to) = loop_pair(env, &context, &depths(4, 8), 801)?;
    let sges: Vec<_> = (0..8).map(|n| mem.sge(n * 8192, 8192)).collect();
    to.recv(0, &sges)?;
    to.wait_state(env, "all receives are announced", |s| s.announced == 8)?;
    ensure!(env.counters()?.pinned() >= 64 << 10);
    ready()?;
    to.received(env)?;
    Ok(())
}

fn inv_3_killed_process_leaves_nothing_pinned(env: &Env) -> Res {
    for name in ["granted", "traffic"] {
        let mut child = start_helper(env, name)?;
        child.kill()?;
        child.wait()?;
        nothing_left(env)?;
    }
    loopback_works(env, 802)
}

pub fn inherited_is_refused(fd: i32) -> Res {
    let mut arg = ioctl::CreateCq { entries: 1, event_fd: -1, ..Default::default() };
    // SAFETY: the struct of this request.
    let ret = unsafe { libc::ioctl(fd, ioctl::IOC_CREATE_CQ as libc::Ioctl, &raw mut arg) };
    let errno = std::io::Error::last_os_error().raw_os_error();
    ensure!(ret < 0 && errno == Some(libc::EPERM), "ioctl answered {ret}, errno {errno:?}");
    Ok(())
}

fn inv_3_exec_leaves_nothing_pinned(env: &Env) -> Res {
    let exe = std::env::current_exe()?;
    // A child makes its own context with grants out, and becomes another program that keeps the descriptor.
    let code = in_child(|| {
        use std::os::unix::process::CommandExt;
        let mem = Mem::new(PAGE)?;
        let context = env.context()?;
        let (_from, mut to) = loop_pair(env, &context, &depths(4, 4), 803)?;
        to.recv(0, &[mem.sge(0, PAGE)])?;
        to.wait_state(env, "the receive is announced", |s| s.announced == 1)?;
        let fd = context.as_fd().as_raw_fd();
        // SAFETY: no memory is involved; the descriptor survives exec from now on.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
        let error = Command::new(&exe)
            .args(["--role", env.role.name(), "--helper", "inherited"])
            .env("BERTH_TEST_FD", fd.to_string())
            .exec();
        Err(error.into())
    })?;
    ensure_eq!(code, 0);
    nothing_left(env)?;
    loopback_works(env, 804)
}

fn qp_10_inherited_descriptor_is_refused(env: &Env) -> Res {
    let source = Mem::pattern(PAGE, 70)?;
    let target = Mem::new(PAGE)?;
    let context = env.context()?;
    let (mut from, mut to) = loop_pair(env, &context, &depths(4, 4), 805)?;
    let fd = context.as_fd().as_raw_fd();
    let code = in_child(|| inherited_is_refused(fd))?;
    ensure_eq!(code, 0);
    // Queues and doorbells are not in the child: touching them kills it.
    let page = libberth::raw::doorbell_page(&context);
    let code = in_child(|| {
        // SAFETY: the point of the test: the page is not mapped in the child, which dies of it.
        unsafe { page.cast::<u64>().write_volatile(0) };
        Ok(())
    })?;
    ensure_eq!(code, 128 + libc::SIGSEGV);
    to.recv(0, &[target.sge(0, PAGE)])?;
    from.send(0, &[source.sge(0, PAGE)])?;
    to.received(env)?.ok()?;
    check(target.bytes(), 70, 0)
}

fn qp_17_killed_peer_is_noticed(env: &Env) -> Res {
    match env.role {
        Role::A => {
            // No credit, so no data: only the connection itself shows the loss.
            let mem = Mem::new(PAGE)?;
            let context = env.context()?;
            let mut conn = Conn::new(&context, &depths(4, 4))?;
            conn.recv(0, &[mem.sge(0, PAGE)])?;
            establish(env, &context, &conn.qp, 806)?;
            env.tell("connected", "")?;
            ensure_eq!(conn.qp.wait_closed(env.limit())?, Reason::PeerClose);
            ensure_eq!(conn.received(env)?.status, Status::Flushed);
        }
        Role::B => {
            // SAFETY: this program has one thread here.
            let pid = unsafe { libc::fork() };
            ensure!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
            if pid == 0 {
                let result = (|| -> Res {
                    let context = env.context()?;
                    let conn = Conn::new(&context, &depths(4, 4))?;
                    establish(env, &context, &conn.qp, 806)?;
                    // Until killed.
                    conn.received(env)?;
                    Ok(())
                })();
                eprintln!("child: {result:?}");
                // SAFETY: ends the child without the parent's destructors.
                unsafe { libc::_exit(1) };
            }
            let heard = env.hear("connected");
            // SAFETY: our own child.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            ensure_eq!(wait_pid(pid)?, 128 + libc::SIGKILL);
            heard?;
        }
    }
    env.meet("done")
}

fn tool_moves_a_file(env: &Env) -> Res {
    use sha2::{Digest, Sha256};
    let dir = std::env::temp_dir().join(format!("berth-tool-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let file = dir.join("file");
    let tool = |args: &[&str]| -> Res<String> {
        let output = Command::new("berth").arg("--json").args(args).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "berth {args:?}: {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(text)
    };
    let path = file.to_str().ok_or("path")?;
    let result = match env.role {
        Role::A => {
            let mut bytes = vec![0; 200_001];
            crate::util::fill(&mut bytes, 71, 0);
            fs::write(&file, &bytes)?;
            let to = format!("{}:820", env.peer_ip);
            tool(&["send", "--to", &to, "--file", path, "--wait", "120", "--block", "16K", "--message", "70000"])?
        }
        Role::B => {
            let text =
                tool(&["recv", "--listen", "820", "--out", path, "--recv-sizes", "3,7,22,44,64K", "--wait", "120"])?;
            let bytes = fs::read(&file)?;
            ensure_eq!(bytes.len(), 200_001);
            check(&bytes, 71, 0)?;
            let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
            ensure!(text.contains(&digest), "the report names another SHA-256: {text}");
            text
        }
    };
    fs::remove_dir_all(&dir)?;
    ensure!(result.contains("\"sha256_match\":true"), "{result}");
    env.meet("done")
}

fn crash(env: &Env, hang: bool, service: u16) -> Res {
    let mem = Mem::new(PAGE)?;
    let device = env.device()?;
    let resets = device.counters()?.drv(c::D_RESETS);
    let mut log = kernel_log()?;
    let context = env.context()?;
    let (_from, mut to) = loop_pair(env, &context, &depths(4, 4), service)?;
    to.recv(0, &[mem.sge(0, PAGE)])?;
    match device.crash(hang) {
        Ok(()) | Err(Error::Firmware { .. } | Error::DeviceLost) => {}
        Err(e) => return Err(e.into()),
    }
    // The process is told, by itself.
    match to.recvs.wait(env.limit()) {
        Err(Error::DeviceLost) => {}
        Ok(completion) => ensure!(completion.status != Status::Ok, "{completion:?}"),
        Err(e) => return Err(e.into()),
    }
    wait_until("the context is lost", env.hang, || {
        Ok(matches!(context.create_cq(1), Err(Error::DeviceLost | Error::Firmware { .. })))
    })?;
    drop((to, _from, context));
    wait_until("nothing is pinned", env.hang, || Ok(device.counters()?.pinned() == 0))?;
    wait_until("the driver resets it", env.hang, || Ok(device.counters()?.drv(c::D_RESETS) > resets))?;
    device.reset()?;
    let said = kernel_said(&mut log)?;
    let reason = if hang { "hang" } else { "panicked" };
    ensure!(said.iter().any(|l| l.contains("berth") && l.contains(reason)), "no word of why in {said:?}");
    after_reset(env, service + 1)
}

/// The kernel's log from now on.
fn kernel_log() -> Res<fs::File> {
    use std::io::{Seek, SeekFrom};
    use std::os::unix::fs::OpenOptionsExt;
    let mut log = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
    log.seek(SeekFrom::End(0))?;
    Ok(log)
}

/// What the kernel has said since.
fn kernel_said(log: &mut fs::File) -> Res<Vec<String>> {
    use std::io::Read;
    let mut lines = Vec::new();
    let mut record = [0u8; 8192];
    loop {
        match log.read(&mut record) {
            Ok(n) => lines.push(String::from_utf8_lossy(&record[..n]).into_owned()),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(lines),
            Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

const IMAGE: &str = "/lib/firmware/berth/berth-fw.bin";

/// Puts the firmware image back when dropped.
struct Image(Vec<u8>);

impl Drop for Image {
    fn drop(&mut self) {
        if let Err(e) = fs::write(IMAGE, &self.0) {
            eprintln!("firmware image not restored: {e}");
        }
    }
}

fn fw_refused_image_is_named(env: &Env) -> Res {
    let good = Image(fs::read(IMAGE)?);
    let device = env.device()?;
    let change = |at: usize, bits: u8| {
        let mut bytes = good.0.clone();
        bytes[at] ^= bits;
        bytes
    };
    let cases = [
        ("wrong magic", change(0, 1), status::FW_BAD_MAGIC),
        ("another ABI version", change(4, 0x40), status::FW_BAD_ABI),
        ("truncated", good.0[..good.0.len() - 400].to_vec(), status::FW_TRUNCATED),
        ("a flipped bit", change(good.0.len() / 2, 4), status::FW_BAD_CRC),
    ];
    for (what, image, code) in cases {
        fs::write(IMAGE, image)?;
        ensure!(device.reset().is_err(), "{what}: the card started");
        let info = device.info()?;
        ensure!(
            (info.fw_status, info.fw_code) == (status::FW_REFUSED, code),
            "{what}: state {}, code {}",
            info.fw_status,
            info.fw_code
        );
        ensure!(env.context().and_then(|c| Ok(c.create_cq(1)?)).is_err(), "{what}: the card serves");
    }
    fs::remove_file(IMAGE)?;
    ensure!(device.reset().is_err(), "started without an image");
    drop(good);
    device.reset()?;
    after_reset(env, 842)
}

fn inv_5_doorbell_page_is_gone_after_unbind(env: &Env) -> Res {
    let address = pci_address()?;
    let driver = driver_dir()?;
    let mut child = start_helper(env, "stale_doorbell")?;
    fs::write(driver.join("unbind"), &address)?;
    fs::write(driver.join("bind"), &address)?;
    wait_for_device(env)?;
    let go =
        std::env::temp_dir().join(format!("berth-ready-stale_doorbell-{}", std::process::id())).with_extension("go");
    fs::write(&go, "")?;
    let status = child.wait();
    fs::remove_file(&go)?;
    ensure!(status?.success(), "the helper failed");
    after_reset(env, 844)
}

fn tool_tells_what_there_is(env: &Env) -> Res {
    let run = |args: &[&str]| -> Res<(Option<i32>, String)> {
        let output = Command::new("berth").args(args).output()?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let expect = |args: &[&str], keys: &[&str]| -> Res {
        let (code, text) = run(args)?;
        ensure!(code == Some(0), "berth {args:?}: exit code {code:?}\n{text}");
        for key in keys {
            ensure!(text.contains(key), "berth {args:?} does not say {key}:\n{text}");
        }
        Ok(())
    };
    expect(&["info"], &["firmware", "running", &env.own_ip.to_string()])?;
    expect(&["info", "--json"], &["\"net\"", "\"mtu\"", "\"elf_id\"", "\"card_budget\""])?;
    expect(&["stat", "--all"], &["no_credit", "tx_frames", "pinned_peak"])?;
    expect(&["stat", "--json"], &["\"rtl\"", "\"fw\"", "\"drv\"", "\"cycles\"", "\"no_credit\""])?;
    expect(&["limits", "--linger-ms", "0", "--reset-peak", "--json"], &["\"linger_ms\":0"])?;
    let raw = std::env::temp_dir().join(format!("berth-raw-{}", std::process::id()));
    expect(&["log", "--raw", raw.to_str().ok_or("path")?], &[])?;
    let log = fs::read(&raw)?;
    fs::remove_file(&raw)?;
    ensure!(log.starts_with(b"BERTHLG1") && log.len() >= 24, "log file of {} bytes", log.len());
    // Errors have codes of their own.
    ensure_eq!(run(&["--device", "/dev/berth99", "info"])?.0, Some(5));
    ensure_eq!(run(&["limits", "--budget", "1"])?.0, Some(1));
    ensure_eq!(run(&["send"])?.0, Some(2));
    let nobody = format!("{}:4998", env.own_ip);
    ensure_eq!(run(&["send", "--to", &nobody, "--file", "/init", "--wait", "0"])?.0, Some(4));
    // debugfs names the same counters.
    let debugfs = fs::read_to_string("/sys/kernel/debug/berth/berth0/counters")?.to_lowercase();
    for name in ["tx_frames", "no_credit", "pinned_peak"] {
        ensure!(debugfs.contains(name), "debugfs has no {name}:\n{debugfs}");
    }
    Ok(())
}

fn fw_panic_is_reported_and_reset_repairs(env: &Env) -> Res {
    crash(env, false, 830)
}

fn fw_hang_is_noticed_and_reset_repairs(env: &Env) -> Res {
    let before = env.counters()?.drv(c::D_HEARTBEAT_LOST);
    crash(env, true, 832)?;
    ensure!(env.counters()?.drv(c::D_HEARTBEAT_LOST) > before);
    Ok(())
}

fn fw_that_fails_again_and_again_is_given_up_until_a_reset(env: &Env) -> Res {
    const LOSSES: u64 = 8;
    // However slow the guest is.
    reload_with(env, c"loss_window_ms=3600000")?;
    Env::prepare(&env.args)?;
    let device = env.device()?;
    let resets = || -> Res<u64> { Ok(device.counters()?.drv(c::D_RESETS)) };
    let crash = || {
        wait_until("firmware is told to panic", env.hang, || match device.crash(false) {
            Ok(()) => Ok(true),
            // Firmware runs, and the driver is not yet done with the reset before.
            Err(Error::Firmware { .. } | Error::DeviceLost) => Ok(false),
            Err(e) => Err(e.into()),
        })
    };
    let restarted = |count: u64| {
        wait_until("firmware is started again", env.hang, || {
            Ok(resets()? == count && device.info()?.fw_status == status::FW_RUNNING)
        })
    };
    let before = resets()?;
    let mut log = kernel_log()?;
    for n in 1..=LOSSES {
        crash()?;
        restarted(before + n)?;
    }
    crash()?;
    wait_until("the driver gives up", env.hang, || {
        Ok(kernel_said(&mut log)?.iter().any(|line| line.contains("given up until a reset is asked for")))
    })?;
    ensure!(env.context().and_then(|c| Ok(c.create_cq(1)?)).is_err(), "a card without firmware serves");
    ensure_eq!(resets()?, before + LOSSES);
    ensure!(device.info()?.fw_status != status::FW_RUNNING);
    // The count begins anew.
    device.reset()?;
    let before = resets()?;
    crash()?;
    restarted(before + 1)?;
    // Firmware runs before the driver has told it all that it needs.
    wait_in_service(env)?;
    after_reset(env, 852)?;
    drop(device);
    reload(env)?;
    after_reset(env, 854)
}

fn reset_under_traffic(env: &Env) -> Res {
    let device = env.device()?;
    let resets = device.counters()?.drv(c::D_RESETS);
    let child = start_helper(env, "traffic")?;
    device.reset()?;
    // Its objects are lost: it ends by itself.
    end_of(child, env)?;
    nothing_left(env)?;
    ensure!(device.counters()?.drv(c::D_RESETS) > resets, "no reset is counted");
    after_reset(env, 834)
}

fn function_level_reset_under_traffic(env: &Env) -> Res {
    let child = start_helper(env, "traffic")?;
    function_level_reset(env, || end_of(child, env))?;
    nothing_left(env)?;
    after_reset(env, 850)
}

/// When memory is short the kernel takes a dying process's memory before the process is gone, and asks its users not to
/// sleep. `process_mrelease` does it on request.
fn inv_3_memory_is_reaped_while_grants_are_out(env: &Env) -> Res {
    const EXITING: i32 = libc::SIGTRAP | libc::PTRACE_EVENT_EXIT << 8;
    let device = env.device()?;
    // SAFETY: this program has one thread here.
    let pid = unsafe { libc::fork() };
    ensure!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: asks to be traced, and stops for that.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
        eprintln!("child: {:?}", granted(env));
        // SAFETY: ends the child without the parent's destructors.
        unsafe { libc::_exit(1) };
    }
    let stopped = || -> Res<i32> {
        let mut status = 0;
        // SAFETY: a valid place for the result.
        let ret = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        ensure!(ret == pid && libc::WIFSTOPPED(status), "status {status:#x}");
        Ok(status >> 8)
    };
    let go_on = |request, data: i32| -> Res {
        // SAFETY: our own child, which is stopped.
        let ret = unsafe { libc::ptrace(request, pid, 0, data) };
        ensure!(ret == 0, "ptrace: {}", std::io::Error::last_os_error());
        Ok(())
    };
    ensure_eq!(stopped()?, libc::SIGSTOP);
    go_on(libc::PTRACE_SETOPTIONS, libc::PTRACE_O_TRACEEXIT)?;
    go_on(libc::PTRACE_CONT, 0)?;
    wait_until("its receives are granted", env.hang, || Ok(device.counters()?.pinned() >= 64 << 10))?;
    // SAFETY: our own child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // It is ending, and still has its memory.
    ensure_eq!(stopped()?, EXITING);
    // SAFETY: no memory is involved.
    let reaped = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        ensure!(fd >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
        let mut tries = 0;
        loop {
            let ret = libc::syscall(libc::SYS_process_mrelease, fd, 0);
            let error = std::io::Error::last_os_error();
            tries += 1;
            if ret == 0 {
                break tries;
            }
            // As long as the card may still write there.
            ensure!(error.raw_os_error() == Some(libc::EAGAIN) && tries < 1000, "process_mrelease: {error}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    println!("figures: reaped at try {reaped}, {} bytes pinned then", device.counters()?.pinned());
    go_on(libc::PTRACE_CONT, 0)?;
    ensure_eq!(wait_pid(pid)?, 128 + libc::SIGKILL);
    nothing_left(env)?;
    loopback_works(env, 854)
}

fn inv_3_unbind_under_traffic(env: &Env) -> Res {
    let address = pci_address()?;
    let driver = driver_dir()?;
    let child = start_helper(env, "traffic")?;
    fs::write(driver.join("unbind"), &address)?;
    ensure!(Device::open_first().is_err(), "the device is still there");
    end_of(child, env)?;
    fs::write(driver.join("bind"), &address)?;
    wait_for_device(env)?;
    after_reset(env, 836)
}

fn inv_3_module_goes_and_comes_back(env: &Env) -> Res {
    let mut child = start_helper(env, "traffic")?;
    // SAFETY: a name that ends with NUL.
    let ret = unsafe { libc::syscall(libc::SYS_delete_module, c"berth".as_ptr(), libc::O_NONBLOCK) };
    let errno = std::io::Error::last_os_error().raw_os_error();
    // As every driver with an open descriptor: in use; and the traffic goes on.
    ensure!(ret != 0 && matches!(errno, Some(libc::EWOULDBLOCK | libc::EBUSY)), "removed under an open descriptor");
    ensure!(child.try_wait()?.is_none(), "the traffic has ended");
    child.kill()?;
    let reloaded = reload(env);
    child.wait()?;
    reloaded?;
    after_reset(env, 838)
}

fn inv_3_unplugged_card_is_let_go(env: &Env) -> Res {
    let child = start_helper(env, "traffic")?;
    replace_card(env, child)?;
    after_reset(env, 840)
}

fn inv_3_card_is_unbound_while_the_peer_sends(env: &Env) -> Res {
    let context = env.context()?;
    let mut stream = Stream::new(&context, &depths(64, 16), 256 << 10)?;
    if env.role == Role::B {
        stream.post_recv(&[16384; 16])?;
    }
    establish(env, &context, stream.queue_pair(), 846)?;
    match env.role {
        Role::A => {
            for _ in 0..64 {
                stream.send(libberth::Buffer::new(16384)?, false)?;
            }
            // More than B ever takes: the connection ends meanwhile, by B's message, its silence, or its NAK for data
            // whose memory the driver had withdrawn already.
            let reason = stream.queue_pair().wait_closed(env.limit())?;
            ensure!(matches!(reason, Reason::PeerLost | Reason::PeerClose | Reason::SendFailed), "{reason:?}");
            let mut failed = 0;
            while let Some(sent) = stream.next_sent(env.limit())? {
                failed += u32::from(sent.completion.status != Status::Ok);
            }
            ensure!(failed > 0, "all was sent to a card without a driver");
            drop((stream, context));
            env.meet("done")?;
        }
        Role::B => {
            for _ in 0..4 {
                drop(stream.next_piece(env.limit())?.ok_or("no buffer")?);
            }
            let (address, driver) = (pci_address()?, driver_dir()?);
            fs::write(driver.join("unbind"), &address)?;
            let failed = loop {
                match stream.next_piece(env.limit()) {
                    Ok(Some(piece)) => drop(piece),
                    Ok(None) => break None,
                    Err(e) => break Some(e),
                }
            };
            // All buffers may have been filled before it went.
            let lost = match failed {
                Some(e) => e,
                None => stream.queue_pair().wait_closed(env.limit()).err().ok_or("closed, and not lost")?,
            };
            ensure!(matches!(lost, Error::DeviceLost | Error::Completion { .. }), "{lost}");
            drop((stream, context));
            fs::write(driver.join("bind"), &address)?;
            wait_for_device(env)?;
            Env::prepare(&env.args)?;
            env.meet("done")?;
        }
    }
    // Both cards know each other again, one of them anew.
    let context = env.context()?;
    let conn = Conn::new(&context, &depths(4, 4))?;
    establish(env, &context, &conn.qp, 847)?;
    env.meet("again")
}
