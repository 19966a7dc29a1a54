// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An input: what an attacker on the wire, a process and its driver do, step by step. Every byte string is one, cut into
//! records of [`RECORD`] bytes; a step is a record, so that a change of a byte changes one step, and little of it.

use arbitrary::{Arbitrary, Result, Unstructured};
use berth_abi::status::{PAGE_FAULT, PAGE_OK, PAGE_OVER_BUDGET};
use berth_abi::wire::{BTH_ACKNOWLEDGE, BTH_SELECTIVE_ACKNOWLEDGE};
use berth_rtl_host::{PageAnswer, Rng};

/// Bytes of a step.
pub const RECORD: usize = 16;
/// What chooses an action goes from 0 to this.
const LAST_ACTION: u8 = 25;
/// Most steps of an input.
pub const MOST_STEPS: usize = 24;

/// What happens next, and the cycles that pass then.
#[derive(Clone, Debug)]
pub struct Step {
    pub action: Action,
    /// Cycles.
    pub pause: u64,
    /// Done to the frame of the action, if it has one.
    pub damage: Option<Damage>,
}

/// Whose QP a number names.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    Attacked,
    Good,
    /// There is none.
    Nobody,
}

#[derive(Clone, Debug)]
pub enum Action {
    /// A frame that breaks one rule: `Seen::act` from this seed.
    Rule(u64),
    /// What was said before: `Seen::repeat` from this seed.
    Repeat(u64),
    /// A frame of who knows addresses only, from this seed.
    Blind(u64),
    /// Data; PSN and credit count from those that are due.
    Data { opcode: u8, qpn: Target, psn: i16, credit: i8, index: u32, len: usize, solicited: bool },
    /// An acknowledgement; the PSN counts from that of the last one.
    Ack { opcode: u8, psn: i16, syndrome: u8, bits: u64 },
    /// A credit list; its first number counts from the one that is due.
    List { epoch: u32, first: i8, sizes: Vec<u32> },
    /// The frame that was on the wire so many frames ago, once more.
    Again(usize),
    /// The process posts a receive: offset in a page, and bytes of each part. `host` 1 is the victim's, 0 its peer's.
    Recv { host: usize, offset: u64, parts: Vec<u32> },
    /// It posts a send of these parts.
    Send { host: usize, parts: Vec<u32> },
    /// It writes to its doorbell page.
    Doorbell { offset: u32, qpn: Target, index: u16, bytes: u32 },
    /// How its page requests are answered from now on.
    Pages(Option<PageAnswer>),
    /// The driver wants pages back that are not in use.
    Evict,
    /// It takes the memory of the receive that was posted so many receives ago.
    Revoke(usize),
    /// The wire to the victim (1) or from it (0): per cent of frames lost, doubled, overtaken, damaged from now on.
    Wire { percent: [u8; 4], seed: u8 },
    /// Whether the MAC and the host take anything from the victim, from now on.
    Stall { tx: bool, writes: bool, msix: bool, dma: bool },
    /// The process destroys its QP.
    Destroy,
}

/// What is done to a frame that is ready to go.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    /// Bits of the byte there (modulo the length) flip, and the checksums are made right.
    Sealed(usize, u8),
    /// Bits flip.
    Raw(usize, u8),
    /// So many bytes are missing at its end.
    Cut(usize),
    /// So many are too many.
    Longer(usize),
    /// The MAC has seen an error in it.
    Flagged,
}

/// The steps of an input.
pub fn steps(input: &[u8]) -> Vec<Step> {
    let step = |record: &[u8; RECORD]| step(&mut Unstructured::new(record)).expect("data that ends is read as zeros");
    input.as_chunks().0.iter().take(MOST_STEPS).map(step).collect()
}

