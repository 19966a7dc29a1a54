// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The credit engine against its golden model, `berth_protocol::credit`.

mod common;

use berth_abi::card::*;
use berth_abi::counters::*;
use berth_abi::cpu::*;
use berth_protocol::credit::CreditRow;
use common::{Bench, Rng, seed};

/// Operations of the random test per card.
const STEPS: usize = 6000;

impl Bench {
    /// Carries out one operation on the card.
    fn credit(&mut self, op: u32, qpn: u32, arg0: u32, arg1: u32) -> [u32; 3] {
        self.set(CPU_CRD_ARG0, arg0);
        self.set(CPU_CRD_ARG1, arg1);
        self.set(CPU_CRD_OP, op << 24 | qpn);
        [self.reg(CPU_CRD_RSP0), self.reg(CPU_CRD_RSP1), self.reg(CPU_CRD_RSP2)]
    }

    /// QPs that the card shows as ready for their next list.
    fn ready_lists(&mut self) -> Vec<u32> {
        // the scan for the next one takes at most a round over all rows
        let mut ready = Vec::new();
        for _ in 0..4 {
            self.card.run(2 * u64::from(NUM_QP_ROWS));
            let shown = self.reg(CPU_CRD_LIST);
            if shown & 1 << 31 == 0 {
                break;
            }
            ready.push(shown & 0xffff);
        }
        ready
    }
}

/// An operation with arguments that are mostly sensible for the state of `row`.
fn random_operation(rng: &mut Rng, row: &CreditRow) -> (u32, u32, u32) {
    let (posted, announced, landed) = row.builder.numbers();
    let size = if rng.chance(0.1) { rng.below(1 << 32) as u32 } else { rng.between(1, 70_000) as u32 };
    match rng.below(100) {
        0 => (CRD_RESET, rng.below(80) as u32, rng.below(4) as u32 | (rng.below(80) as u32) << 8),
        1..3 => (CRD_ENABLE, 0, 0),
        3..33 => (CRD_POST, size, 0),
        33..45 => (CRD_COMMIT, 0, 0),
        45..57 => (CRD_LANDED, 0, 0),
        57..67 => (CRD_LIST_TAKE, 0, 0),
        67..73 => (CRD_LIST_NEXT, 0, 0),
        73 => (CRD_VOID, landed.wrapping_add(rng.below(u64::from(announced.wrapping_sub(landed)) + 2) as u32), 0),
        74..78 => (CRD_BUILDER, posted, 0),
        78..82 => {
            let next = row.reader.peek(0).map_or(0, |(n, _)| n.wrapping_add(row.reader.count()));
            let first = next.wrapping_sub(rng.below(4) as u32).wrapping_add(rng.below(3) as u32);
            (CRD_LIST_BEGIN, first, rng.below(u64::from(MAX_LIST) + 2) as u32)
        }
        82..88 => (CRD_LIST_PUSH, size, 0),
        88..93 => (CRD_TAKE, rng.between(1, 100_000) as u32, 0),
        93 => (CRD_GIVE_UP, rng.below(20) as u32, 0),
        94..96 => (CRD_COUNT, 0, 0),
        96..99 => (CRD_PEEK, rng.below(4) as u32, 0),
        _ => (rng.below(256) as u32 & 0xf8 | 0x10, size, 0),
    }
}

