// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth`, the tool, as its users meet it: inputs that are no files, two receivers with one target, an end that fails,
//! a node that others own, the figures of a report, one-sided copies.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use berth_abi::counters as c;
use libberth::{Buffer, Error, Reason, Stream};

use crate::env::{Env, Role};
use crate::util::{Res, check, depths, fail, fill, wait_until};
use crate::{ensure, ensure_eq, tests};

tests! {
    One: f5_what_has_no_length_is_refused_by_name_before_anything_happens,
         f6_output_that_cannot_be_written_is_refused_before_anybody_connects,
         f6_what_other_programs_say_is_answered_and_the_receiver_waits_on,
         f7_open_that_fails_says_what_its_errno_means,
         f10_pinned_bytes_of_a_report_are_the_process_s_own;
    Pair: f6_two_receivers_with_one_target_store_one_file_whole,
          f6_the_sender_hears_that_the_receivers_disk_is_full,
          f5_f6_the_receiver_hears_what_became_of_the_senders_file,
          f6_an_interrupted_end_is_told_to_the_other,
          qp_3_ranges_of_a_served_file_are_got_and_put,
          qp_13_a_get_of_a_file_that_became_shorter_fails_and_goes_on_when_it_is_whole,
          tool_measures_messages_writes_and_reads;
    One Disruptive: f10_a_reset_is_told_as_one;
}

/// An ordinary user of the guests.
pub const NOBODY: u32 = 65534;
/// The node that the tests use.
pub const NODE: &str = "/dev/berth0";

/// The result of a run of the tool.
#[derive(Debug)]
pub struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    /// Fails unless it ended so and said all of this.
    pub fn expect(&self, code: i32, words: &[&str]) -> Res {
        let all = format!("{}{}", self.out, self.err);
        let missing: Vec<_> = words.iter().filter(|w| !all.contains(**w)).collect();
        ensure!(self.code == Some(code) && missing.is_empty(), "wanted {code}, {words:?}: {self:?}");
        Ok(())
    }

    /// A number of its report.
    pub fn number(&self, key: &str) -> Res<u64> {
        let after = self.out.split(&format!("\"{key}\":")).nth(1).ok_or_else(|| format!("no {key}: {self:?}"))?;
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        Ok(digits.parse().map_err(|e| format!("{key}: {e}: {self:?}"))?)
    }
}

/// The tool with arguments, not started.
pub fn tool(args: &[&str]) -> Command {
    let mut command = Command::new("berth");
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for its end.
pub fn said(child: Child) -> Res<Said> {
    let output = child.wait_with_output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) })
}

fn run(args: &[&str]) -> Res<Said> {
    said(tool(args).spawn()?)
}

fn run_as_nobody(args: &[&str]) -> Res<Said> {
    said(tool(args).uid(NOBODY).gid(NOBODY).spawn()?)
}

fn start_send(to: Ipv4Addr, service: u16, file: &Path, more: &[&str]) -> Res<Child> {
    let (to, file) = (format!("{to}:{service}"), text(file)?);
    Ok(tool(&[&["--json", "send", "--to", &to, "--file", file, "--wait", "120"], more].concat()).spawn()?)
}

/// Starts a receiver.
pub fn start_recv(service: u16, out: &Path, more: &[&str]) -> Res<Child> {
    let (service, out) = (service.to_string(), text(out)?);
    Ok(tool(&[&["--json", "recv", "--listen", &service, "--out", out, "--wait", "120"], more].concat()).spawn()?)
}

fn signal(child: &Child, number: i32) -> Res {
    // SAFETY: no memory is involved; the child has not been waited for.
    ensure!(unsafe { libc::kill(child.id() as i32, number) } == 0, "kill");
    Ok(())
}

fn text(path: &Path) -> Res<&str> {
    path.to_str().ok_or_else(|| "path".into())
}