fn step(u: &mut Unstructured) -> Result<Step> {
    // The upper half of the byte is an exponent: up to some thousand cycles.
    let pause: u8 = u.arbitrary()?;
    let pause = u64::from(pause & 0xf) << ((pause >> 4) * 5 / 8);
    let (how, at, bits) = (u.int_in_range(0..=9)?, usize::from(u16::arbitrary(u)?), u8::arbitrary(u)?);
    let damage = match how {
        0 | 1 => Some(Damage::Sealed(at, bits)),
        2 => Some(Damage::Raw(at, bits)),
        3 => Some(Damage::Cut(at)),
        4 => Some(Damage::Longer(at % 600)),
        5 => Some(Damage::Flagged),
        _ => None,
    };
    Ok(Step { action: action(u)?, pause, damage })
}

fn target(u: &mut Unstructured) -> Result<Target> {
    u.choose(&[Target::Attacked, Target::Attacked, Target::Attacked, Target::Good, Target::Nobody]).copied()
}

/// A number: mostly 0, often a small one.
fn near(u: &mut Unstructured) -> Result<i16> {
    Ok(match u8::arbitrary(u)? {
        0..0x80 => 0,
        small @ 0x80..0xf0 => i16::from(small) - 0xb8,
        0xf0.. => u.arbitrary()?,
    })
}

fn lengths(u: &mut Unstructured) -> Result<Vec<u32>> {
    let count = *u.choose(&[1, 1, 2, 4])?;
    (0..count)
        .map(|_| {
            let size: u32 = *u.choose(&[1, 4, 64, 100, 1000, 4096, 5000, 12_288])?;
            Ok((size + u.int_in_range(0..=7)?).max(4) - 3)
        })
        .collect()
}

fn action(u: &mut Unstructured) -> Result<Action> {
    Ok(match u.int_in_range(0..=LAST_ACTION)? {
        0 | 1 => Action::Rule(u.arbitrary::<u16>()?.into()),
        2 => Action::Repeat(u.arbitrary::<u16>()?.into()),
        3 => Action::Blind(u.arbitrary::<u16>()?.into()),
        4..=7 => Action::Data {
            opcode: *u.choose(&[0x05, 0x05, 0x00, 0x01, 0x03, 0x04, 0x02, 0x06])?,
            psn: near(u)?,
            credit: near(u)? as i8,
            index: *u.choose(&[0, 0, 1, 2, 3, 4, 0xff_ffff, 0x1_0000])?,
            len: usize::from(*u.choose(&[0u16, 1, 4, 60, 256, 1020, 4096, 4100])?) + u.int_in_range(0..=3)?,
            solicited: u.arbitrary()?,
            qpn: target(u)?,
        },
        8..=10 => Action::Ack {
            opcode: *u.choose(&[BTH_ACKNOWLEDGE, BTH_SELECTIVE_ACKNOWLEDGE])?,
            psn: near(u)?,
            syndrome: *u.choose(&[0x1f, 0x1f, 0x00, 0x20, 0x2e, 0x60, 0x61, 0x64, 0x40, 0x7f])?,
            bits: u.arbitrary()?,
        },
        11 | 12 => {
            let epoch = u.choose(&[0, 0, 0, 1])?;
            let (first, count) = (near(u)? as i8, *u.choose(&[1, 2, 3, 0, 8, 32, 60, 64])?);
            let size = *u.choose(&[4096u32, 1, 100, 0, 0x7fff_ffff, u32::MAX])?;
            Action::List { epoch: *epoch, first, sizes: vec![size; count] }
        }
        13 => Action::Again(usize::from(u.arbitrary::<u8>()?)),
        14 | 15 => Action::Recv {
            host: usize::from(u.int_in_range(0..=3)? > 0),
            offset: u64::from(u.arbitrary::<u16>()?) % 4096,
            parts: lengths(u)?,
        },
        16 | 17 => Action::Send { host: u.int_in_range(0..=1)?, parts: lengths(u)? },
        18 => Action::Doorbell {
            offset: u.int_in_range(0..=7)? * 8,
            qpn: target(u)?,
            index: near(u)? as u16,
            bytes: u.arbitrary()?,
        },
        19 => Action::Pages(*u.choose(&[
            None,
            Some(PageAnswer::Late(20_000)),
            Some(PageAnswer::Never),
            Some(PageAnswer::Lie(PAGE_FAULT)),
            Some(PageAnswer::Lie(PAGE_OVER_BUDGET)),
            Some(PageAnswer::Lie(PAGE_OK)),
            Some(PageAnswer::Lie(77)),
        ])?),
        20 => Action::Evict,
        21 => Action::Revoke(usize::from(u.arbitrary::<u8>()?)),
        22 | 23 => {
            let mut each = || u.choose(&[0, 0, 0, 20]).copied();
            Action::Wire { percent: [each()?, each()?, each()?, each()?], seed: u.arbitrary()? }
        }
        24 => {
            let bits = u8::arbitrary(u)?;
            let bit = |n: u8| bits >> n & 3 == 3;
            Action::Stall { tx: bit(0), writes: bit(2), msix: bit(4), dma: bit(6) }
        }
        _ => match u.int_in_range(0..=3)? {
            0 => Action::Destroy,
            _ => Action::Pages(None),
        },
    })
}

