// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! The two rings between driver and card: commands (host to card), events (card to host).
//!
//! Both have entries of 16 words (64 bytes). The driver owns command entries from the
//! consumer index up to the producer index that it last wrote; the card owns the rest.
//! Event entries carry a phase bit in bit 31 of their last word that changes each time
//! round, beginning with 1.

use super::Record;

use super::rows::{recv, send};

/// Bytes of an entry of either ring.
pub const ENTRY_BYTES: u32 = 64;
/// Words of an entry of either ring.
pub const ENTRY_WORDS: usize = 16;
/// Word of an event whose bit 31 ([`PHASE`](super::wqe::PHASE)) is the phase. The last one: a host may see the words of a
/// DMA write one after the other, in rising order, so whoever sees the phase sees the whole event.
pub const EVENT_PHASE: usize = ENTRY_WORDS - 1;
/// Bytes that an `EV_LOG` can have: from w2 to the word with the phase.
pub const EVENT_LOG_BYTES: usize = (EVENT_PHASE - 2) * 4;

/// Bits 31:16 of the tag of a page request, if the sending half of a QP's row asks (0: firmware does).
pub const TAG_SENDS: u32 = 1;
/// Bits 31:16 of the tag of a page request, if the receiving half of a QP's row asks.
pub const TAG_RECEIVES: u32 = 2;
/// Lowest of the bits of such a tag, up to 15, that are the QPN of a sending half.
pub const TAG_SENDS_QPN: u32 = 6;
/// Bit of such a tag that is set if a packet goes again.
pub const TAG_SENDS_AGAIN: u32 = TAG_SENDS_QPN - 1;
/// Lowest of the bits of such a tag, up to 15, that are the QPN of a receiving half.
pub const TAG_RECEIVES_QPN: u32 = 4;

/// Commands below this opcode are carried out by RTL in order, the rest by firmware.
pub const CMD_FIRST_FW: u32 = 16;