/// A folder of a test, removed with all that is in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Res<Self> {
        let path = std::env::temp_dir().join(format!("berth-tool-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn file(&self, name: &str, bytes: usize, seed: u64) -> Res<PathBuf> {
        let mut content = vec![0; bytes];
        fill(&mut content, seed, 0);
        let path = self.0.join(name);
        fs::write(&path, &content)?;
        Ok(path)
    }

    fn fifo(&self, name: &str) -> Res<PathBuf> {
        let path = self.0.join(name);
        let name = std::ffi::CString::new(text(&path)?)?;
        // SAFETY: a string that ends with 0.
        ensure!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) } == 0, "mkfifo: {}", std::io::Error::last_os_error());
        Ok(path)
    }

    fn names(&self) -> Res<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn f5_what_has_no_length_is_refused_by_name_before_anything_happens(env: &Env) -> Res {
    let folder = Folder::new("kinds")?;
    let (full, empty) = (folder.fifo("full")?, folder.fifo("empty")?);
    let mut writer = File::options().read(true).write(true).open(&full)?;
    writer.write_all(b"data")?;
    let sent = env.counters()?.rtl(c::C_TX_FRAMES);
    let to = format!("{}:4997", env.peer_ip);
    for (path, says) in [
        (Path::new("/proc/version"), "a file of /proc"),
        (Path::new("/proc/self/maps"), "a file of /proc"),
        (Path::new("/sys/kernel/uevent_seqnum"), "a file of /sys"),
        (Path::new("/dev/zero"), "a character device"),
        (&full, "a FIFO"),
        (&empty, "a FIFO"),
        (&folder.0, "a directory"),
        (Path::new("/not/here"), "No such file"),
    ] {
        run(&["send", "--to", &to, "--file", text(path)?])?.expect(1, &[text(path)?, says])?;
        // Other inputs likewise.
        run(&["log", "--elf", text(path)?])?.expect(1, &[text(path)?, says])?;
    }
    run(&["stat", "--record", text(&empty)?, "--count", "1"])?.expect(1, &[text(&empty)?, "nobody reads"])?;
    ensure_eq!(env.counters()?.rtl(c::C_TX_FRAMES), sent);
    Ok(())
}

fn f6_output_that_cannot_be_written_is_refused_before_anybody_connects(_env: &Env) -> Res {
    let folder = Folder::new("refused")?;
    let mounted = folder.0.join("read-only");
    fs::create_dir(&mounted)?;
    let mount = |args: &[&str]| -> Res { ensure_ok(Command::new("mount").args(args).status()?.success()) };
    mount(&["-t", "tmpfs", "-o", "ro", "tmpfs", text(&mounted)?])?;
    let result = (|| {
        for (path, says) in [
            (folder.0.join("missing/copy"), "No such file or directory"),
            (mounted.join("copy"), "Read-only file system"),
            (folder.0.clone(), "a directory"),
            (folder.fifo("fifo")?, "nobody reads"),
        ] {
            let refused = run(&["recv", "--listen", "8300", "--out", text(&path)?])?;
            refused.expect(1, &[text(&path)?, says])?;
            ensure!(!refused.err.contains("listening"), "{refused:?}");
        }
        Ok(())
    })();
    ensure_ok(Command::new("umount").arg(&mounted).status()?.success())?;
    result
}

fn ensure_ok(ok: bool) -> Res {
    if ok { Ok(()) } else { fail("a command of the test failed") }
}

