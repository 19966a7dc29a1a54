// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Rows of the fast path: what the soft core writes to RTL about a QP, and reads of it.
//!
//! Each QP has two rows of 64 words: [`send`] (`berth_fp_tx`) and [`recv`] (`berth_fp_rx`). A word at
//! `CPU_FAST + ((half * 1024 + QPN) * 64 + word) * 4` belongs to half 0 (it sends) or 1 (it receives). The last words of a
//! row are commands and what RTL says. What RTL does not decide itself it tells the core as an [`event`].
//!
//! `hw-rtl/rtl/berth_row_pkg.sv` and `docs/reference/rows.md` are generated from here.

/// Half of the rows that send.
pub const HALF_SENDS: u32 = 0;
/// Half of the rows that receive.
pub const HALF_RECEIVES: u32 = 1;
/// QPNs that have rows.
pub const ROWS: u32 = 1024;
/// Words of a row.
pub const ROW_WORDS: u32 = 64;

/// Address of a word on the core's bus. Numbers that do not exist wrap.
pub const fn address(half: u32, qpn: u32, word: u32) -> u32 {
    super::cpu::CPU_FAST + (((half % 2) * ROWS + qpn % ROWS) * ROW_WORDS + word % ROW_WORDS) * 4
}

pub use super::Record;

/// A word of a row, or several that follow each other; or an event, whose argument is the word.
#[derive(Debug)]
pub struct Word {
    /// As the constant is called.
    pub name: &'static str,
    /// Number of the first one; of an event its code.
    pub number: u32,
    /// How many.
    pub count: u32,
    /// What it is.
    pub text: &'static str,
    /// Its fields, if it is not one number.
    pub record: Option<&'static Record>,
}