table! {
    /// Command opcodes (bits 7:0 of word 0), as (name, value, text).
    CMD_TABLE: u32 {
    /// RTL. Puts up to `INSTALL_PAGES` pages that follow each other into the translation table. The entries become valid with use count 0.
    CMD_PAGE_INSTALL = 1;
    /// RTL. Answers an `EV_PAGE_NEED`. Reaches firmware as `XLT_READY`.
    CMD_PAGE_READY = 2;
    /// RTL. Of up to `EVICT_PAGES` entries drops each whose use count is 0. All are answered by one `EV_PAGE_EVICTED`.
    CMD_PAGE_EVICT = 3;
    /// RTL. Drops an entry whatever its use count.
    CMD_PAGE_REVOKE = 4;
    /// RTL. When all DMA issued before has ended, writes a token (8 bytes) to `HOST_FENCE`.
    CMD_FENCE = 5;
    /// Firmware. Names this end node. Asks by ARP whether another host has the address (RFC 5227), also when the name is the same: an answer counts in `F_ADDRESS_CONFLICTS`.
    CMD_NET_CONFIG = 16;
    /// Firmware. Makes a completion queue.
    CMD_CQ_CREATE = 17;
    /// Firmware. Ends a completion queue.
    CMD_CQ_DESTROY = 18;
    /// Firmware. Makes a queue pair.
    CMD_QP_CREATE = 19;
    /// Firmware. Ends a queue pair. Done when nothing of it is in flight; its connection ends, elements are flushed without completions.
    CMD_QP_DESTROY = 20;
    /// Firmware. Listens: requests for the service become `EV_CM_REQUEST`.
    CMD_CM_LISTEN = 21;
    /// Firmware. Listens no more.
    CMD_CM_UNLISTEN = 22;
    /// Firmware. Connects a QP. Done at once; the outcome is `EV_CM_ESTABLISHED` or `EV_CM_CLOSED`.
    CMD_CM_CONNECT = 23;
    /// Firmware. Accepts an `EV_CM_REQUEST` with a QP of the mode that it names (else `CMD_INVALID`).
    CMD_CM_ACCEPT = 24;
    /// Firmware. Refuses an `EV_CM_REQUEST`.
    CMD_CM_REJECT = 25;
    /// Firmware. Ends a QP's connection; elements left are flushed with completions.
    CMD_CM_DISCONNECT = 26;
    /// Firmware. Translations of a range were revoked. Firmware lets go of every block in it before the command is done.
    CMD_RANGE_REVOKED = 27;
    /// Firmware. Page requests wait for budget. Firmware recalls grants that are unused. Its first result is the QPN whose receive holds a part of its memory and does not fit beside it, as nobody else has memory that would come back (0 none).
    CMD_PRESSURE = 28;
    /// Firmware. Asks for a QP's state: the results are a `QpState`.
    CMD_QP_QUERY = 29;
    /// Firmware. Test and diagnosis: breaks firmware.
    CMD_CRASH = 30;
    /// Firmware. Makes a key that peers may be given (QP-11), bound to a range, or with a length of 0 to nothing: the first result is the key. Every right (`RIGHT_*`) is one of the process's own.
    CMD_KEY_REGISTER = 31;
    /// Firmware. Binds a key of the address space anew; a one-shot key is fresh again. A length and an address of 0 unbind it. When this is done, no access under the old binding is under way.
    CMD_KEY_BIND = 32;
    /// Firmware. Ends a key of the address space; done as `CMD_KEY_BIND`.
    CMD_KEY_FREE = 33;
    /// Firmware. Ends all keys of an address space; done as `CMD_KEY_BIND`.
    CMD_KEYS_DROP = 34;
    /// Firmware. Gives a QP of message mode a peer that speaks plain RoCEv2, without a connection request. Done at once; the outcome is `EV_CM_ESTABLISHED`, when the peer's MAC address is known, or `EV_CM_CLOSED`.
    CMD_QP_PEER = 35;
    /// Firmware. Makes a raw queue, which takes and sends whole Ethernet frames for the kernel.
    CMD_RAW_CREATE = 36;
    /// Firmware. Ends a raw queue and its filters. Done when none of its DMA is under way; elements that are not complete by then have no completions.
    CMD_RAW_DESTROY = 37;
    /// Firmware. Says anew which frames a raw queue takes.
    CMD_RAW_MODE = 38;
    /// Firmware. Sets a filter that chooses a raw queue for frames, or ends it.
    CMD_RAW_FILTER = 39;
    /// Firmware. Gives receives of a QP back to the program that nothing has come for: credits that the peer has not used are recalled, and what is no credit then completes with `WC_RECALLED`. What has been posted when the peer answers counts. Done at once; the QP goes on. `CMD_BUSY`: it has no connection yet.
    CMD_QP_RECALL = 40;
    /// Firmware. Changes the trigger of a QP's credit lists, from the next one on.
    CMD_QP_TRIGGER = 41;
    /// Firmware. Sets or ends the maximum bandwidth of what a QP receives (CR-10).
    CMD_QP_CAP = 42;
    }
}

table! {
    /// Event kinds (bits 7:0 of word 0), as (name, value, text).
    EV_TABLE: u32 {
    /// RTL. Pages are needed.
    EV_PAGE_NEED = 1;
    /// RTL. A range is not in use any more.
    EV_PAGE_RELEASE = 2;
    /// RTL. Answer to `CMD_PAGE_EVICT`: its pages, in their order.
    EV_PAGE_EVICTED = 3;
    /// RTL. A notification that was armed on a CQ has fired.
    EV_CQ_NOTIFY = 4;
    /// RTL. A CQ overran: a completion was lost, and the QP that it was for is to be put in error. Of a raw queue it is `RAW_QPN` and its number.
    EV_CQ_OVERRUN = 5;
    /// Firmware. A command is done.
    EV_CMD_DONE = 16;
    /// Firmware. A peer asks for a connection.
    EV_CM_REQUEST = 17;
    /// Firmware. A QP is connected.
    EV_CM_ESTABLISHED = 18;
    /// Firmware. A QP's connection is over or did not come about.
    EV_CM_CLOSED = 19;
    /// Firmware. A QP went into error.
    EV_QP_ERROR = 20;
    /// Firmware. Log bytes (defmt, rzCOBS frames).
    EV_LOG = 21;
    /// Firmware. An `EV_CM_REQUEST` is over without an answer of the host: it came too late, or the peer has taken it back or is gone.
    EV_CM_REQUEST_OVER = 22;
    }
}

/// `CMD_CRASH`: firmware panics.
pub const CRASH_PANIC: u32 = 1;
/// `CMD_CRASH`: firmware is caught in an endless loop.
pub const CRASH_LOOP: u32 = 2;
/// `CMD_CRASH`: firmware sends an event that the host has made up, whatever it is; none if the ring has no room.
pub const CRASH_EVENT: u32 = 3;
/// Words of such an event; the others are 0.
pub const CRASH_EVENT_WORDS: usize = 12;