/// The first words of a sender of version 2, as host-tools/berth has them (`record.rs`).
fn hello(length: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(b"BFIL\x02\0\0\0");
    bytes[8..16].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn f6_what_other_programs_say_is_answered_and_the_receiver_waits_on(env: &Env) -> Res {
    let folder = Folder::new("others")?;
    let target = folder.0.join("copy");
    fs::write(&target, "old")?;
    let context = env.context()?;
    let connect = |service: u16, private: &[u8]| -> Res<Result<Stream, Error>> {
        loop {
            let mut stream = Stream::new(&context, &depths(4, 4), 256)?;
            stream.post_recv(&[256])?;
            match stream.queue_pair().connect(env.own_ip, service, private, env.limit()) {
                // It has not come so far yet.
                Err(Error::Closed { reason: Reason::NoListener, .. }) => {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
                other => return Ok(other.map(|_| stream)),
            }
        }
    };
    // A sender that breaks the rules, and one that goes without a word.
    for (service, ending, code, says) in
        [(8310, Some(vec![b'x'; 256]), 1, "speaks another protocol"), (8311, None, 4, "connection ended")]
    {
        let child = start_recv(service, &target, &[])?;
        for foreign in [&b"BFIL\x01\0\0\0\x07\0\0\0\0\0\0\0"[..], b"", b"GET / HTTP/1.1"] {
            match connect(service, foreign)? {
                Err(Error::Closed { reason: Reason::Rejected, private_data }) => {
                    ensure_eq!(private_data, b"not berth file transfer v2".to_vec());
                }
                other => return fail(format!("{other:?}")),
            }
        }
        let mut stream = connect(service, &hello(4))??;
        stream.send(Buffer::from_slice(b"file")?, false)?;
        if let Some(bytes) = ending {
            stream.send(Buffer::from_slice(&bytes)?, true)?;
            let answer = stream.next_piece(env.limit())?.ok_or("no answer")?.to_vec();
            ensure!(answer.starts_with(b"BANS\x02\0\0\0\x05\0\0\0"), "{answer:x?}");
            ensure!(String::from_utf8_lossy(&answer).contains(says), "{answer:x?}");
        }
        drop(stream);
        said(child)?.expect(code, &[says])?;
        ensure_eq!(folder.names()?, ["copy"]);
        ensure_eq!(fs::read(&target)?, b"old".to_vec());
    }
    Ok(())
}

fn f7_open_that_fails_says_what_its_errno_means(_env: &Env) -> Res {
    let folder = Folder::new("nodes")?;
    let restore = || -> Res {
        chown(NODE, Some(0), Some(0))?;
        Ok(fs::set_permissions(NODE, fs::Permissions::from_mode(0o600))?)
    };
    restore()?;
    let result = (|| {
        let denied = run_as_nobody(&["info"])?;
        denied.expect(6, &[NODE, "user root and group root, mode 0600", "you are nobody", "60-berth.rules"])?;
        ensure!(!denied.err.contains("modprobe"), "{denied:?}");
        // With a group that may, the way is to become one of it; a member may.
        fs::set_permissions(NODE, fs::Permissions::from_mode(0o660))?;
        chown(NODE, Some(0), Some(1))?;
        run_as_nobody(&["info"])?.expect(6, &["a member of group 1 may", "usermod -aG"])?;
        chown(NODE, Some(0), Some(NOBODY))?;
        run_as_nobody(&["info"])?.expect(0, &["firmware"])?;
        // Calls that need a capability are refused all the same.
        run_as_nobody(&["limits", "--linger-ms", "0"])?.expect(6, &["CAP_SYS_ADMIN"])?;
        run_as_nobody(&["up", "--ip", "192.0.2.9", "--mac", "02:00:00:00:00:09"])?.expect(6, &["CAP_NET_ADMIN"])?;
        restore()?;
        // The first node is closed to the user, another one is not.
        let number = {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(NODE)?.rdev()
        };
        let node = |path: &Path, number| -> Res {
            let name = std::ffi::CString::new(text(path)?)?;
            // SAFETY: a string that ends with 0.
            ensure!(unsafe { libc::mknod(name.as_ptr(), libc::S_IFCHR | 0o666, number) } == 0, "mknod");
            Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o666))?)
        };
        let second = Path::new("/dev/berth77");
        node(second, number)?;
        let other = run_as_nobody(&["info"]);
        fs::remove_file(second)?;
        other?.expect(0, &["/dev/berth77"])?;
        // A node without a device behind it.
        let stale = folder.0.join("stale");
        node(&stale, libc::makedev(10, 4000))?;
        run(&["--device", text(&stale)?, "info"])?.expect(5, &[text(&stale)?, "no card behind it"])?;
        Ok(())
    })();
    restore()?;
    result?;
    let file = folder.file("file", 1, 1)?;
    for (path, code, says) in [
        (Path::new("/dev/null"), 5, "not a Berth card: this is the device `null`"),
        (Path::new("/dev/kmsg"), 5, "not a Berth card"),
        (&file, 5, "not a Berth card: this is a regular file"),
        (&folder.0, 5, "not a Berth card: this is a directory"),
        (Path::new("/dev/berth99"), 5, "there is /dev/berth0"),
    ] {
        let refused = run(&["--device", text(path)?, "info"])?;
        refused.expect(code, &[text(path)?, says])?;
        ensure!(!refused.err.contains("ioctl"), "{refused:?}");
    }
    Ok(())
}

