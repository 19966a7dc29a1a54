// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is generated from the rows of `driver/abi` (`rows`): constants and packed structs of the SystemVerilog package, and
//! the page about them.

use std::collections::HashSet;
use std::fmt::Write;

use berth_abi::rows::{self, Record, Word, event, recv, send};
use berth_abi::{Field, engine};

use crate::r#gen::{NOTE, Table, cell, first_sentence};

/// A half of the fast path.
struct Half {
    /// In front of all its names in SystemVerilog.
    prefix: &'static str,
    title: &'static str,
    words: &'static [Word],
    commands: Table,
}

const HALVES: [Half; 2] = [
    Half { prefix: "SEND", title: "The half that sends", words: send::WORDS, commands: send::COMMANDS },
    Half { prefix: "RECV", title: "The half that receives", words: recv::WORDS, commands: recv::COMMANDS },
];

/// What engines say to each other, with the bits that it takes.
const ENGINES: &[(u32, Table)] = &[
    (2, engine::CHANGES),
    (2, engine::ATOMICS),
    (2, engine::ACCESSES),
    (2, engine::RIGHT_BITS),
    (2, engine::ASIDES),
    (2, engine::PIECES),
    (8, engine::BLOCKS),
    (2, engine::ACKS),
];

/// The name of a record's type in SystemVerilog.
pub fn type_name(prefix: &str, record: &Record) -> String {
    let prefix = prefix.to_lowercase();
    let between = if prefix.is_empty() { "" } else { "_" };
    format!("{prefix}{between}{}_t", snake(record.name))
}

/// The name of a Rust type as SystemVerilog has it.
pub fn snake(name: &str) -> String {
    let words = name.chars().flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain([c]));
    words.collect::<String>().to_lowercase().trim_start_matches('_').to_owned()
}

/// Declares `record` as a packed struct.
pub fn packed(out: &mut String, prefix: &str, record: &Record) {
    packed_fields(out, &type_name(prefix, record), record.bits, record.fields);
}

/// Declares a packed struct of so many bits with these fields, from the highest to the lowest. Bits that no field has are
/// `zero_HIGH_LOW`.
pub fn packed_fields(out: &mut String, type_name: &str, bits: u32, fields: &[Field]) {
    writeln!(out, "    typedef struct packed {{").unwrap();
    let mut above = bits;
    let gap = |out: &mut String, above: u32, high: u32| {
        if above > high + 1 {
            writeln!(out, "        logic [{}:0] zero_{}_{};", above - high - 2, above - 1, high + 1).unwrap();
        }
    };
    for &(name, high, low, text) in fields {
        assert!(high < above && low <= high, "{type_name}: {name} overlaps the field above it");
        gap(out, above, high);
        writeln!(out, "        logic [{}:0] {name}; // {}", high - low, first_sentence(text)).unwrap();
        above = low;
    }
    if above > 0 {
        writeln!(out, "        logic [{}:0] zero_{}_0;", above - 1, above - 1).unwrap();
    }
    writeln!(out, "    }} {type_name};").unwrap();
}

/// The SystemVerilog package.
pub fn package() -> String {
    let mut text = String::new();
    let out = &mut text;
    writeln!(out, "// SPDX-License-Identifier: Apache-2.0 OR MIT").unwrap();
    writeln!(out, "// {NOTE}").unwrap();
    writeln!(out, "// Rows of the fast path, by which firmware and RTL work on a QP together.").unwrap();
    writeln!(out, "\n/* verilator lint_off UNUSEDPARAM */").unwrap();
    writeln!(out, "package berth_row_pkg;").unwrap();
    let constant = |out: &mut String, bits: u32, name: &str, value: u64, text: &str| {
        let digits = bits.div_ceil(4) as usize;
        writeln!(
            out,
            "    localparam logic [{}:0] {name:<24} = {bits}'h{value:0digits$x}; // {}",
            bits - 1,
            first_sentence(text)
        )
        .unwrap();
    };
    let declare = |out: &mut String, prefix: &str, bits: u32, before: &str, words: &[Word]| {
        let mut known = HashSet::new();
        for word in words {
            if let Some(record) = word.record
                && known.insert(record.name)
            {
                packed(out, prefix, record);
            }
            constant(out, bits, &format!("{before}{}", word.name), word.number.into(), word.text);
        }
    };
    for half in &HALVES {
        writeln!(out, "\n    // Rows of the fast path: {}", half.title).unwrap();
        declare(out, half.prefix, 6, &format!("{}_", half.prefix), half.words);
        for &(name, value, text) in half.commands {
            constant(out, 8, &format!("{}_{name}", half.prefix), value, text);
        }
    }
    for &(name, value, text) in recv::STEPS {
        constant(out, 5, name, value, text);
    }
    for &(name, value, text) in recv::RIGHTS.iter().chain(recv::REFUSALS).chain(recv::TRIGGERS).chain(send::CARRIERS) {
        constant(out, 3, name, value, text);
    }
    writeln!(out, "\n    // Between engines").unwrap();
    for (bits, table) in ENGINES {
        for &(name, value, text) in *table {
            constant(out, *bits, name, value, text);
        }
    }
    writeln!(out, "\n    // Events of the fast path").unwrap();
    packed(out, "fast", &event::Event::RECORD);
    declare(out, "event", 8, "", event::CODES);
    for &(name, value, text) in event::FAULTS {
        constant(out, 4, name, value, text);
    }
    constant(out, 16, "LAYOUT_TAG", rows::LAYOUT_TAG.into(), "Tag of `SEND_LAYOUT`");
    constant(out, 16, "LAYOUT_NUMBER", rows::LAYOUT_NUMBER.into(), "The layout that is described here");
    writeln!(out, "\nendpackage").unwrap();
    writeln!(out, "/* verilator lint_on UNUSEDPARAM */").unwrap();
    text
}

