// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is generated from the queue elements of `driver/abi` (`wqe`, `raw`): packed structs of a SystemVerilog package,
//! and the page about them.

use std::fmt::Write;

use berth_abi::rows::Record;
use berth_abi::{raw, wqe};

use crate::r#gen::{NOTE, cell, first_sentence};
use crate::gen_rows::type_name;

/// The field that has several [`wqe::Sge`].
const SGES: &str = "sge";

/// The elements, with a title for the page.
const ELEMENTS: [(&str, &Record); 4] = [
    ("Ranges", &wqe::Sge::RECORD),
    ("Send and receive queues", &wqe::Wqe::RECORD),
    ("Completion queues", &wqe::Cqe::RECORD),
    ("Raw queues", &raw::RawWqe::RECORD),
];

/// Declares an element as a packed struct, or what of it lies before its SGEs.
fn packed(out: &mut String, name: &str, record: &Record, whole: bool) {
    writeln!(out, "\n    // {}", first_sentence(record.text)).unwrap();
    writeln!(out, "    typedef struct packed {{").unwrap();
    for &(field, high, low, text) in record.fields.iter().rev() {
        let bits = high - low + 1;
        if field != SGES {
            writeln!(out, "        logic [{}:0] {field}; // {}", bits - 1, first_sentence(text)).unwrap();
        } else if whole {
            for n in (0..bits / wqe::Sge::RECORD.bits).rev() {
                writeln!(out, "        {} {SGES}_{n};", type_name("", &wqe::Sge::RECORD)).unwrap();
            }
        }
    }
    writeln!(out, "    }} {name};").unwrap();
}

/// The SystemVerilog package.
pub fn package() -> String {
    let mut out = String::new();
    writeln!(out, "// SPDX-License-Identifier: Apache-2.0 OR MIT").unwrap();
    writeln!(out, "// {NOTE}").unwrap();
    writeln!(out, "// Queue elements as they lie in memory, the first byte in the lowest bits.").unwrap();
    writeln!(out, "\npackage berth_wqe_pkg;").unwrap();
    for (_, record) in ELEMENTS {
        let name = type_name("", record);
        // A queue element is taken line by line.
        match record.bits == wqe::Wqe::RECORD.bits {
            true => packed(&mut out, &name.replace("_t", "_header_t"), record, false),
            false => packed(&mut out, &name, record, true),
        }
    }
    writeln!(out, "\nendpackage").unwrap();
    out
}

/// The page about queue elements.
pub fn page() -> String {
    let mut out = String::new();
    writeln!(out, "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->").unwrap();
    writeln!(out, "<!-- {NOTE} -->").unwrap();
    writeln!(out, "# Queue elements\n\nNumbers are little-endian; codes are in [registers.md](registers.md).").unwrap();
    for (title, record) in ELEMENTS {
        writeln!(out, "\n## {title}: `{}`\n\n{}\n", record.name, record.text.trim()).unwrap();
        writeln!(out, "| Byte | Field | Bytes | Meaning |\n|---:|---|---:|---|").unwrap();
        for &(field, high, low, text) in record.fields {
            writeln!(out, "| {} | `{field}` | {} | {} |", low / 8, (high - low + 1) / 8, cell(text)).unwrap();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_no_padding() {
        for (_, record) in ELEMENTS {
            let end = record.fields.iter().fold(0, |end, &(name, high, low, _)| {
                assert_eq!(low, end, "{}.{name}", record.name);
                high + 1
            });
            assert_eq!(end, record.bits);
        }
        assert_eq!(ELEMENTS.map(|e| e.1.bits / 8), [16, wqe::WQE_BYTES, wqe::CQE_BYTES, raw::RAW_WQE_BYTES]);
    }

    /// A field of some words.
    fn field(words: &[u64], record: &Record, name: &str) -> u64 {
        let &(_, high, low, _) = record.fields.iter().find(|field| field.0 == name).expect("a field");
        words[low as usize / 64] >> (low % 64) & (u64::MAX >> (63 + low - high))
    }

    #[test]
    fn words_of_elements_are_their_bytes() {
        let sge = wqe::Sge { va: 6, len: 7, reserved: 8 };
        let element = wqe::Wqe { opcode: 1, flags: 2, num_sge: 3, length: 4, wr_id: 5, sge: [sge; wqe::MAX_SGE] };
        let frame = raw::RawWqe { opcode: 1, flags: 2, num_sge: 3, length: 4, wr_id: 5, sge: [sge; raw::RAW_SGES] };
        for (words, record) in [(&element.words()[..], &wqe::Wqe::RECORD), (&frame.words()[..], &raw::RawWqe::RECORD)] {
            for (name, value) in [("opcode", 1), ("flags", 2), ("num_sge", 3), ("length", 4), ("wr_id", 5)] {
                assert_eq!(field(words, record, name), value, "{} {name}", record.name);
            }
            for line in words[2..].chunks(2) {
                for (name, value) in [("va", 6), ("len", 7), ("reserved", 8)] {
                    assert_eq!(field(line, &wqe::Sge::RECORD, name), value, "{} {name}", record.name);
                }
            }
        }
        let words: [u32; 8] = std::array::from_fn(|n| 0x0101_0101 * n as u32 + 0x0302_0100);
        let longs: Vec<u64> = words.chunks(2).map(|pair| berth_abi::wide(pair[0], pair[1])).collect();
        let wqe::Cqe { wr_id, byte_len, qpn, status, opcode, flags, remaining, credit, phase } =
            wqe::Cqe::from_words(&words);
        for (name, value) in [
            ("wr_id", wr_id),
            ("byte_len", byte_len.into()),
            ("qpn", qpn.into()),
            ("status", status.into()),
            ("opcode", opcode.into()),
            ("flags", flags.into()),
            ("remaining", remaining.into()),
            ("credit", credit.into()),
            ("phase", phase.into()),
        ] {
            assert_eq!(field(&longs, &wqe::Cqe::RECORD, name), value, "{name}");
        }
    }
}
