// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Codes of frames that both RTL and firmware read and write; docs/reference/wire.md has the formats.

table! {
    /// Opcodes of the base transport header (IBTA 9.2.1, table 38), as (name, opcode, text).
    BTH_TABLE: u8 {
    /// RC SEND First.
    BTH_SEND_FIRST = 0x00;
    /// RC SEND Middle.
    BTH_SEND_MIDDLE = 0x01;
    /// RC SEND Last.
    BTH_SEND_LAST = 0x02;
    /// RC SEND Last with Immediate.
    BTH_SEND_LAST_IMM = 0x03;
    /// RC SEND Only.
    BTH_SEND_ONLY = 0x04;
    /// RC SEND Only with Immediate.
    BTH_SEND_ONLY_IMM = 0x05;
    /// RC RDMA WRITE First.
    BTH_WRITE_FIRST = 0x06;
    /// RC RDMA WRITE Middle.
    BTH_WRITE_MIDDLE = 0x07;
    /// RC RDMA WRITE Last.
    BTH_WRITE_LAST = 0x08;
    /// RC RDMA WRITE Last with Immediate.
    BTH_WRITE_LAST_IMM = 0x09;
    /// RC RDMA WRITE Only; under selective repeat each packet of a WRITE, with the RETH of the whole.
    BTH_WRITE_ONLY = 0x0a;
    /// RC RDMA WRITE Only with Immediate; likewise the last one.
    BTH_WRITE_ONLY_IMM = 0x0b;
    /// RC RDMA READ Request.
    BTH_READ_REQUEST = 0x0c;
    /// RC RDMA READ Response First.
    BTH_READ_RESPONSE_FIRST = 0x0d;
    /// RC RDMA READ Response Middle.
    BTH_READ_RESPONSE_MIDDLE = 0x0e;
    /// RC RDMA READ Response Last.
    BTH_READ_RESPONSE_LAST = 0x0f;
    /// RC RDMA READ Response Only.
    BTH_READ_RESPONSE_ONLY = 0x10;
    /// RC Acknowledge.
    BTH_ACKNOWLEDGE = 0x11;
    /// RC ATOMIC Acknowledge.
    BTH_ATOMIC_ACKNOWLEDGE = 0x12;
    /// RC CmpSwap.
    BTH_CMP_SWAP = 0x13;
    /// RC FetchAdd.
    BTH_FETCH_ADD = 0x14;
    /// RC SEND Last with Invalidate.
    BTH_SEND_LAST_INVALIDATE = 0x16;
    /// RC SEND Only with Invalidate.
    BTH_SEND_ONLY_INVALIDATE = 0x17;
    /// UC RDMA WRITE Only; to `CONTROL_QPN` a credit list (CR-12c).
    BTH_UC_WRITE_ONLY = 0x2a;
    /// UD SEND Only; to `CONTROL_QPN` or a queue pair of a connection a credit list.
    BTH_UD_SEND_ONLY = 0x64;
    /// UD SEND Only with Immediate.
    BTH_UD_SEND_ONLY_IMM = 0x65;
    /// Berth's own: RC Acknowledge with a SACK. The table leaves 0xc0 to 0xff to manufacturers; the lower bits are those of RC Acknowledge.
    BTH_SELECTIVE_ACKNOWLEDGE = 0xd1;
    }
}

table! {
    /// Types of the records of control messages and datagrams, as (name, type, text).
    REC_TABLE: u32 {
    /// A credit list. Body: epoch, first number, sizes.
    REC_LIST = 1;
    /// Connection request.
    REC_REQ = 2;
    /// The request is accepted.
    REC_REP = 3;
    /// The acceptance has arrived.
    REC_RTU = 4;
    /// The request is refused.
    REC_REJ = 5;
    /// The connection is over.
    REC_DREQ = 6;
    /// Nothing, but to be acknowledged.
    REC_KEEPALIVE = 8;
    /// Credits are wanted back.
    REC_RECALL = 9;
    /// Number of the first credit not kept.
    REC_RECALLED = 10;
    /// Memory that the peer was told to wait for can be had (PC-4): PSN of the operation's first packet.
    REC_GO = 11;
    /// A queue pair whose host has named this one as its peer: both have credit lists as if they had been connected.
    REC_BIND = 12;
    }
}

/// The key of the window that each card has for credit lists (CR-12c), as a peer's WRITE names it: "List". A list for QPN *n* goes
/// to byte *n* × `LIST_SLOT` of it; the upper half of its address is the list's Q_Key.
pub const LIST_KEY: u32 = u32::from_be_bytes(*b"List");
/// Bytes of the window for each queue pair.
pub const LIST_SLOT: u32 = 512;

/// Version of the control messages and of credit lists: other versions are not understood.
pub const CONTROL_VERSION: u32 = 2;
/// Class of the management datagrams by which hosts find out who is a Berth: one of those that vendors have (IBTA 13.4.4).
pub const MAD_CLASS: u8 = 0x3b;
/// What stands in the place of a vendor's OUI.
pub const MAD_VENDOR: [u8; 3] = *b"Bth";
/// The attribute that such a datagram gets.
pub const MAD_ATTRIBUTE: u16 = 0x11;
/// Where the attribute begins: a big-endian `CONTROL_VERSION`, and zeros.
pub const MAD_DATA: usize = 40;
