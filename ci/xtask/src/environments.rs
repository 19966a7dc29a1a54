// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Short guests, each in another environment: where a card cannot work, the driver says so in one line; elsewhere it
//! works.

use crate::guest::{Options, Role};

/// One environment.
pub struct Environment {
    /// As in reports.
    pub name: &'static str,
    /// For the kernel's command line.
    append: &'static str,
    /// Virtual CPUs.
    cpus: u32,
    /// What guest a does, behind [`FUNCTIONS`].
    script: &'static str,
    /// What guest b does; none: there is only guest a.
    script_b: &'static str,
}

/// For all scripts. The driver is not loaded when they begin.
const FUNCTIONS: &str = r#"
fail() { echo "FAILED: $1"; dmesg | grep -i berth | tail -n 5; exit 1; }
says() { dmesg | grep -q "$1" || fail "the kernel log does not say: $1"; }
says_not() { dmesg | grep -q "$1" && fail "the kernel log says: $1"; true; }
load() { insmod /lib/modules/berth.ko $1; }
name() { berth up --ip "$1" --mac "$2" >/dev/null || fail "berth up"; }
# The card is there and carries a file to itself.
works() {
    load || fail "insmod"
    name 192.0.2.1 02:00:00:00:00:01
    head -c 20000 /bin/busybox > /tmp/file
    berth recv --listen 7 --out /tmp/got >/tmp/recv.log 2>&1 & receiver=$!
    berth send --to 192.0.2.1:7 --file /tmp/file --wait 60 >/tmp/send.log 2>&1 || fail "send: $(cat /tmp/send.log)"
    wait $receiver || fail "recv: $(cat /tmp/recv.log)"
    cmp /tmp/file /tmp/got || fail "another file has come"
}
# The driver does not take the card, says why in one line, and leaves nothing.
refused() {
    load
    [ ! -e /dev/berth0 ] || fail "the card is used"
    says "$1"
    [ "$(dmesg | grep -c 'the card is not used')" = 1 ] || fail "more lines than one"
    rmmod berth || fail "rmmod"
}
"#;

/// All of them.
pub const ALL: [Environment; 6] = [
    Environment {
        name: "f8_bounce_buffers",
        append: "swiotlb=force",
        cpus: 1,
        script: "refused 'bounce buffers'",
        script_b: "",
    },
    Environment {
        name: "f8_no_msi",
        append: "pci=nomsi",
        cpus: 1,
        script: "refused 'no MSI-X interrupt'",
        script_b: "",
    },
    Environment {
        name: "f8_no_pat_one_processor",
        append: "nopat maxcpus=1",
        cpus: 2,
        script: "works; says 'doorbell pages are uncached'",
        script_b: "",
    },
    Environment {
        name: "f8_threaded_interrupts_movable_memory",
        append: "threadirqs kernelcore=256M",
        cpus: 2,
        script: "works; says_not 'doorbell pages are uncached'",
        script_b: "",
    },
    Environment {
        name: "f9_parameters_and_images",
        append: "",
        cpus: 1,
        script: r#"
for bad in max_process_qps=0 max_process_cqs=65536 max_process_contexts=4294967295 card_budget=1 process_budget=4294967295 loss_window_ms=0; do
    ! load $bad || fail "$bad is taken"
    says "parameter $bad is out of range"
done
image=/lib/firmware/berth/berth-fw.bin
mv $image /tmp/image
load || fail "insmod without an image"
says "no firmware berth/berth-fw.bin"
head -c 1000 /tmp/image > $image
! berth reset >/dev/null 2>&1 || fail "a truncated image works"
says "firmware refused"
cp /tmp/image $image
berth reset >/dev/null || fail "the card does not come back with a good image"
rmmod berth
works"#,
        script_b: "",
    },
    Environment {
        name: "f9_two_hosts_with_one_address",
        append: "",
        cpus: 1,
        script: r#"
load || fail "insmod"
name 192.0.2.1 02:00:00:00:00:01
touch /mnt/share/named
while [ ! -e /mnt/share/seen ]; do sleep 0.1; done"#,
        script_b: r#"
load || fail "insmod"
while [ ! -e /mnt/share/named ]; do sleep 0.1; done
name 192.0.2.1 02:00:00:00:00:02
n=0
until berth info | grep -q CONFLICT && dmesg | grep -q "another host has this card's IPv4 address 192.0.2.1"; do
    n=$((n + 1)); [ $n -lt 300 ] || { touch /mnt/share/seen; fail "the address of another host is taken for its own"; }
    sleep 0.1
done
touch /mnt/share/seen"#,
    },
];

impl Environment {
    /// Changes the usual options to those of this one.
    pub fn set(&self, options: &mut Options) {
        options.append = self.append.to_owned();
        options.cpus = self.cpus;
        options.no_load = true;
        if self.script_b.is_empty() {
            options.roles = vec![Role::A];
        }
    }

    /// The script of a guest.
    pub fn script(&self, role: Role) -> String {
        let own = if role == Role::A { self.script } else { self.script_b };
        format!("{FUNCTIONS}{own}\nexit 0\n")
    }
}