fn f10_pinned_bytes_of_a_report_are_the_process_s_own(env: &Env) -> Res {
    let folder = Folder::new("figures")?;
    let (large, small) = (folder.file("large", 1 << 20, 3)?, folder.file("small", 4096, 4)?);
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777))?;
    let peak = |from: &Said| from.number("peak_pinned_bytes");
    fs::set_permissions(NODE, fs::Permissions::from_mode(0o666))?;
    let result = (|| {
        let receiver = start_recv(8320, Path::new("/dev/null"), &[])?;
        let sender = said(start_send(env.own_ip, 8320, &large, &[])?)?;
        let receiver = said(receiver)?;
        sender.expect(0, &["\"sha256_match\":true"])?;
        receiver.expect(0, &["\"sha256_match\":true"])?;
        ensure!(peak(&sender)? >= 65536, "{sender:?}");
        // A user with a small file, after root with a large one.
        let service = 8321.to_string();
        let mut receive = tool(&["--json", "recv", "--listen", &service, "--out", "/dev/null", "--recv-sizes", "4K"]);
        let receiver = receive.args(["--depth", "4"]).uid(NOBODY).gid(NOBODY).spawn()?;
        let to = format!("{}:{service}", env.own_ip);
        let sender = run_as_nobody(&["--json", "send", "--to", &to, "--file", text(&small)?, "--wait", "120"])?;
        let receiver = said(receiver)?;
        for end in [&sender, &receiver] {
            end.expect(0, &["\"sha256_match\":true"])?;
            // A page of the file, one for the record, and the few buffers of the receiver.
            ensure!((4096..=32768).contains(&peak(end)?), "{end:?}");
        }
        // Two at once: each reports its own figures, and neither reports none.
        let receivers = [8322, 8323].map(|s| start_recv(s, Path::new("/dev/null"), &["--depth", "4"]));
        let senders = [8322, 8323].map(|s| start_send(env.own_ip, s, &small, &[]));
        for child in senders.into_iter().chain(receivers) {
            let end = said(child?)?;
            end.expect(0, &["\"sha256_match\":true"])?;
            ensure!(peak(&end)? >= 4096, "{end:?}");
        }
        Ok(())
    })();
    fs::set_permissions(NODE, fs::Permissions::from_mode(0o600))?;
    result
}

fn f6_two_receivers_with_one_target_store_one_file_whole(env: &Env) -> Res {
    let folder = Folder::new("two")?;
    let sizes = [40_001, 30_003];
    match env.role {
        Role::A => {
            let files = [folder.file("one", sizes[0], 11)?, folder.file("two", sizes[1], 12)?];
            let children = [0, 1].map(|n| start_send(env.peer_ip, 8330 + n as u16, &files[n], &[]));
            for child in children {
                said(child?)?.expect(0, &["\"sha256_match\":true"])?;
            }
        }
        Role::B => {
            let target = folder.0.join("copy");
            let children = [0, 1].map(|n| start_recv(8330 + n, &target, &[]));
            for (child, size) in children.into_iter().zip(sizes) {
                let end = said(child?)?;
                end.expect(0, &["\"sha256_match\":true"])?;
                ensure_eq!(end.number("bytes")?, size as u64);
            }
            let got = fs::read(&target)?;
            let whole = |size, seed| {
                let mut bytes = vec![0; size];
                fill(&mut bytes, seed, 0);
                bytes == got
            };
            ensure!(whole(sizes[0], 11) || whole(sizes[1], 12), "{} bytes of a mixture", got.len());
            ensure_eq!(folder.names()?, ["copy"]);
        }
    }
    env.meet("done")
}