records! { u32;
    /// Word 0 of `CMD_PAGE_INSTALL`, `CMD_PAGE_EVICT` and `EV_PAGE_EVICTED`.
    Pages {
        /// Pages beside the first one.
        further: 11 8,
        /// Opcode or kind.
        code: 7 0,
    }
}

records! { u64;
    /// A page of `CMD_PAGE_INSTALL`, from word `INSTALL_FIRST` on. Its number follows that of the page before.
    InstalledPage {
        /// The card may write.
        write: 63 63,
        /// Bit 12 of `index`.
        index_high: 62 62,
        /// Bus address in pages of 4 KiB.
        page: 61 12,
        /// Place in the translation table.
        index: 11 0,
    }
}

records! { u16;
    /// A page of `EV_PAGE_EVICTED`, from word `EVICT_FIRST` on. In `CMD_PAGE_EVICT` there are indices alone, of 16 bits.
    EvictedPage {
        /// The entry was dropped, else it is in use.
        dropped: 15 15,
        /// Place in the translation table.
        index: 12 0,
    }
}

/// Bits of word 0 of a message about pages that say how many there are.
pub const MORE_PAGES: u32 = Pages {
    further: u32::MAX,
    code: 0,
}
.word();
/// Word of a `CMD_PAGE_INSTALL`: address space.
pub const INSTALL_ASID: usize = 1;
/// First of two words: number of the first virtual page.
pub const INSTALL_VPN: usize = 2;
/// First word with a page.
pub const INSTALL_FIRST: usize = 4;
/// First word of a `CMD_PAGE_EVICT` or `EV_PAGE_EVICTED` with pages, two each; the first one is in bits 15:0.
pub const EVICT_FIRST: usize = 1;

/// Pages that one `CMD_PAGE_INSTALL` can have, at most.
pub const INSTALL_PAGES: usize = 6;

/// Pages of a message with this word 0.
const fn pages(word: u32) -> usize {
    Pages::from_word(word).further as usize + 1
}

/// That word with one page more.
const fn one_more(word: u32) -> u32 {
    let head = Pages::from_word(word);
    Pages {
        further: head.further + 1,
        ..head
    }
    .word()
}

/// Adds a page, with its place in the translation table and its bus address (below 2^62), to a command: to one of zeros,
/// or to a `CMD_PAGE_INSTALL` for the page before; false if it is none, or full.
pub fn install_add(
    entry: &mut [u32; ENTRY_WORDS],
    (asid, vpn): (u32, u64),
    index: u32,
    bus: u64,
    write: bool,
) -> bool {
    let n = if entry[0] == 0 {
        entry[0] = CMD_PAGE_INSTALL;
        entry[INSTALL_ASID] = asid;
        entry[INSTALL_VPN] = vpn as u32;
        entry[INSTALL_VPN + 1] = (vpn >> 32) as u32;
        0
    } else {
        let head = Pages::from_word(entry[0]);
        let n = pages(entry[0]);
        let first = super::wide(entry[INSTALL_VPN], entry[INSTALL_VPN + 1]);
        if head.code != CMD_PAGE_INSTALL || n >= INSTALL_PAGES {
            return false;
        }
        if entry[INSTALL_ASID] != asid || first + n as u64 != vpn {
            return false;
        }
        entry[0] = one_more(entry[0]);
        n
    };
    let page = InstalledPage {
        write: write.into(),
        index_high: u64::from(index) >> 12,
        page: bus >> 12,
        index: index.into(),
    }
    .word();
    let place = INSTALL_FIRST + 2 * n;
    for (place, half) in [(place, page as u32), (place + 1, (page >> 32) as u32)] {
        if let Some(word) = entry.get_mut(place) {
            *word = half;
        }
    }
    true
}

/// Pages of a `CMD_PAGE_INSTALL`, as [`install_add`] takes them: process and virtual page number, index, bus address, and
/// whether the card may write.
pub fn installed_pages(
    entry: &[u32; ENTRY_WORDS],
) -> impl Iterator<Item = ((u32, u64), u32, u64, bool)> + '_ {
    let asid = entry[INSTALL_ASID];
    let first = super::wide(entry[INSTALL_VPN], entry[INSTALL_VPN + 1]);
    let low = entry.iter().skip(INSTALL_FIRST).step_by(2);
    let high = entry.iter().skip(INSTALL_FIRST + 1).step_by(2);
    let words = low.zip(high).take(pages(entry[0]));
    let vpns = (0..).map(move |n| first.wrapping_add(n));
    words.zip(vpns).map(move |((&low, &high), vpn)| {
        let page = InstalledPage::from_word(super::wide(low, high));
        let index = (page.index | page.index_high << 12) as u32;
        ((asid, vpn), index, page.page << 12, page.write != 0)
    })
}

