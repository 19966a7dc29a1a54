// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guests' root file system: a cpio archive ("newc") that the kernel unpacks into memory.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// What PID 1 of a guest does first. `role`, `host`, `keep` and `module_args` come from the kernel's command line.
const INIT: &str = r#"#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
export PATH=/bin HOME=/ role
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t debugfs debug /sys/kernel/debug
mount -t tmpfs -o mode=1777 tmp /tmp
mkdir -p /dev/pts /dev/shm
mount -t tmpfs -o mode=1777 shm /dev/shm
hostname "$role"
exec </dev/null >/dev/ttyS1 2>&1
stty -F /dev/ttyS1 -onlcr
# In the order of their names.
for module in /lib/modules/guest/*; do
    if [ -e "$module" ]; then insmod "$module" || echo "insmod $module failed"; fi
done
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=262144 share /mnt/share || echo "no share"
if [ -e /sys/block/zram0 ]; then
    echo 256M > /sys/block/zram0/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0
fi
# On a Debian host: its files are below, what is changed is in memory. A kernel that cannot lay one over the other has them
# as they are, and everything that the guest needs must be there.
if [ -n "$host" ]; then
    mkdir -p /mnt/lower /mnt/upper /mnt/host
    mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 host /mnt/lower
    mount -t tmpfs upper /mnt/upper
    mkdir /mnt/upper/files /mnt/upper/work
    mount -t overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper/files,workdir=/mnt/upper/work host /mnt/host 2>/dev/null ||
        mount -o bind /mnt/lower /mnt/host
    mkdir -p /mnt/host/run /mnt/host/mnt/share
    mount -t tmpfs -o mode=755 run /mnt/host/run
    cp /bin/busybox /role /mnt/host/run
    for folder in proc sys dev tmp mnt/share; do mount -o move "/$folder" "/mnt/host/$folder"; done
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
    exec /bin/busybox switch_root /mnt/host /run/busybox sh /run/role
fi
exec sh /role
"#;

/// What runs the role's script, and ends the guest.
const ROLE: &str = r#"# SPDX-License-Identifier: Apache-2.0 OR MIT
busybox=/bin/busybox
if [ -e /run/busybox ]; then busybox=/run/busybox; fi
code=0
if [ -e /lib/modules/berth.ko ] && [ -z "$no_load" ]; then
    # shellcheck disable=SC2086
    insmod /lib/modules/berth.ko $module_args || { code=97; echo "insmod berth.ko failed"; }
fi
if [ "$code" = 0 ] && [ -e "/mnt/share/$role.sh" ]; then
    sh "/mnt/share/$role.sh"
    code=$?
fi
echo "$code" > "/mnt/share/$role.exit"
if [ -n "$keep" ]; then
    echo "@keep"
    while :; do setsid -c sh -l </dev/ttyS2 >/dev/ttyS2 2>&1; done
fi
# The driver must leave cleanly too; a script may have unloaded it already.
if [ -d /sys/module/berth ]; then rmmod berth || echo 98 > "/mnt/share/$role.exit"; fi
sync
"$busybox" poweroff -f
"#;

/// Collects files and writes the archive.
pub struct Initramfs {
    data: Vec<u8>,
    inode: u32,
}

impl Initramfs {
    /// A file system with busybox and the init script.
    ///
    /// # Errors
    /// When busybox cannot be read.
    pub fn new(busybox: &Path) -> Result<Self> {
        let mut this = Self { data: Vec::new(), inode: 1 };
        let folders = "bin dev proc sys tmp mnt mnt/share lib lib/modules lib/modules/guest lib/firmware lib/firmware/berth etc root";
        for folder in folders.split(' ') {
            this.entry(folder, 0o040_755, &[]);
        }
        this.entry("init", 0o100_755, INIT.as_bytes());
        this.entry("role", 0o100_644, ROLE.as_bytes());
        this.file("bin/busybox", busybox)?;
        this.entry("etc/passwd", 0o100_644, b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n");
        this.entry("etc/group", 0o100_644, b"root:x:0:\nnobody:x:65534:\n");
        Ok(this)
    }

    /// Adds a file, executable for all.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn file(&mut self, name: &str, from: &Path) -> Result<()> {
        let data = fs::read(from).with_context(|| format!("reading {} for the initramfs", from.display()))?;
        self.entry(name, 0o100_755, &data);
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        let inode = self.inode;
        self.inode += 1;
        let size = u32::try_from(data.len()).expect("files of an initramfs are below 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("names are short");
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
        let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.data.extend_from_slice(b"070701");
        for field in fields {
            self.data.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.data.extend_from_slice(name.as_bytes());
        self.data.push(0);
        self.pad();
        self.data.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.data.resize(self.data.len().next_multiple_of(4), 0);
    }

    /// Ends the archive and writes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(mut self, to: &Path) -> Result<()> {
        self.entry("TRAILER!!!", 0, &[]);
        fs::write(to, &self.data).with_context(|| format!("writing {}", to.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_entries_are_aligned_and_end_with_the_trailer() {
        let mut fs = Initramfs { data: Vec::new(), inode: 1 };
        fs.entry("a", 0o100_644, b"12345");
        assert_eq!(fs.data.len() % 4, 0);
        assert_eq!(&fs.data[..6], b"070701");
        // Header 110, name 2, data 5, each padded to a multiple of 4.
        assert_eq!(fs.data.len(), 112 + 8);
        fs.entry("TRAILER!!!", 0, &[]);
        assert!(fs.data.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
