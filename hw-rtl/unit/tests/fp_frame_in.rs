// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_fp_frame_in`: which way an answer to a READ or an atomic takes, and what is told of it. The rest of it is tested in
//! the receiving half (`fp_rx.rs`) and the whole fast path (`scenarios.rs`).
#![cfg(feature = "fastpath")]

use berth_abi::cpu::{RX_FLAG_ICRC_OK, RX_FLAG_ROCE};
use berth_protocol::rc::{Position, ResponseBody, ResponsePacket};
use berth_protocol::wire::headers::{Mac, Template};
use berth_protocol::wire::opcode::Service;
use berth_protocol::wire::reliable::emit_response;
use berth_rtl_unit::Module;

const NAME: &str = "berth_fp_frame_in";
/// Names of this card and of the peer: addresses on both layers.
const OWN: (u64, u32) = (0x0200_0000_0001, 0x0a00_0001);
const PEER: (u64, u32) = (0x0200_0000_0002, 0x0a00_0002);
const Q: u32 = 9;
const PLACE: u64 = 0x1_2000;

fn mac(of: u64) -> Mac {
    Mac::new(core::array::from_fn(|i| (of >> (40 - 8 * i)) as u8))
}

/// An answer as it comes, with its iCRC; behind it `more` bytes that do not belong there.
fn answer(psn: u32, body: ResponseBody, payload: &[u8], more: usize) -> Vec<u8> {
    let template = Template::new(mac(PEER.0), PEER.1, mac(OWN.0), OWN.1, 0xc000, Q);
    let headers = emit_response(Service::Rc, &ResponsePacket { psn, msn: 7, body });
    let aeth = headers.ext.aeth.map(|aeth| u32::from(aeth.syndrome.to_bits()) << 24 | aeth.msn);
    let original = headers.ext.atomic_ack.map(u64::to_be_bytes);
    let data = [original.as_ref().map_or(&[][..], |bytes| &bytes[..]), payload, &vec![0; more]].concat();
    let frame = template.packet(headers.opcode.0, false, false, psn, aeth, data.len() as u32);
    let mut bytes: Vec<u8> = frame.words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(frame.start as usize);
    bytes.extend(data);
    bytes.resize(frame.end as usize + 4, 0);
    bytes
}

/// Shows a frame: `ans.atomic`, length and place of what it brings; `None` if it goes to the core.
fn shown(m: &mut Module, frame: &[u8]) -> Option<(bool, u64, u64)> {
    let set = |m: &mut Module, name: &str, value: u64| {
        let port = m.port(name);
        m.set(port, value);
    };
    let mut header = frame[..frame.len().min(96)].to_vec();
    header.resize(96, 0xee);
    let words: Vec<u64> = header.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight"))).collect();
    let port = m.port("rf_hdr");
    m.set_wide(port, &words);
    set(m, "rf_valid", 1);
    set(m, "rf.place", PLACE);
    set(m, "rf.len", frame.len() as u64);
    set(m, "rf.flags", u64::from(RX_FLAG_ROCE | RX_FLAG_ICRC_OK));
    m.settle();
    assert!(m.is(m.port("rf_ready")));
    m.edge();
    set(m, "rf_valid", 0);
    m.settle();
    let get = |name: &str| m.get(m.port(name));
    assert_eq!(get("ans_valid") + get("cf_valid"), 1);
    let its = (get("ans_valid") != 0).then(|| {
        assert_eq!((get("ans_q"), get("ans.psn"), get("ans.frame")), (Q.into(), 0xab_cdef, PLACE));
        (get("ans.atomic") != 0, get("ans.len"), get("ans.payload"))
    });
    m.edge();
    its
}

#[test]
fn qp_3_answers_to_reads_and_to_atomics_are_told_apart() {
    let width = Module::widths(NAME)[0];
    for (selective, remote) in [(true, false), (false, true), (false, false)] {
        let taken = selective || remote;
        let mut m = Module::new(NAME, width);
        m.reset();
        let rows: [(&str, u64); 14] = [
            ("own_mac", OWN.0),
            ("own_ip", OWN.1.into()),
            ("row_q", Q.into()),
            ("row.on", 1),
            ("row.selective", selective.into()),
            ("row.remote", remote.into()),
            ("row.mac", PEER.0),
            ("row.ip", PEER.1.into()),
            ("in_ready", 1),
            ("ack_ready", 1),
            ("ans_ready", 1),
            ("list_ready", 1),
            ("cf_ready", 1),
            ("row_we", 1),
        ];
        for (name, value) in rows {
            let port = m.port(name);
            m.set(port, value);
        }
        m.settle();
        m.edge();
        let port = m.port("row_we");
        m.set(port, 0_u8);
        let read = |len| ResponseBody::Read { position: Position::Only, len };
        let atomic = ResponseBody::Atomic { original: 0x0102_0304_0506_0708 };
        let behind = PLACE + 58;
        for (body, payload, more, wanted) in [
            (read(8), &[1; 8][..], 0, (false, 8, behind)),
            (read(3), &[1; 3], 0, (false, 3, behind)),
            (atomic, &[], 0, (true, 8, behind)),
            // One that is too long is told as it is: nobody has asked for so much.
            (atomic, &[], 4, (true, 12, behind)),
        ] {
            let frame = answer(0xab_cdef, body, payload, more);
            assert_eq!(shown(&mut m, &frame), taken.then_some(wanted), "{body:?}");
        }
        // One that is cut off has no eight bytes.
        let frame = answer(0xab_cdef, atomic, &[], 0);
        let mut short = frame[..54 + 4 + 4].to_vec();
        for (at, less) in [(16, 8), (38, 8)] {
            let len = u16::from_be_bytes([short[at], short[at + 1]]) - less;
            short[at..at + 2].copy_from_slice(&len.to_be_bytes());
        }
        let sum = u16::from_be_bytes([short[24], short[25]]) + 8;
        short[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(shown(&mut m, &short), taken.then_some((true, 0, behind)));
    }
}