fn f6_the_sender_hears_that_the_receivers_disk_is_full(env: &Env) -> Res {
    let folder = Folder::new("full")?;
    let says = "No space left on device";
    match env.role {
        Role::A => {
            let file = folder.file("file", 300_000, 13)?;
            for (service, name) in [(8340, "/small/copy"), (8341, "/dev/full")] {
                said(start_send(env.peer_ip, service, &file, &[])?)?
                    .expect(7, &["the receiver has failed", name, says])?;
            }
        }
        Role::B => {
            let small = folder.0.join("small");
            fs::create_dir(&small)?;
            let mut mount = Command::new("mount");
            ensure_ok(mount.args(["-t", "tmpfs", "-o", "size=64K", "tmpfs"]).arg(&small).status()?.success())?;
            let result = (|| {
                let copy = small.join("copy");
                said(start_recv(8340, &copy, &[])?)?.expect(1, &[text(&copy)?, says])?;
                ensure!(fs::read_dir(&small)?.next().is_none(), "something is left");
                Ok(())
            })();
            ensure_ok(Command::new("umount").arg(&small).status()?.success())?;
            result?;
            said(start_recv(8341, Path::new("/dev/full"), &[])?)?.expect(1, &["/dev/full", says])?;
        }
    }
    env.meet("done")
}

/// A transfer that is held up in the middle: the receiver writes into a FIFO that is not emptied until `sender` and
/// `receiver`, the two guests' parts, have ended. Answers the result of this guest's end.
fn held_up(
    env: &Env,
    folder: &Folder,
    service: u16,
    file: &Path,
    sender: impl FnOnce(&Child) -> Res,
    receiver: impl FnOnce(&Child) -> Res,
) -> Res<Said> {
    let (stalled, done) = (format!("stalled-{service}"), format!("done-{service}"));
    match env.role {
        Role::A => {
            let child = start_send(env.peer_ip, service, file, &["--message", "64K"])?;
            env.hear(&stalled)?;
            sender(&child)?;
            env.tell(&done, "")?;
            env.hear(&done)?;
            said(child)
        }
        Role::B => {
            let fifo = folder.fifo(&format!("fifo-{service}"))?;
            let mut reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo)?;
            let mut child = start_recv(service, &fifo, &["--depth", "4", "--recv-sizes", "64K"])?;
            wait_until("bytes in the FIFO", env.hang, || {
                let mut there = 0i32;
                use std::os::fd::AsRawFd;
                // SAFETY: a place for an int, which this request writes.
                unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut there) };
                ensure!(there > 0 || child.try_wait()?.is_none(), "the receiver has ended");
                Ok(there > 0)
            })?;
            env.tell(&stalled, "")?;
            env.hear(&done)?;
            receiver(&child)?;
            env.tell(&done, "")?;
            let mut chunk = [0; 65536];
            wait_until("the receiver has ended", env.hang, || {
                while let Ok(n) = reader.read(&mut chunk) {
                    if n == 0 {
                        break;
                    }
                }
                Ok(child.try_wait()?.is_some())
            })?;
            said(child)
        }
    }
}