/// Pages that one `CMD_PAGE_EVICT` can name, at most.
pub const EVICT_PAGES: usize = 12;

/// The `CMD_PAGE_EVICT` for one page.
pub const fn evict_command(index: u32) -> [u32; ENTRY_WORDS] {
    let mut entry = [0; ENTRY_WORDS];
    entry[0] = CMD_PAGE_EVICT;
    entry[EVICT_FIRST] = index & 0xffff;
    entry
}

/// Adds a page to a command; false if it is no `CMD_PAGE_EVICT`, or names [`EVICT_PAGES`] already.
pub fn evict_add(entry: &mut [u32; ENTRY_WORDS], index: u32) -> bool {
    let n = pages(entry[0]);
    if Pages::from_word(entry[0]).code != CMD_PAGE_EVICT || n >= EVICT_PAGES {
        return false;
    }
    entry[0] = one_more(entry[0]);
    if let Some(word) = entry.get_mut(EVICT_FIRST + n / 2) {
        *word |= (index & 0xffff) << (16 * (n % 2));
    }
    true
}

/// Indices that a `CMD_PAGE_EVICT` names.
pub fn evict_indices(entry: &[u32; ENTRY_WORDS]) -> impl Iterator<Item = u32> + '_ {
    let words = entry.iter().skip(EVICT_FIRST).take(EVICT_PAGES / 2);
    let halves = words.flat_map(|word| [word & 0xffff, word >> 16]);
    halves.take(pages(entry[0]))
}

/// The `EV_PAGE_EVICTED` that answers a `CMD_PAGE_EVICT`: `dropped` says of each index whether its entry was dropped.
pub fn evict_answer(
    entry: &[u32; ENTRY_WORDS],
    mut dropped: impl FnMut(u32) -> bool,
) -> [u32; ENTRY_WORDS] {
    let mut event = [0; ENTRY_WORDS];
    event[0] = EV_PAGE_EVICTED | entry[0] & MORE_PAGES;
    for (n, index) in evict_indices(entry).enumerate() {
        let page = EvictedPage {
            dropped: dropped(index).into(),
            index: index as u16,
        };
        if let Some(word) = event.get_mut(EVICT_FIRST + n / 2) {
            *word |= u32::from(page.word()) << (16 * (n % 2));
        }
    }
    event
}

/// Pages of an `EV_PAGE_EVICTED`, whose words 0 to 6 at least are given: index, and whether the entry was dropped.
pub fn evicted_pages(event: &[u32]) -> impl Iterator<Item = (u32, bool)> + '_ {
    let pages = event.first().map_or(0, |word| pages(*word));
    (0..pages.min(EVICT_PAGES)).map_while(|n| {
        let word = event.get(EVICT_FIRST + n / 2)? >> (16 * (n % 2));
        let page = EvictedPage::from_word(word as u16);
        Some((page.index.into(), page.dropped != 0))
    })
}

/// Bytes of private data in connection management.
pub const PRIVATE_DATA: usize = 32;

/// Next list when data lands in the first buffer of the last list (CR-5). To `TRIGGER_BEHIND` these are those of rows.
pub const TRIGGER_FIRST: u8 = recv::TRIGGER_FIRST as u8;
/// Next list when data lands in the last buffer of the last list.
pub const TRIGGER_LAST: u8 = recv::TRIGGER_LAST as u8;
/// Next list when data lands in a chosen buffer of the last list.
pub const TRIGGER_BETWEEN: u8 = recv::TRIGGER_BETWEEN as u8;
/// The same; the first buffer while the card bounds what is pinned for receives, as for the following ones.
pub const TRIGGER_UNBOUNDED: u8 = recv::TRIGGER_UNBOUNDED as u8;
/// Next list when data lands in the buffer that lies so many quarters (0 to 3) into the last list.
pub const TRIGGER_QUARTERS: u8 = recv::TRIGGER_QUARTERS as u8;
/// Next list when data lands in the buffer that so many others of the last list follow.
pub const TRIGGER_BEHIND: u8 = recv::TRIGGER_BEHIND as u8;
/// The buffer follows from how fast the sender uses its credits (CR-6).
pub const TRIGGER_ADAPTIVE: u8 = 6;
/// Next list at a time that follows from that (CR-7).
pub const TRIGGER_TIMED: u8 = 7;
/// Next list at a time that a filter predicts from that (CR-8).
pub const TRIGGER_PREDICTIVE: u8 = 8;
/// The card changes between five buffers, by that and by what the sender says it still has to send (CR-9).
pub const TRIGGER_AUTO: u8 = 9;