/// The page about rows.
pub fn page() -> String {
    let mut out = String::new();
    writeln!(out, "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->").unwrap();
    writeln!(out, "<!-- {NOTE} -->").unwrap();
    writeln!(out, "# Rows of the fast path").unwrap();
    writeln!(
        out,
        "\nFirmware writes two rows of 64 words for each QP, and RTL works by them ([firmware](../internals/firmware.md)). \
         Word *w* of QP *q* is at `CPU_FAST` + ((half × 1024 + *q*) × 64 + *w*) × 4. Times count units of {} cycles.",
        rows::ROW_CLOCK
    )
    .unwrap();
    for (number, half) in HALVES.iter().enumerate() {
        writeln!(out, "\n## {} (half {number})\n\n| Word | Name | Meaning |\n|---:|---|---|", half.title).unwrap();
        words(&mut out, half.words);
        table(&mut out, "Command", half.commands);
    }
    writeln!(out, "\n## Steps of the receiving half's engines").unwrap();
    table(&mut out, "Step", recv::STEPS);
    table(&mut out, "Trigger", recv::TRIGGERS);
    table(&mut out, "Carrier", send::CARRIERS);
    writeln!(out, "\n## Keys").unwrap();
    table(&mut out, "Right", recv::RIGHTS);
    table(&mut out, "Answer", recv::REFUSALS);
    writeln!(
        out,
        "\n## Events\n\n`CPU_FAST_EVENT` and `CPU_FAST_ARG` are the halves of an event:{}\n\nBelow a code stand the fields \
         of its argument.\n\n| Code | Name | Meaning |\n|---:|---|---|",
        fields(Some(&event::Event::RECORD))
    )
    .unwrap();
    words(&mut out, event::CODES);
    table(&mut out, "Fault", event::FAULTS);
    out
}

/// Words as lines of a table.
fn words(out: &mut String, words: &[Word]) {
    for word in words {
        let number = match word.count {
            1 => word.number.to_string(),
            count => format!("{} to {}", word.number, word.number + count - 1),
        };
        let text = cell(word.text) + &fields(word.record);
        writeln!(out, "| {number} | `{}` | {text} |", word.name).unwrap();
    }
}

/// The fields of a record, behind what stands in a cell of a table.
pub fn fields(record: Option<&Record>) -> String {
    let mut text = String::new();
    for &(field, high, low, meaning) in record.map_or(&[][..], |record| record.fields) {
        let bits = if high == low { high.to_string() } else { format!("{high}:{low}") };
        write!(text, "<br>{bits} `{field}`: {}", cell(meaning)).unwrap();
    }
    text
}

fn table(out: &mut String, head: &str, rows: Table) {
    writeln!(out, "\n| {head} | Name | Meaning |\n|---:|---|---|").unwrap();
    for &(name, value, text) in rows {
        writeln!(out, "| {value} | `{name}` | {} |", cell(text)).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_overlap_and_lie_in_a_row() {
        for half in &HALVES {
            let mut used = HashSet::new();
            for word in half.words {
                for number in word.number..word.number + word.count {
                    assert!(number < 64 && used.insert(number), "{} word {number}", half.prefix);
                }
            }
        }
    }

    #[test]
    fn a_struct_has_the_bits_of_its_record() {
        for record in HALVES
            .iter()
            .flat_map(|half| half.words)
            .chain(event::CODES)
            .filter_map(|word| word.record)
            .chain([&event::Event::RECORD])
        {
            let mut text = String::new();
            packed(&mut text, "x", record);
            let bits: u32 = text
                .lines()
                .filter_map(|line| line.trim().strip_prefix("logic [")?.split(':').next()?.parse::<u32>().ok())
                .map(|high| high + 1)
                .sum();
            assert_eq!(bits, record.bits, "{text}");
        }
    }
}