fn f5_f6_the_receiver_hears_what_became_of_the_senders_file(env: &Env) -> Res {
    const SIZE: usize = 2 << 20;
    let folder = Folder::new("changes")?;
    let new = |name: &str| folder.file(name, if env.role == Role::A { SIZE } else { 0 }, 14);
    for (service, len, change) in [(8350, 4096, "shorter"), (8351, SIZE as u64 + 1, "longer")] {
        let file = new(change)?;
        let resize = |_: &Child| -> Res { Ok(File::options().write(true).open(&file)?.set_len(len)?) };
        let end = held_up(env, &folder, service, &file, resize, |_| Ok(()))?;
        match env.role {
            Role::A => end.expect(1, &[text(&file)?, &format!("became {change} meanwhile"), &len.to_string()])?,
            Role::B => end.expect(7, &["the sender has failed", change, &len.to_string()])?,
        }
        ensure!(!end.out.contains("SHA-256") && !end.err.contains("SHA-256"), "{end:?}");
    }
    // Written to in place: the card has sent what it found.
    let file = new("written")?;
    let write =
        |_: &Child| -> Res { Ok(File::options().write(true).open(&file)?.write_all_at(b"new", SIZE as u64 - 3)?) };
    let end = held_up(env, &folder, 8352, &file, write, |_| Ok(()))?;
    match env.role {
        Role::A => end.expect(1, &[text(&file)?, "was written to meanwhile"])?,
        Role::B => end.expect(3, &["received SHA-256"])?,
    }
    env.meet("done")
}

fn f6_an_interrupted_end_is_told_to_the_other(env: &Env) -> Res {
    let folder = Folder::new("signals")?;
    let file = folder.file("file", if env.role == Role::A { 2 << 20 } else { 0 }, 15)?;
    let signal = |number: i32| move |child: &Child| signal(child, number);
    let end = held_up(env, &folder, 8360, &file, signal(libc::SIGINT), |_| Ok(()))?;
    match env.role {
        Role::A => end.expect(130, &["interrupted by signal 2"])?,
        Role::B => end.expect(7, &["the sender has failed", "interrupted by signal 2"])?,
    }
    let end = held_up(env, &folder, 8361, &file, |_| Ok(()), signal(libc::SIGTERM))?;
    match env.role {
        Role::A => end.expect(7, &["the receiver has failed", "interrupted by signal 15"])?,
        Role::B => end.expect(143, &["interrupted by signal 15"])?,
    }
    // An ordinary target leaves nothing either.
    if env.role == Role::B {
        let mut child = start_recv(8362, &folder.0.join("copy"), &[])?;
        wait_until("a part", env.hang, || Ok(folder.names()?.iter().any(|n| n.ends_with(".part"))))?;
        signal(libc::SIGHUP)(&child)?;
        ensure_eq!(child.wait()?.code(), Some(129));
        ensure!(!folder.names()?.iter().any(|n| n.ends_with(".part") || n == "copy"), "{:?}", folder.names()?);
    }
    env.meet("done")
}

fn start_serve(service: u16, file: &Path, more: &[&str]) -> Res<Child> {
    let service = service.to_string();
    Ok(tool(&[&["--json", "serve", text(file)?, "--listen", &service], more].concat()).spawn()?)
}

/// Ends a server as its user does.
fn stop_serving(child: Child) -> Res {
    signal(&child, libc::SIGINT)?;
    said(child)?.expect(130, &["interrupted by signal 2"])
}

/// Gets from the other guest's server into `file`.
fn get(env: &Env, service: u16, file: &Path, more: &[&str]) -> Res<Said> {
    let peer = format!("{}:{service}", env.peer_ip);
    run(&[&["--json", "get", &peer, text(file)?, "--wait", "120"], more].concat())
}

/// Puts `file` into what the other guest serves.
fn put(env: &Env, service: u16, file: &Path, more: &[&str]) -> Res<Said> {
    let peer = format!("{}:{service}", env.peer_ip);
    run(&[&["--json", "put", text(file)?, &peer, "--wait", "120"], more].concat())
}

