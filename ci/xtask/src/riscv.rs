// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where RV32IM code goes: jumps, calls, and addresses that it puts together. All instructions have 4 bytes.

use std::collections::{BTreeMap, BTreeSet};

/// A jump, branch or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Where it stands.
    pub at: u64,
    /// Where it goes; `None`: where a register says.
    pub to: Option<u64>,
    /// A call: the way back is kept.
    pub call: bool,
}

/// What a piece of code does with addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Jumps, branches and calls but returns.
    pub jumps: Vec<Jump>,
    /// Every constant that may be put together from an upper part and a lower part, in whatever order
    /// the code runs: more than there really are, and no fewer.
    pub constants: BTreeSet<u32>,
}

const RA: u32 = 1;
const JAL: u32 = 0x6f;
const JALR: u32 = 0x67;
const BRANCH: u32 = 0x63;
const AUIPC: u32 = 0x17;
const LUI: u32 = 0x37;
const OP_IMM: u32 = 0x13;
const OP: u32 = 0x33;
const LOAD: u32 = 0x03;
const STORE: u32 = 0x23;

const fn opcode(word: u32) -> u32 {
    word & 0x7f
}

const fn rd(word: u32) -> u32 {
    word >> 7 & 31
}

const fn rs1(word: u32) -> u32 {
    word >> 15 & 31
}

/// The 12-bit immediate of loads, JALR and ADDI.
const fn low(word: u32) -> u32 {
    ((word as i32) >> 20) as u32
}

/// The instructions of `code`.
fn words(code: &[u8]) -> Vec<u32> {
    code.as_chunks::<4>().0.iter().map(|c| u32::from_le_bytes(*c)).collect()
}

/// Looks through one function, whose code lies at `base`. `table(address)`: a table of places in this function, which
/// is what a `match` becomes, lies there.
pub fn flow(code: &[u8], base: u64, table: impl Fn(u32) -> bool) -> Flow {
    let words = words(code);
    let mut flow = Flow { constants: constants(&words, base), ..Flow::default() };
    let tables = flow.constants.iter().any(|at| table(*at));
    for (i, &word) in words.iter().enumerate() {
        let at = base + 4 * i as u64;
        let pc = at as u32;
        let to = match opcode(word) {
            JAL => {
                let sign = ((word as i32) >> 31 << 20) as u32;
                Some(pc.wrapping_add(sign | word & 0xf_f000 | word >> 9 & 0x800 | word >> 20 & 0x7fe))
            }
            BRANCH => {
                let sign = ((word as i32) >> 31 << 12) as u32;
                Some(pc.wrapping_add(sign | word << 4 & 0x800 | word >> 20 & 0x7e0 | word >> 7 & 0x1e))
            }
            JALR if rd(word) == 0 && rs1(word) == RA => continue,
            JALR => match i.checked_sub(1).map(|i| words[i]) {
                // The upper part of the place stands right before.
                Some(before) if opcode(before) == AUIPC && rd(before) == rs1(word) => {
                    Some((pc - 4).wrapping_add(before & 0xffff_f000).wrapping_add(low(word)))
                }
                _ if rd(word) == 0 && tables && through_index(&words[..i], rs1(word)) => continue,
                _ => None,
            },
            _ => continue,
        };
        let call = opcode(word) != BRANCH && rd(word) != 0;
        flow.jumps.push(Jump { at, to: to.map(u64::from), call });
    }
    flow
}

/// The place in `register` was loaded from a table with an index: from an address that is a sum of two registers.
fn through_index(before: &[u32], register: u32) -> bool {
    let writes = |word: u32, register| rd(word) == register && !matches!(opcode(word), BRANCH | STORE);
    let Some(at) = before.iter().rposition(|word| writes(*word, register)) else {
        return false;
    };
    let load = before[at];
    let sum = before[..at].iter().rfind(|word| writes(**word, rs1(load)));
    // ADD, not SUB or a multiplication.
    opcode(load) == LOAD && sum.is_some_and(|word| opcode(*word) == OP && word >> 25 == 0 && word >> 12 & 7 == 0)
}

fn constants(words: &[u32], base: u64) -> BTreeSet<u32> {
    // Upper parts by register; the zero register has 0.
    let mut upper: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::from([(0, BTreeSet::from([0]))]);
    for (i, &word) in words.iter().enumerate() {
        let value = match opcode(word) {
            LUI => word & 0xffff_f000,
            AUIPC => (base as u32).wrapping_add(4 * i as u32).wrapping_add(word & 0xffff_f000),
            _ => continue,
        };
        upper.entry(rd(word)).or_default().insert(value);
    }
    let mut all: BTreeSet<u32> = upper.values().flatten().copied().collect();
    for word in words.iter().filter(|word| opcode(**word) == OP_IMM && **word >> 12 & 7 == 0) {
        all.extend(upper.get(&rs1(*word)).into_iter().flatten().map(|upper| upper.wrapping_add(low(*word))));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn jumps(words: &[u32], table: bool) -> Vec<(u64, Option<u64>)> {
        flow(&code(words), 0x100, |_| table).jumps.iter().map(|j| (j.at, j.to)).collect()
    }

    #[test]
    fn jumps_branches_and_calls_are_decoded() {
        // jal ra, +8; j -4; auipc ra, 1 and jalr ra, -4(ra); auipc t1, 0 and jr 8(t1).
        let words = [0x0080_00ef, 0xffdf_f06f, 0x0000_1097, 0xffc0_80e7, 0x0000_0317, 0x0083_0067];
        let to = [(0x100, 0x108), (0x104, 0x100), (0x10c, 0x1104), (0x114, 0x118)].map(|(at, to)| (at, Some(to)));
        assert_eq!(jumps(&words, false), to);
        let calls: Vec<bool> = flow(&code(&words), 0x100, |_| false).jumps.iter().map(|j| j.call).collect();
        assert_eq!(calls, [true, false, true, false]);
        // beq a0, a1, +16; bne a0, a1, -8; ret.
        let words = [0x00b5_0863, 0xfeb5_1ce3, 0x0000_8067];
        assert_eq!(jumps(&words, false), [(0x100, Some(0x110)), (0x104, Some(0xfc))]);
    }

    #[test]
    fn a_call_through_a_register_goes_anywhere_but_a_switch_does_not() {
        // lw a5, 12(a0); jalr a5: a method of a trait object.
        assert_eq!(jumps(&[0x00c5_2783, 0x0007_80e7], true), [(0x104, None)]);
        // The same as a tail call.
        assert_eq!(jumps(&[0x00c5_2783, 0x0007_8067], true), [(0x104, None)]);
        // lui a1, 1; add a0, a0, a1; lw a0, 0(a0); jr a0: through a table at 0x1000.
        let switch = [0x0000_15b7, 0x00b5_0533, 0x0005_2503, 0x0005_0067];
        assert_eq!(jumps(&switch, true), []);
        assert_eq!(jumps(&switch, false), [(0x10c, None)]);
        // auipc over another register.
        assert_eq!(jumps(&[0x0000_0317, 0x0000_80e7], false), [(0x104, None)]);
    }

    #[test]
    fn constants_are_put_together_whatever_lies_between() {
        // lui a0, 2; nop; addi a1, a0, -16; auipc a2, 0; addi a2, a2, 4; li a3, 7.
        let words = [0x0000_2537, 0x0000_0013, 0xff05_0593, 0x0000_0617, 0x0046_0613, 0x0070_0693];
        let found = constants(&words, 0x100);
        for wanted in [0x1ff0, 0x110, 7] {
            assert!(found.contains(&wanted), "{wanted:x} in {found:x?}");
        }
    }
}