/// Parts of a byte that the rate of a maximum bandwidth counts, in `ROW_CLOCK` cycles (CR-10).
pub const CAP_PARTS: u32 = 256;
/// Largest rate of one, in these.
pub const CAP_RATE_MAX: u32 = (1 << 24) - 1;
/// Most bytes at once of one.
pub const CAP_BURST_MAX: u32 = (1 << 31) - 1;

/// There is such a kind of trigger (`TRIGGER_*`), and it takes such an index. Out of line, as it is asked seldom and firmware's cache is
/// small.
#[inline(never)]
pub const fn is_trigger(trigger: u32, index: u32) -> bool {
    const LAST_KIND: u32 = TRIGGER_AUTO as u32;
    let most = match trigger {
        recv::TRIGGER_BETWEEN | recv::TRIGGER_UNBOUNDED | recv::TRIGGER_BEHIND => u8::MAX as u32,
        recv::TRIGGER_QUARTERS => 3,
        0..=LAST_KIND => 0,
        _ => return false,
    };
    index <= most
}

/// Credit lists go over the control QPs (CR-12a). To `CARRIER_WRITE` these are those of rows.
pub const CARRIER_CONTROL: u8 = send::CARRIER_CONTROL as u8;
/// Credit lists go in the reverse direction of their connection (CR-12b).
pub const CARRIER_REVERSE: u8 = send::CARRIER_REVERSE as u8;
/// Credit lists go as RDMA WRITEs to a window in the peer's card (CR-12c).
pub const CARRIER_WRITE: u8 = send::CARRIER_WRITE as u8;

/// Stream mode (CR-17): a send may be cut over several receives.
pub const MODE_STREAM: u8 = 0;
/// Message mode: a send fills one receive, or fails by itself if the credit is too small for it.
pub const MODE_MESSAGE: u8 = 1;

/// Largest QPN on the wire, and largest PSN.
pub const MAX_QPN: u32 = 0xff_ffff;
/// Largest code of an RNR timer (IBTA 9.7.5.2.8).
pub const MAX_RNR_TIMER: u32 = 31;
/// RNR retries: any number of times.
pub const RNR_FOR_EVER: u32 = 7;

/// Whether an end node can have this path MTU, in bytes.
pub const fn is_mtu(bytes: u32) -> bool {
    matches!(bytes, 256 | 512 | 1024 | 2048 | 4096)
}

/// Whether one host can have this IPv4 address.
pub const fn is_host(ipv4: u32) -> bool {
    ipv4 != 0 && ipv4 >> 28 < 0xe
}

/// State of a QP as `CMD_QP_QUERY` gives it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpState {
    /// 0 created, 1 connecting, 2 connected, 3 error, 4 closed.
    pub state: u32,
    /// `REASON_*` when in error or closed.
    pub reason: u32,
    /// Receives posted, granted (pinned), announced, landed, completed.
    pub receives: [u32; 5],
    /// Credits that the peer gave and that are unused.
    pub credits: u32,
    /// Pieces sent and not yet acknowledged.
    pub pieces: u32,
    /// RDMA READ requests that the QP may have under way: when connected, no more than its peer takes.
    pub reads: u32,
}

impl QpState {
    /// From the results of `EV_CMD_DONE`.
    pub const fn from_results(results: &[u32; EVENT_PHASE - 3]) -> Self {
        let [state, reason, a, b, c, d, e, credits, pieces, reads, ..] = *results;
        Self {
            state,
            reason,
            receives: [a, b, c, d, e],
            credits,
            pieces,
            reads,
        }
    }

    /// The first results of `EV_CMD_DONE`; the others are 0.
    pub const fn to_results(self) -> [u32; 10] {
        let [a, b, c, d, e] = self.receives;
        let Self {
            state,
            reason,
            credits,
            pieces,
            reads,
            ..
        } = self;
        [state, reason, a, b, c, d, e, credits, pieces, reads]
    }
}