fn qp_3_ranges_of_a_served_file_are_got_and_put(env: &Env) -> Res {
    const SIZE: usize = 60_000;
    /// What is put, of the other file.
    const PUT: Range<usize> = 30_000..40_001;
    let folder = Folder::new("copies")?;
    /// What the served file has before it is made longer.
    const SHORT: usize = 45_000;
    let mut expected = vec![0; SIZE];
    fill(&mut expected[..SHORT], 16, 0);
    let mut other = vec![0; SIZE + 1];
    fill(&mut other, 17, 0);
    match env.role {
        Role::A => {
            // A range in the middle comes to its place; nothing is known of what is before it.
            let copy = folder.0.join("copy");
            let part = get(env, 8370, &copy, &["--from", "5000", "--len", "20001", "--message", "8K"])?;
            part.expect(0, &["\"role\":\"get\"", "\"bytes\":20001", "\"resumed_at\":null"])?;
            let got = fs::read(&copy)?;
            ensure_eq!(got.len(), 25_001);
            ensure!(got[..5000].iter().all(|b| *b == 0), "bytes before the range");
            ensure!(got[5000..] == expected[5000..25_001], "the range differs");
            let mine = folder.file("mine", SIZE + 1, 17)?;
            let (from, len) = (PUT.start.to_string(), PUT.len().to_string());
            put(env, 8370, &mine, &["--from", &from, "--len", &len])?
                .expect(0, &["\"role\":\"put\"", "\"bytes\":10001"])?;
            // All of it, over a file that is longer.
            expected[PUT].copy_from_slice(&other[PUT]);
            fs::write(&copy, vec![9; SIZE + 7])?;
            get(env, 8370, &copy, &[])?.expect(0, &["\"bytes\":60000"])?;
            ensure!(fs::read(&copy)? == expected, "the whole file differs");
            // What cannot be is refused before anything is written, here or there.
            let beyond = get(env, 8370, &copy, &["--from", "50000", "--len", "10001"])?;
            beyond.expect(1, &["ends at byte 60001, but the served file has 60000"])?;
            put(env, 8370, &mine, &[])?.expect(1, &["60001", "has 60000", "--size"])?;
            put(env, 8371, &mine, &["--len", "1"])?.expect(1, &["to be read only", "--write"])?;
            // Other programs' connections are neither taken nor a reason to end.
            said(start_send(env.peer_ip, 8371, &mine, &[])?)?.expect(4, &["not berth one-sided copy v1"])?;
            get(env, 8373, &copy, &["--len", "1"])?.expect(0, &["\"bytes\":1"])?;
            ensure!(fs::read(&copy)? == expected, "what is refused was written, or a byte came to another place");
            ensure_eq!(folder.names()?, ["copy", "mine"]);
            env.tell("done", "")?;
        }
        Role::B => {
            let (file, other_file) = (folder.file("file", SHORT, 16)?, folder.file("other", SHORT, 16)?);
            let writable = start_serve(8370, &file, &["--write", "--size", "60000"])?;
            let read_only = start_serve(8371, &other_file, &[])?;
            let once = start_serve(8373, &other_file, &["--once"])?;
            env.hear("done")?;
            stop_serving(writable)?;
            stop_serving(read_only)?;
            said(once)?.expect(0, &["\"role\":\"serve\"", "\"stored_bytes\":0"])?;
            expected[PUT].copy_from_slice(&other[PUT]);
            ensure!(fs::read(&file)? == expected, "what was put is not in the file");
            check(&fs::read(&other_file)?, 16, 0)?;
        }
    }
    env.meet("copied")
}