/// Declares the words of a row, or events: constants with their numbers, and a table of all.
macro_rules! words {
    ($(#[$tmeta:meta])* $table:ident {
        $($(#[doc = $doc:literal])+ $name:ident = $number:literal $(* $count:literal)? $(: $record:ident)?;)+
    }) => {
        $($(#[doc = $doc])+ pub const $name: u32 = $number;)+
        $(#[$tmeta])*
        pub const $table: &[super::Word] = &[$(super::Word {
            name: stringify!($name),
            number: $number,
            count: words!(@count $($count)?),
            text: concat!($($doc),+),
            record: words!(@record $($record)?),
        },)+];
    };
    (@count) => { 1 };
    (@count $count:literal) => { $count };
    (@record) => { None };
    (@record $record:ident) => { Some(&$record::RECORD) };
}

/// The row of the half that sends.
pub mod send {
    use super::Record;

    records! { u32;
        /// The send queue.
        Queue {
            /// Number of its completion queue.
            cqn: 23 16,
            /// Address space of the QP.
            asid: 15 8,
            /// log2 of its elements, at least 2.
            log2_depth: 3 0,
        }
        /// How the QP sends.
        Mode {
            /// How credit lists go (CR-12): `CARRIER_*`.
            carrier: 30 29,
            /// The peer knows no credit lists: its credit counts hold what needs a receive. Message mode and go-back-N only.
            foreign: 28 28,
            /// RDMA READ requests that wait for answers at most, as the peer takes them; 0: such an element is malformed.
            reads: 27 20,
            /// Packets that may come out of order before one that is missing counts as lost.
            reorder: 19 16,
            /// Packets under way at most, up to 128.
            window: 15 8,
            /// The peer takes RDMA WRITE; else such an element is malformed.
            remote: 7 7,
            /// The peer is on the same card.
            loopback: 6 6,
            /// Lost packets are sent again one by one (selective repeat), else all from the first one (go-back-N).
            selective: 5 5,
            /// Message mode: a send fills one receive (CR-17).
            message: 4 4,
            /// log2 of the path MTU in bytes.
            log2_mtu: 3 0,
        }
        /// Memory that is asked for.
        Blocks {
            /// Whole blocks ahead of what has left, at most, as a number of bytes.
            ahead: 13 8,
            /// log2 of the bytes of a block, 12 to 20.
            log2_block: 4 0,
        }
        /// A command.
        Command {
            /// Of `CMD_END` the `WC_*`, of `CMD_GIVE_UP` the number of credits.
            argument: 31 8,
            /// `CMD_*`.
            opcode: 7 0,
        }
        /// What the QP holds.
        Held {
            /// A frame is under way.
            busy: 31 31,
            /// An element is being fetched, checked or completed; 0 after `EVENT_SEND_QUEUE` and `EVENT_SEND_INDEX`.
            queued: 30 30,
            /// `CMD_REVOKE` is under way.
            revoking: 29 29,
            /// Memory is asked for and none is held.
            starved: 28 28,
            /// Memory is asked for or held (bit 6), blocks (bits 5:0); 0: none.
            holds: 15 0,
        }
        /// What a BIND gives.
        Bind {
            /// It waits for `CMD_BOUND`; else these words say nothing.
            waits: 7 7,
            /// One operation only (QP-12).
            one_shot: 5 5,
            /// `RIGHT_*`.
            rights: 2 0,
        }
        /// What is open.
        Counts {
            /// Pieces that are not acknowledged.
            unacked: 31 16,
            /// Credits that are not used.
            credits: 15 0,
        }
        /// Which layout rows have.
        Layout {
            /// `LAYOUT_TAG`, else the card has no rows that firmware knows.
            tag: 31 16,
            /// `LAYOUT_NUMBER`.
            number: 15 0,
        }
    }

    words! {
        /// The words of a row that sends. Those below `COMMAND` are written while the QP is not in use.
        WORDS {
            /// Headers of each packet, see `berth_fp_frame_out`.
            TEMPLATE = 0 * 14;
            /// Address of the send queue (a multiple of 4 KiB), low half, high half.
            BASE = 16 * 2;
            /// The send queue.
            QUEUE = 18: Queue;
            /// How the QP sends.
            MODE = 19: Mode;
            /// Acknowledgement time-out in units of `ROW_CLOCK`; 0: none, and no probes.
            TIMEOUT = 20;
            /// Memory that is asked for.
            BLOCKS = 21: Blocks;
            /// First PSN.
            PSN = 22;
            /// Q_Key of credit lists that go.
            QKEY = 23;
            /// Memory for `CMD_REVOKE`, the same for all rows: address of its first byte, low half first; address behind its last byte.
            RANGE = 24 * 4;
            /// Written: a command. The write is answered when it is carried out; `CMD_REVOKE` when it is begun.
            COMMAND = 32: Command;
            /// Read: oldest PSN that is not acknowledged.
            UNA = 33;
            /// Read: next PSN.
            NEXT = 34;
            /// Read: what the QP holds.
            HELD = 35: Held;
            /// Read: what is open.
            COUNTS = 36: Counts;
            /// Read: number of the first credit that the last `CMD_GIVE_UP` has given up. The same for all rows.
            KEPT = 37;
            /// Read: round trip as it is measured, in units of `ROW_CLOCK`; 0: not yet.
            ROUND_TRIP = 38;
            /// A credit list from the core, judged like one that came in a frame: number of its first credit.
            LIST_FIRST = 40;
            /// Its length; it begins.
            LIST_BEGIN = 41;
            /// Each of its sizes.
            LIST_SIZE = 42;
            /// Read, of a BIND (QP-4): what it gives.
            BIND = 44: Bind;
            /// Read: its key.
            BIND_KEY = 45;
            /// Read: address of the first byte that is bound, low half, high half; how many there are, likewise.
            BIND_RANGE = 46 * 4;
            /// Read: which layout rows have.
            LAYOUT = 63: Layout;
        }
    }

    table! {
        /// Commands of a row that sends, as (name, opcode, text).
        COMMANDS: u32 {
        /// Initialise: no engine begins any work before all have the QP.
        CMD_START = 1;
        /// Send one packet that is not acknowledged again, as a probe; all of them without selective repeat.
        CMD_AGAIN = 2;
        /// Halt.
        CMD_HALT = 3;
        /// End with the error in `argument`: what is posted, and what will be, completes with it.
        CMD_END = 4;
        /// Go on after a halt.
        CMD_GO_ON = 5;
        /// Give back memory that is held, after `CMD_END`, when no frame is under way; again until nothing is held.
        CMD_DRAIN = 6;
        /// Give up the newest of the credits that are not used, as many as `argument` says.
        CMD_GIVE_UP = 7;
        /// Let go of memory in `RANGE`, and ask for it anew; over when `revoking` is 0.
        CMD_REVOKE = 8;
        /// A BIND is done: what is behind it goes on.
        CMD_BOUND = 9;
        }
    }

    table! {
        /// How the credit lists of a connection go (CR-12). Who receives them takes each of these.
        CARRIERS: u32 {
        /// As datagrams from control QP to control QP.
        CARRIER_CONTROL = 0;
        /// As datagrams in the reverse direction of the connection: from its QP to the peer's.
        CARRIER_REVERSE = 1;
        /// As RDMA WRITEs to the window for lists in the peer's card.
        CARRIER_WRITE = 2;
        }
    }
}

/// The row of the half that receives.
///
/// Words 0 to 31 are one staging area for all QPs: a command applies what it needs of them to its QP.
pub mod recv {
    use super::Record;

    records! { u32;
        /// How the QP receives.
        Mode {
            /// A packet of a WRITE is taken in order only, also under selective repeat.
            writes_in_order: 30 30,
            /// RDMA READs and atomics that the peer may have under way, at most `MAX_READS`; 0: they go to the core.
            reads: 29 24,
            /// Packets until an ACK without being asked.
            ack_every: 23 16,
            /// `RIGHT_*` that no key gives the peer here.
            denies: 15 13,
            /// RNR timer, as InfiniBand codes it.
            rnr_timer: 12 8,
            /// The peer may write to memory that it has a key for.
            remote: 7 7,
            /// Message mode: a send fills one receive (CR-17).
            message: 6 6,
            /// The peer knows no credit lists.
            foreign: 5 5,
            /// Selective repeat, else go-back-N.
            selective: 4 4,
            /// log2 of the path MTU in bytes.
            log2_mtu: 3 0,
        }
        /// Where completions and payload go.
        Space {
            /// Protection domain.
            domain: 31 16,
            /// Number of the completion queue.
            cqn: 15 8,
            /// Address space of the QP.
            asid: 7 0,
        }
        /// The receive queue.
        Queue {
            /// Index of the first element.
            first: 31 16,
            /// log2 of its elements.
            log2_depth: 3 0,
        }
        /// When credit lists go (CR-5 to CR-9).
        Lists {
            /// The use of credits is told with each list, by `EVENT_USE`.
            told: 31 31,
            /// A later list is held until more than this many new credits exist, unless the sender has no more than this many left.
            few: 30 24,
            /// What `trigger` says.
            index: 23 16,
            /// A list does not go before the time in `FIRST`, unless the sender has no credits.
            timed: 15 15,
            /// Which buffer's data triggers the next list: `TRIGGER_*`.
            trigger: 10 8,
            /// Credits of a list at most.
            longest: 6 0,
        }
        /// Bound of memory that receives hold.
        Pinned {
            /// What the wire carries in round trip and service is added to `bound`, but at most this, in units of 4 KiB.
            most: 31 16,
            /// No further receive is asked for while so much is granted or asked for, but for the oldest one, in units of 4 KiB; 0: no bound.
            bound: 15 0,
        }
        /// Whose an RKey is, and what it gives.
        KeyScope {
            /// Protection domain.
            domain: 31 16,
            /// Address space that its range lies in.
            asid: 15 8,
            /// There is such a key.
            live: 7 7,
            /// It is bound to a range.
            bound: 6 6,
            /// It serves one operation (QP-12).
            one_shot: 5 5,
            /// `RIGHT_*`.
            rights: 2 0,
        }
        /// A command.
        Command {
            /// Of `CMD_END` the `WC_*`, of `CMD_KEY_STORE` and `CMD_KEY_LOAD` the place in the table of keys, of `CMD_CANCEL` how many receives.
            argument: 31 8,
            /// `CMD_*`.
            opcode: 7 0,
        }
        /// What the QP holds.
        Held {
            /// Payloads are being written.
            busy: 31 31,
            /// Elements are being fetched, checked or completed.
            queued: 30 30,
            /// Memory that is gone is still held.
            revoking: 29 29,
            /// Memory is asked for and no credit is out.
            starved: 28 28,
            /// Receives that hold memory or ask for it.
            holds: 15 0,
        }
        /// The access that broke the connection.
        Access {
            /// There is one; else these words say nothing.
            known: 7 7,
            /// `RIGHT_*` that it needs; 0: a SEND was to invalidate the key.
            right: 2 0,
        }
        /// How the sender used its credits: times between two pieces of data after the first of which it had credits.
        Gaps {
            /// How many, at most 255.
            count: 31 24,
            /// Their sum in units of `ROW_CLOCK`, at most 2^24 - 1.
            sum: 23 0,
        }
        /// More of that.
        Times {
            /// There is a `lead`: the list went to a sender without credits.
            led: 31 31,
            /// The longest of the times of `GAPS`, in units of `ROW_CLOCK`, at most 2^15 - 1.
            longest: 30 16,
            /// Time from the list to its first data, in units of `ROW_CLOCK`, at most 2^16 - 1.
            lead: 15 0,
        }
        /// More of that.
        Use {
            /// Credits that the sender had when the list went.
            left: 23 16,
            /// Credits that it had when its first data came.
            outstanding: 15 8,
            /// All that it still had to send fitted them (CR-9).
            covered: 2 2,
            /// It said before that data that it had more to send.
            waited: 1 1,
            /// It ran out of credits before, and had more to send.
            dry: 0 0,
        }
        /// A SEND with invalidate.
        Invalidate {
            /// One waits for `CMD_INVALIDATED`.
            waits: 0 0,
        }
        /// What is open.
        Counts {
            /// Receives that are posted and not complete.
            posted: 31 16,
            /// Receives that are granted and not complete.
            granted: 15 0,
        }
    }

    words! {
        /// The words of a row that receives.
        WORDS {
            /// How the QP receives.
            MODE = 0: Mode;
            /// The peer's IPv4 address.
            IP = 1;
            /// The peer's MAC address: last four bytes, first two.
            MAC = 2 * 2;
            /// Where completions and payload go.
            SPACE = 4: Space;
            /// Epoch of credit lists that come.
            EPOCH = 5;
            /// Epoch of credit lists that go.
            PEER_EPOCH = 6;
            /// Q_Key of credit lists that come.
            QKEY = 7;
            /// First PSN.
            PSN = 8;
            /// Address of the receive queue (a multiple of 4 KiB), low half, high half.
            BASE = 9 * 2;
            /// The receive queue.
            QUEUE = 11: Queue;
            /// When credit lists go.
            LISTS = 12: Lists;
            /// Time after which a list without a proof is told again, in units of `ROW_CLOCK`, 16 bits.
            AGAIN = 13;
            /// Producer index of the receive queue at the start, 16 bits.
            PI = 14;
            /// Number of the first credit that `CMD_VOID` makes void; for `CMD_LISTS` the time that a list waits for, modulo 2^32, as `HEARD` counts.
            FIRST = 15;
            /// The card's own IPv4 address. Holds at once and for all QPs, as the next one.
            OWN_IP = 16;
            /// Its own MAC address: last four bytes, first two.
            OWN_MAC = 17 * 2;
            /// Bound of memory that receives hold.
            PINNED = 19: Pinned;
            /// Memory for `CMD_REVOKE`: address of its first byte, low half first; address behind its last byte. For `CMD_CAP` the rate in 256ths of a byte in `ROW_CLOCK` cycles, 24 bits, and the bytes at once, 31 bits; 0: no maximum.
            RANGE = 20 * 4;
            /// A key's 32 bits. For `CMD_KEY_STORE`, and from `CMD_KEY_LOAD`, as the words that follow it.
            KEY = 24;
            /// Whose it is, and what it gives.
            KEY_SCOPE = 25: KeyScope;
            /// Its range: address of the first byte, low half first; of the last byte.
            KEY_RANGE = 26 * 4;
            /// What firmware keeps of it; RTL does not look at it.
            KEY_KEPT = 30 * 2;
            /// Read: what the QP holds.
            HELD = 32: Held;
            /// Read: receives that are completed.
            COMPLETED = 33;
            /// Read: credits that are announced.
            ANNOUNCED = 34;
            /// Read: credits whose data has landed.
            LANDED = 35;
            /// Read: what is open.
            COUNTS = 36: Counts;
            /// Read: when a good frame last came, in units of `ROW_CLOCK`.
            HEARD = 37;
            /// Read: whether a SEND with invalidate waits (QP-4).
            INVALIDATE = 38: Invalidate;
            /// Read: the key that it names, if one waits.
            INVALIDATE_KEY = 39;
            /// Read: the access of the peer for which the connection was broken, by `FAULT_ACCESS` or `FAULT_PAGE`.
            ACCESS = 40: Access;
            /// Read: its key.
            ACCESS_KEY = 41;
            /// Read: address of its first byte, low half, high half; bytes.
            ACCESS_RANGE = 42 * 3;
            /// Read: how the sender used its credits when `EVENT_USE` was told last, by the proof (CR-11) of a list, and since the one before.
            GAPS = 45: Gaps;
            /// Read: more of that.
            TIMES = 46: Times;
            /// Read: more of that.
            USE = 47: Use;
            /// Written: a command. The write is answered when it is carried out.
            COMMAND = 63: Command;
        }
    }

    table! {
        /// Commands of a row that receives, as (name, opcode, text).
        COMMANDS: u32 {
        /// Start. Only when nothing of an earlier connection is held.
        CMD_START = 1;
        /// Frames of the QP go to the core from now on.
        CMD_OFF = 2;
        /// Frames of the QP are taken here again; `MODE` to `EPOCH` and `QKEY` are taken anew. With `CMD_OFF` as well, what came before has been given to the half that sends.
        CMD_ON = 3;
        /// End: frames go to the core, no list goes, nothing is granted. When nothing is being written any more, all receives complete with the status in `argument`, also those that are posted later.
        CMD_END = 4;
        /// Credits from `FIRST` on, and those that are not announced, are void and granted anew; lists go again, with `PEER_EPOCH`.
        CMD_VOID = 5;
        /// Nothing becomes a credit, and no list goes, until `CMD_VOID`.
        CMD_HOLD = 6;
        /// Memory in `RANGE` is gone. Receives that are announced and have some of it are withdrawn: data for them breaks the connection. All that are not announced let go of theirs and are granted anew.
        CMD_REVOKE = 7;
        /// Memory is short. What is granted is announced now, what follows is a batch of its own. What is held ahead of the first receive that waits is given back, and only that one is asked for until it is granted.
        CMD_SQUEEZE = 8;
        /// No receive is asked for until `CMD_SQUEEZE`: what `CMD_VOID` gives back is to be had by others.
        CMD_REST = 9;
        /// The staged key takes the place of the table that `argument` names; a one-shot key is fresh. The QP does not matter.
        CMD_KEY_STORE = 10;
        /// The key in that place is staged.
        CMD_KEY_LOAD = 11;
        /// The key of the SEND with invalidate that waits is dead: its receive completes, and what is behind it goes on.
        CMD_INVALIDATED = 12;
        /// That key is none that the peer may invalidate, which breaks the connection by `FAULT_ACCESS`.
        CMD_NOT_INVALIDATED = 13;
        /// Of as many receives as `argument` says, modulo 2^16 and from the start on, those that are no credits complete as recalled, in their turn; those behind are granted as ever. The end of `CMD_REST`.
        CMD_CANCEL = 14;
        /// Of a peer without credit lists: receives that none of its packets has used are no credits any more, and are granted anew.
        CMD_RECLAIM = 15;
        /// `LISTS` but for `few` and `longest`, and `FIRST`, are taken anew, for lists to come. `TRIGGER_FIRST` holds for the last one, too.
        CMD_LISTS = 16;
        /// What the QP may receive in a time (CR-10) is another from now on. The first maximum begins with the whole burst saved; later ones keep what is saved. Credits that are not announced yet count as new ones.
        CMD_CAP = 17;
        }
    }

    table! {
        /// Which buffer's data triggers the next list (CR-5).
        TRIGGERS: u32 {
        /// The first one's.
        TRIGGER_FIRST = 0;
        /// The last one's.
        TRIGGER_LAST = 1;
        /// That with the index.
        TRIGGER_BETWEEN = 2;
        /// That with the index; the first one's while memory that is pinned is bounded, as for the following ones.
        TRIGGER_UNBOUNDED = 3;
        /// That which lies so many quarters into the list, 0 to 3.
        TRIGGER_QUARTERS = 4;
        /// That which so many others follow.
        TRIGGER_BEHIND = 5;
        }
    }

    table! {
        /// What a key allows, as bits (QP-11).
        RIGHTS: u32 {
        /// READ.
        RIGHT_READ = 1;
        /// WRITE.
        RIGHT_WRITE = 2;
        /// Atomics.
        RIGHT_ATOMIC = 4;
        }
    }

    table! {
        /// What a look-up in the table of keys says (`berth_fp_keys`).
        REFUSALS: u32 {
        /// The access may be done.
        KEY_OK = 0;
        /// There is no such key.
        KEY_UNKNOWN = 1;
        /// It is another protection domain's.
        KEY_DOMAIN = 2;
        /// It is not bound.
        KEY_UNBOUND = 3;
        /// Not all bytes lie in its range.
        KEY_OUTSIDE = 4;
        /// It does not give this right.
        KEY_RIGHT = 5;
        /// It is a one-shot key, and used up.
        KEY_USED = 6;
        /// Its memory cannot be made resident (QP-13). The table of keys never says so.
        KEY_FAULT = 7;
        }
    }

    table! {
        /// Operations of the engines of this half (`berth_fp_builder`, `berth_fp_grant`, `berth_fp_arrival`, `berth_fp_withdraw`): the steps that a command has. Each engine does what concerns it.
        STEPS: u32 {
        /// A QP begins.
        STEP_START = 0;
        /// It has ended: no list goes, nothing is granted.
        STEP_END = 1;
        /// Nothing changes; the engine's answer says how things are.
        STEP_ASK = 2;
        /// Nothing becomes a credit, and no list goes, until `STEP_VOID`; a peer without lists may use no more, until `STEP_RECLAIM`.
        STEP_HOLD = 3;
        /// No more memory is asked for until `STEP_VOID` or `STEP_UNPOST`.
        STEP_STOP = 4;
        /// Credits from a number on are void, and the peer knows.
        STEP_VOID = 5;
        /// Credits that are posted and not announced are taken back.
        STEP_UNPOST = 6;
        /// What is asked for behind the first receive that waits goes back; from now on one is asked for at a time.
        STEP_SQUEEZE = 7;
        /// A receive is withdrawn (VC-9).
        STEP_MARK = 8;
        /// A receive's memory is let go of.
        STEP_LET_GO = 9;
        /// No command: `berth_fp_grant` goes on with its own work.
        STEP_QUIET = 10;
        /// No receive is asked for until `STEP_SQUEEZE`.
        STEP_REST = 11;
        /// The key of a SEND with invalidate is dead.
        STEP_INVALIDATED = 12;
        /// It is none that the peer may invalidate.
        STEP_NOT_INVALIDATED = 13;
        /// Receives before a number that are no credits complete as recalled.
        STEP_CANCEL = 14;
        /// Credits that have not been used are void; the peer never knew of them.
        STEP_RECLAIM = 15;
        /// When lists go is another.
        STEP_LISTS = 16;
        /// The maximum bandwidth is another.
        STEP_CAP = 17;
        }
    }
}

/// What RTL does not decide itself.
///
/// An event is told once; what may happen again and again is counted only. It is read from `CPU_FAST_EVENT` and
/// `CPU_FAST_ARG`.
pub mod event {
    use super::Record;

    records! { u64;
        /// An event as engines hand it on. Its upper half is `CPU_FAST_EVENT`, its lower one `CPU_FAST_ARG`.
        Event {
            /// `EVENT_*`.
            code: 63 56,
            /// QP.
            qpn: 55 40,
            /// By the code, in its lowest 32 bits; without fields it says nothing.
            argument: 39 0,
        }
    }

    records! { u32;
        /// Argument of `EVENT_NAK` and `EVENT_RNR`.
        Nak {
            /// Its syndrome, as InfiniBand codes it.
            syndrome: 31 24,
            /// Its PSN.
            psn: 23 0,
        }
        /// Argument of `EVENT_LIST`.
        List {
            /// `LIST_*`.
            answer: 7 0,
        }
        /// Argument of `EVENT_BAD_WQE`.
        BadWqe {
            /// `WC_*`.
            status: 7 0,
        }
        /// Argument of `EVENT_NO_MEMORY`.
        NoMemory {
            /// It is that of a packet that was sent before and is lost.
            again: 8 8,
            /// The host's, `PAGE_*`.
            status: 7 0,
        }
        /// Argument of `EVENT_BROKEN`.
        Broken {
            /// `FAULT_*`.
            fault: 31 0,
        }
        /// Argument of `EVENT_RECEIVE_INDEX`.
        ReceiveIndex {
            /// The index that the doorbell names.
            index: 15 0,
        }
        /// Argument of `EVENT_TARGET`.
        Target {
            /// The host's, `PAGE_*`.
            status: 31 24,
            /// PSN of the first packet of an operation that waits.
            psn: 23 0,
        }
    }

    words! {
        /// Codes of events.
        CODES {
            /// A packet was not acknowledged in time.
            EVENT_TIMEOUT = 1;
            /// A NAK that is none of a gap; the QP has halted.
            EVENT_NAK = 2: Nak;
            /// An RNR NAK; the QP has halted.
            EVENT_RNR = 3: Nak;
            /// A credit list breaks the protocol.
            EVENT_LIST = 5: List;
            /// A send is malformed. Nothing more is sent.
            EVENT_BAD_WQE = 6: BadWqe;
            /// Memory of a send cannot be had. Nothing more is sent.
            EVENT_NO_MEMORY = 7: NoMemory;
            /// The send queue cannot be read; nothing more is fetched.
            EVENT_SEND_QUEUE = 8;
            /// A doorbell of the send queue names an element that cannot be; nothing more is fetched.
            EVENT_SEND_INDEX = 9;
            /// A BIND has its turn (QP-4): `send::BIND` and what follows says which. What is behind it waits for `CMD_BOUND`.
            EVENT_BIND = 10;
            /// Data breaks the connection.
            EVENT_BROKEN = 0x40: Broken;
            /// The receive queue cannot be read; nothing more is fetched.
            EVENT_RECEIVE_QUEUE = 0x42;
            /// A doorbell of the receive queue names an element that cannot be, and is not taken.
            EVENT_RECEIVE_INDEX = 0x43: ReceiveIndex;
            /// Memory that the peer was told to wait for (PC-4) can be had now, or it is known that it never can: the peer is to try again.
            EVENT_TARGET = 0x44: Target;
            /// A SEND with invalidate has its turn (QP-4): it and what is behind it wait for `CMD_INVALIDATED`. `recv::INVALIDATE_KEY` says which key.
            EVENT_INVALIDATE = 0x45;
            /// The proof of a list has come: `recv::GAPS` to `recv::USE` say how the sender uses its credits.
            EVENT_USE = 0x46;
        }
    }

    table! {
        /// Why data was not taken (`EVENT_BROKEN`), as (name, number, text).
        FAULTS: u32 {
        /// Bytes could not be written, or read for an answer, or were to go to a receive that is withdrawn.
        FAULT_WRITE = 0;
        /// Out of order, and not taken.
        FAULT_OUT_OF_ORDER = 1;
        /// Beyond the window.
        FAULT_OUT_OF_WINDOW = 2;
        /// No receive is there for a peer that knows no credit lists.
        FAULT_NOT_READY = 3;
        /// Without a credit, or against one that is withdrawn.
        FAULT_NO_CREDIT = 4;
        /// Longer than its credit.
        FAULT_TOO_LONG = 5;
        /// Against the protocol.
        FAULT_INVALID = 6;
        /// The connection was broken before, or is not there.
        FAULT_BROKEN = 7;
        /// Key, range or right do not match (QP-11).
        FAULT_ACCESS = 8;
        /// The memory is not resident, and asked for (PC-4).
        FAULT_NOT_RESIDENT = 9;
        /// The memory cannot be made resident (QP-13).
        FAULT_PAGE = 10;
        }
    }
}

/// Cycles of a unit of the clock in which rows count time.
pub const ROW_CLOCK: u32 = 64;
/// Value of `send::LAYOUT`'s tag.
pub const LAYOUT_TAG: u32 = 0x4246;
/// The layout that is described here.
pub const LAYOUT_NUMBER: u32 = 1;
