// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is generated from the messages of the rings (`message`, `ring`) for those that the RTL carries out or sends:
//! packed structs, and a part of the page about messages.

use std::fmt::Write;

use berth_abi::message::{self, Message};
use berth_abi::ring::{self, CMD_FIRST_FW};
use berth_abi::rows::Record;

use crate::r#gen::cell;
use crate::gen_rows::{fields, packed, packed_fields, snake};

/// What messages about pages consist of: records, and where they are.
const PAGES: [(&str, &Record); 3] = [
    ("0", &ring::Pages::RECORD),
    ("from 4 on, two each", &ring::InstalledPage::RECORD),
    ("from 1 on, half of one each", &ring::EvictedPage::RECORD),
];

/// Declares the messages that the RTL has to do with as packed structs, each up to its last word in use.
pub fn structs(out: &mut String) {
    for entry in message::COMMANDS.iter().chain(message::EVENTS).filter(|entry| entry.code < CMD_FIRST_FW) {
        let mut fields = vec![("code", 7, 0, "Opcode or kind")];
        fields.extend(entry.fields.iter().map(|&(name, word, low, kind, text)| {
            let at = 32 * word + low;
            (name, at + bits(entry, kind) - 1, at, text)
        }));
        fields.reverse();
        packed_fields(out, &format!("{}_t", snake(entry.name)), (fields[0].1 + 1).next_multiple_of(32), &fields);
    }
    for (_, record) in PAGES {
        packed(out, "", record);
    }
}

/// Bits of a field by its type.
fn bits(entry: &Message, kind: &str) -> u32 {
    match kind {
        "bool" => 1,
        "u8" | "u16" | "u32" | "u64" => kind[1..].parse().expect("digits"),
        _ => panic!("{} has a field of type {kind}", entry.name),
    }
}

/// The part about messages of several pages.
pub fn pages() -> String {
    let mut out = String::new();
    writeln!(
        out,
        "\n## Pages\n\n`CMD_PAGE_INSTALL` has the address space in word {}, the number of its first virtual page in words \
         {} and {}.\n\n| Words | Record |\n|---|---|",
        ring::INSTALL_ASID,
        ring::INSTALL_VPN,
        ring::INSTALL_VPN + 1
    )
    .unwrap();
    for (words, record) in PAGES {
        writeln!(out, "| {words} | {}{} |", cell(record.text), fields(Some(record))).unwrap();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_lies_where_its_record_says() {
        assert_eq!((ring::INSTALL_FIRST, ring::EVICT_FIRST), (4, 1));
        let mut entry = [0; ring::ENTRY_WORDS];
        for n in 0..2 {
            assert!(ring::install_add(&mut entry, (3, 0x5_6789_abcd + n), 0x1234, 0x2bcd_ef01_2345_6000, true));
        }
        let words = [2 * 16 * 8 + 1, 3, 0x6789_abcd, 5, 0x2345_6234, 0xebcd_ef01, 0x2345_6234, 0xebcd_ef01];
        assert_eq!(entry[..8], words);
        let mut entry = ring::evict_command(0x1abc);
        assert!(ring::evict_add(&mut entry, 5));
        assert_eq!(entry[..2], [2 * 16 * 8 + 3, 0x0005_1abc]);
        assert_eq!(ring::evict_answer(&entry, |index| index == 5)[1], 0x8005_1abc);
    }

    #[test]
    fn a_message_of_the_rtl_lies_where_it_is_encoded() {
        let mut text = String::new();
        structs(&mut text);
        let need = text.split("typedef struct packed").find(|part| part.contains("page_need_t")).expect("the event");
        let lines: Vec<_> = need.lines().filter_map(|line| line.trim().strip_prefix("logic ")).collect();
        let names: Vec<_> =
            lines.iter().map(|line| line.split("; //").next().expect("a field").trim_end_matches(';')).collect();
        let expected = [
            "[31:0] len",
            "[63:0] va",
            "[30:0] zero_127_97",
            "[0:0] write",
            "[31:0] asid",
            "[31:0] tag",
            "[23:0] zero_31_8",
            "[7:0] code",
        ];
        assert_eq!(names, expected);
    }
}