fn tool_measures_messages_writes_and_reads(env: &Env) -> Res {
    match env.role {
        Role::A => {
            let peer = format!("{}:8374", env.peer_ip);
            let few = ["--size", "0,5000", "--count", "3", "--depth", "2", "--wait", "120"];
            let figures = run(&[&["--json", "bench", &peer], &few[..]].concat())?;
            figures.expect(
                0,
                &["\"role\":\"bench\"", "\"op\":\"send\"", "\"op\":\"write\"", "\"op\":\"read\"", "\"op\":\"atomic\""],
            )?;
            ensure_eq!(figures.out.matches("\"latency_cycles\"").count(), 7);
            // The other end serves on, and is no receiver of files.
            let table = run(&["bench", &peer, "--size", "8", "--count", "1"])?;
            table.expect(0, &["Gbit/s", "1 at a time", "send ", "write ", "read "])?;
            let folder = Folder::new("bench")?;
            let file = folder.file("file", 1, 1)?;
            said(start_send(env.peer_ip, 8374, &file, &[])?)?.expect(4, &["not berth bench v1"])?;
            env.tell("measured", "")?;
        }
        Role::B => {
            let other = tool(&["bench", "--listen", "8374"]).spawn()?;
            env.hear("measured")?;
            stop_serving(other)?;
        }
    }
    env.meet("measured by both")
}

fn qp_13_a_get_of_a_file_that_became_shorter_fails_and_goes_on_when_it_is_whole(env: &Env) -> Res {
    const SIZE: usize = 60_000;
    const LEFT: usize = 32_768;
    let folder = Folder::new("resumed")?;
    match env.role {
        Role::A => {
            let copy = folder.0.join("copy");
            get(env, 8372, &copy, &["--len", "8K"])?.expect(0, &["\"bytes\":8192"])?;
            env.tell("mapped", "")?;
            env.hear("shorter")?;
            get(env, 8372, &copy, &["--message", "8K", "--depth", "1"])?
                .expect(1, &["become shorter", "32.0 KiB of the range are finished"])?;
            ensure_eq!(folder.names()?, ["copy", "copy.berth"]);
            ensure_eq!(fs::read(&copy)?.len(), LEFT);
            // Another range is another copy.
            let another = get(env, 8372, &copy, &["--resume", "--len", "50000"])?;
            another.expect(1, &["copy.berth: another copy was interrupted here"])?;
            env.tell("broken off", "")?;
            env.hear("whole")?;
            let rest = get(env, 8372, &copy, &["--resume"])?;
            rest.expect(0, &["\"bytes\":27232"])?;
            ensure_eq!(rest.number("resumed_at")?, LEFT as u64);
            let got = fs::read(&copy)?;
            ensure_eq!(got.len(), SIZE);
            check(&got, 18, 0)?;
            ensure_eq!(folder.names()?, ["copy"]);
            env.tell("done", "")?;
        }
        Role::B => {
            let file = folder.file("file", SIZE, 18)?;
            let server = start_serve(8372, &file, &[])?;
            env.hear("mapped")?;
            File::options().write(true).open(&file)?.set_len(LEFT as u64)?;
            env.tell("shorter", "")?;
            env.hear("broken off")?;
            folder.file("file", SIZE, 18)?;
            env.tell("whole", "")?;
            env.hear("done")?;
            stop_serving(server)?;
        }
    }
    env.meet("copied")
}

fn f10_a_reset_is_told_as_one(env: &Env) -> Res {
    let mut watch = tool(&["stat", "--watch", "--interval", "500", "--count", "4"]).spawn()?;
    // Its first sample is there.
    let mut out = watch.stdout.take().ok_or("no output")?;
    let mut first = [0; 1];
    out.read_exact(&mut first)?;
    env.device()?.reset()?;
    let mut rest = String::new();
    out.read_to_string(&mut rest)?;
    let all = format!("{}{rest}", first[0] as char);
    ensure!(watch.wait()?.success(), "{all}");
    ensure!(all.contains("the card was reset: "), "{all}");
    // Frames, bytes and the like never fall.
    let fell: Vec<_> = all.lines().filter(|l| l.starts_with("rtl") && l.contains(" -")).collect();
    ensure!(fell.is_empty(), "{fell:?}\n{all}");
    Env::prepare(&env.args)
}