/// Each action by itself, and twice behind a receive: where a hunt begins.
pub fn plain() -> impl Iterator<Item = Vec<u8>> {
    const RECV: u8 = 14;
    let record = |action| [&[0x80, 9, 0, 0, 0, action, 1][..], &[0; RECORD - 7]].concat();
    (0..=LAST_ACTION).flat_map(move |a| [record(a), [RECV, a, a].map(record).concat()])
}

/// Changes an input as AFL does: a few changes of bytes, of steps, and parts of `other`.
pub fn mutate(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
    /// Where a record of so many begins.
    fn record(rng: &mut Rng, len: usize) -> usize {
        rng.below((len / RECORD).max(1) as u64) as usize * RECORD
    }
    for _ in 0..1 << rng.below(4) {
        let len = input.len();
        if len == 0 {
            input.extend(rng.bytes(RECORD));
            continue;
        }
        let at = rng.below(len as u64) as usize;
        match rng.below(12) {
            0..=2 => input[at] ^= 1 << rng.below(8),
            3 | 4 => input[at] = rng.draw() as u8,
            5 => input[at] = input[at].wrapping_add(rng.between(1, 4) as u8).wrapping_sub(2),
            6 => {
                let fresh = rng.bytes(RECORD);
                let at = record(rng, len + RECORD);
                input.splice(at..at, fresh);
            }
            7 => {
                let at = record(rng, len);
                input.drain(at..at + RECORD);
            }
            8 => {
                let (from, to) = (record(rng, len), record(rng, len + RECORD));
                let copy = input[from..from + RECORD].to_vec();
                input.splice(to..to, copy);
            }
            9 => {
                let (one, two) = (record(rng, len), record(rng, len));
                for i in 0..RECORD {
                    input.swap(one + i, two + i);
                }
            }
            _ if other.is_empty() => {}
            10 => {
                let from = record(rng, other.len());
                let some = (rng.between(1, 4) as usize * RECORD).min(other.len() - from);
                let at = record(rng, len + RECORD);
                input.splice(at..at, other[from..from + some].iter().copied());
            }
            _ => {
                input.truncate(record(rng, len + RECORD));
                input.extend_from_slice(&other[record(rng, other.len())..]);
            }
        }
        input.truncate(MOST_STEPS * RECORD);
    }
}

/// The inputs of a file: length (32 bits, little-endian) and bytes of each.
pub fn unpack(mut file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    while !file.is_empty() {
        let (len, rest) = file.split_first_chunk()?;
        let (input, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        inputs.push(input.to_vec());
        file = rest;
    }
    Some(inputs)
}

/// The file of these inputs.
pub fn pack<'a>(inputs: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let entry = |input: &'a Vec<u8>| [&(input.len() as u32).to_le_bytes()[..], input].concat();
    inputs.into_iter().flat_map(entry).collect()
}