#[test]
fn credit_engine_does_what_the_model_does() {
    let seed = seed(7);
    let mut bench = Bench::new(seed);
    let mut rng = Rng(seed);
    let qpns = [0, FIRST_QPN, FIRST_QPN + 1, 77, NUM_QP_ROWS - 1];
    let mut rows: Vec<CreditRow> = qpns.iter().map(|_| CreditRow::new()).collect();
    // as the card shows them: set when a row becomes ready, cleared when it is not any more
    let mut shown = vec![false; rows.len()];
    for step in 0..STEPS {
        // bursts on one QP, so that lists and FIFOs fill up
        let r = if step % 40 == 0 { rng.below(rows.len() as u64) as usize } else { step / 40 % rows.len() };
        let (op, arg0, arg1) = random_operation(&mut rng, &rows[r]);
        let expected = rows[r].execute(op, arg0, arg1);
        let got = bench.credit(op, qpns[r], arg0, arg1);
        assert_eq!(got, expected, "step {step}: operation {op} ({arg0:#x}, {arg1:#x}) on QP {}", qpns[r]);
        if rows[r].builder.report() {
            shown[r] = true;
        }
        shown[r] &= rows[r].builder.ready();
        if rng.chance(0.1) {
            let mut expected: Vec<u32> = qpns.iter().zip(&shown).filter(|(_, s)| **s).map(|(q, _)| *q).collect();
            let mut got = bench.ready_lists();
            while got.len() < expected.len() {
                let more = bench.ready_lists();
                if more.is_empty() {
                    break;
                }
                got.extend(more);
            }
            got.sort_unstable();
            expected.sort_unstable();
            assert_eq!(got, expected, "step {step}: QPs whose list is ready");
            shown.fill(false);
        }
    }
}

#[test]
fn cr_11_second_list_waits_for_first_buffer() {
    let mut bench = Bench::new(seed(8));
    let q = FIRST_QPN;
    bench.credit(CRD_RESET, q, MAX_LIST, 0);
    bench.credit(CRD_ENABLE, q, 0, 0);
    // the worked example, receiver's side
    for size in [3, 7] {
        bench.credit(CRD_POST, q, size, 0);
    }
    bench.credit(CRD_COMMIT, q, 0, 0);
    assert_eq!(bench.ready_lists(), [q]);
    assert_eq!(bench.credit(CRD_LIST_TAKE, q, 0, 0), [0, 0, 2]);
    assert_eq!([bench.credit(CRD_LIST_NEXT, q, 0, 0)[0], bench.credit(CRD_LIST_NEXT, q, 0, 0)[0]], [3, 7]);
    for size in [22, 44] {
        bench.credit(CRD_POST, q, size, 0);
        bench.credit(CRD_COMMIT, q, 0, 0);
    }
    assert_eq!(bench.ready_lists(), [], "no proof yet");
    assert_eq!(bench.credit(CRD_LIST_TAKE, q, 0, 0)[0], 1);
    bench.credit(CRD_LANDED, q, 0, 0);
    assert_eq!(bench.ready_lists(), [q], "the 3-buffer has been used");
    assert_eq!(bench.credit(CRD_LIST_TAKE, q, 0, 0), [0, 2, 2]);
    assert_eq!([bench.credit(CRD_LIST_NEXT, q, 0, 0)[0], bench.credit(CRD_LIST_NEXT, q, 0, 0)[0]], [22, 44]);
    assert_eq!(bench.counter(C_CREDITS_POSTED), 4);
    assert_eq!(bench.counter(C_LISTS_SENT), 2);
    assert_eq!(bench.counter(C_CREDITS_SENT), 4);
}

#[test]
fn operation_on_an_unknown_qpn_is_refused() {
    let mut bench = Bench::new(seed(9));
    for qpn in [NUM_QP_ROWS, 0x1000 + FIRST_QPN, 0xffff] {
        assert_eq!(bench.credit(CRD_POST, qpn, 100, 0)[0], 1);
        assert_eq!(bench.credit(CRD_LIST_BEGIN, qpn, 0, 1)[0], LIST_BAD);
        assert_eq!(bench.credit(CRD_TAKE, qpn, 1, 0)[0], 0);
        assert_eq!(bench.credit(CRD_LIST_TAKE, qpn, 0, 0)[0], 1);
    }
    assert_eq!(bench.credit(CRD_BUILDER, FIRST_QPN, 0, 0), [0, 0, 0]);
}
