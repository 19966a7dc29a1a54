// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are generated from `berth-abi`: the SystemVerilog package of the RTL and
//! the register documentation. The tables in `driver/abi` are the only source; the
//! generated files are in the repository so that RTL tools need no Rust, and CI fails
//! when they differ from what [`files`] renders.

use std::collections::HashMap;
use std::fmt::Write;

use crate::gen_rows::{fields, packed};
use berth_abi::{card, counters, cpu, host, message, raw, ring, status, wire, wqe};

/// A table as `berth-abi` declares it: (name, value, text).
pub type Table = &'static [(&'static str, u64, &'static str)];

/// How the documentation shows the values of a table.
#[derive(Clone, Copy)]
enum Show {
    /// As a byte offset.
    Offset,
    /// As a plain number.
    Number,
    /// As a mask or a large constant.
    Hex,
}

/// A table with its heading.
struct Section {
    title: &'static str,
    intro: &'static str,
    show: Show,
    table: Table,
}

/// All tables, in the order in which they appear in the generated files.
const SECTIONS: &[Section] = &[
    Section {
        title: "Identity and sizes",
        intro: "Fixed sizes of the card.",
        show: Show::Hex,
        table: card::CARD_TABLE,
    },
    Section {
        title: "BAR0: control registers",
        intro: "32-bit registers of the host; 8-byte accesses to two neighbours are legal.",
        show: Show::Offset,
        table: host::HOST_TABLE,
    },
    Section {
        title: "BAR2: doorbell page",
        intro: "One 4 KiB page per process; each doorbell is one 8-byte write.",
        show: Show::Offset,
        table: host::DOORBELL_TABLE,
    },
    Section {
        title: "Commands (host to card)",
        intro: "Opcodes in bits 7:0 of word 0 of a 64-byte entry.",
        show: Show::Number,
        table: ring::CMD_TABLE,
    },
    Section {
        title: "Events (card to host)",
        intro: "Kinds in bits 7:0 of word 0 of a 64-byte entry; bit 31 of the last word is the phase.",
        show: Show::Number,
        table: ring::EV_TABLE,
    },
    Section {
        title: "Firmware states and refusals",
        intro: "Values of `HOST_STATUS` and, for a refused image, of `HOST_FW_CODE`.",
        show: Show::Number,
        table: status::FW_TABLE,
    },
    Section {
        title: "Completion status",
        intro: "`status` of a completion.",
        show: Show::Number,
        table: status::WC_TABLE,
    },
    Section {
        title: "Command status",
        intro: "Status in `EV_CMD_DONE`.",
        show: Show::Number,
        table: status::CMD_STATUS_TABLE,
    },
    Section {
        title: "Reasons",
        intro: "Why a QP went into error or a connection ended.",
        show: Show::Number,
        table: status::REASON_TABLE,
    },
    Section {
        title: "Answers to page requests",
        intro: "Status in `CMD_PAGE_READY`.",
        show: Show::Number,
        table: status::PAGE_TABLE,
    },
    Section {
        title: "RTL counters",
        intro: "64 bits each, from `HOST_COUNTERS`; the value is the index.",
        show: Show::Number,
        table: counters::RTL_COUNTER_TABLE,
    },
    Section {
        title: "Firmware counters",
        intro: "64 bits each, from `HOST_STATS`; the value is the index.",
        show: Show::Number,
        table: counters::FW_COUNTER_TABLE,
    },
    Section {
        title: "Driver counters",
        intro: "Kept by the driver; the value is the index.",
        show: Show::Number,
        table: counters::DRV_COUNTER_TABLE,
    },
    Section {
        title: "Soft core: pending bits",
        intro: "Bits of `CPU_WAIT` and `CPU_PENDING`; the value is the bit number.",
        show: Show::Number,
        table: cpu::PENDING_TABLE,
    },
    Section {
        title: "Soft core: engine registers",
        intro: "Offsets from `CPU_REGS`; whole words only.",
        show: Show::Offset,
        table: cpu::CPU_TABLE,
    },
    Section {
        title: "Soft core: flags of a received frame",
        intro: "Bits of `CPU_RX_FLAGS`.",
        show: Show::Hex,
        table: cpu::RX_FLAG_TABLE,
    },
    Section {
        title: "Soft core: DMA status",
        intro: "Status in `CPU_DMA_DONE` and `CPU_TX_DONE`.",
        show: Show::Number,
        table: cpu::DMA_TABLE,
    },
    Section {
        title: "Soft core: translation answers",
        intro: "Kind in `CPU_XLT_RSP`.",
        show: Show::Number,
        table: cpu::XLT_TABLE,
    },
    Section {
        title: "Soft core: answers to a credit list",
        intro: "What the fast path's reader makes of it.",
        show: Show::Number,
        table: cpu::LIST_TABLE,
    },
    Section {
        title: "Raw queues: flags",
        intro: "Of a queue, in `CMD_RAW_CREATE` and `CMD_RAW_MODE`.",
        show: Show::Hex,
        table: raw::RAW_FLAG_TABLE,
    },
    Section {
        title: "Raw queues: filters",
        intro: "What a filter compares, in `CMD_RAW_FILTER`.",
        show: Show::Hex,
        table: raw::RAW_MATCH_TABLE,
    },
    Section {
        title: "Frames: opcodes",
        intro: "Of the base transport header (IBTA 9.2.1, table 38).",
        show: Show::Hex,
        table: wire::BTH_TABLE,
    },
    Section {
        title: "Frames: records",
        intro: "Types of the records of control messages and of datagrams with credit lists.",
        show: Show::Number,
        table: wire::REC_TABLE,
    },
];

/// Constants outside of the tables that RTL needs.
const EXTRA: Table = &[
    ("CPU_FAST", cpu::CPU_FAST as u64, " Bus address of the fast path's rows."),
    ("CPU_RAM", cpu::CPU_RAM as u64, " Bus address of the firmware RAM (cached)."),
    ("CPU_REGS", cpu::CPU_REGS as u64, " Bus address of the engine registers."),
    ("CPU_STATS", cpu::CPU_STATS as u64, " Bus address of the statistics RAM."),
    ("CPU_PKT", cpu::CPU_PKT as u64, " Bus address of the packet RAM."),
    ("CMD_PUSHES", host::CMD_PUSHES as u64, " Places for pushed commands."),
    ("STATS_BYTES", host::STATS_BYTES as u64, " Bytes of the statistics RAM."),
    ("ENTRY_BYTES", ring::ENTRY_BYTES as u64, " Bytes of an entry of the command or event ring."),
    ("EVENT_PHASE", ring::EVENT_PHASE as u64, " Word of an event whose bit 31 is the phase."),
    ("CMD_FIRST_FW", ring::CMD_FIRST_FW as u64, " First command opcode that firmware carries out."),
    ("INSTALL_PAGES", ring::INSTALL_PAGES as u64, " Most pages of a `CMD_PAGE_INSTALL`."),
    ("INSTALL_ASID", ring::INSTALL_ASID as u64, " Word of it with the address space."),
    ("INSTALL_VPN", ring::INSTALL_VPN as u64, " First of two words with the number of the first virtual page."),
    ("INSTALL_FIRST", ring::INSTALL_FIRST as u64, " First word with a page."),
    ("EVICT_PAGES", ring::EVICT_PAGES as u64, " Most pages of a `CMD_PAGE_EVICT`."),
    ("EVICT_FIRST", ring::EVICT_FIRST as u64, " First word of it, and of its answer, with pages."),
    ("CQE_BYTES", wqe::CQE_BYTES as u64, " Bytes of a completion."),
    ("OP_SEND", wqe::OP_SEND as u64, " Opcode of a send, in its queue element and its completion."),
    ("OP_RECV", wqe::OP_RECV as u64, " Opcode of a receive, likewise."),
    ("OP_WRITE", wqe::OP_WRITE as u64, " Opcode of an RDMA WRITE, likewise."),
    ("OP_READ", wqe::OP_READ as u64, " Opcode of an RDMA READ, likewise."),
    ("OP_NOP", wqe::OP_NOP as u64, " Opcode of an element that sends nothing, likewise."),
    ("OP_DELAY", wqe::OP_DELAY as u64, " Opcode of an element that holds those behind it for a time, likewise."),
    ("OP_BIND", wqe::OP_BIND as u64, " Opcode of an element that binds a key, likewise."),
    ("OP_CMP_SWAP", wqe::OP_CMP_SWAP as u64, " Opcode of a compare-and-swap, likewise."),
    ("OP_FETCH_ADD", wqe::OP_FETCH_ADD as u64, " Opcode of a fetch-and-add, likewise."),
    ("ATOMIC_BYTES", wqe::ATOMIC_BYTES as u64, " Bytes that an atomic changes."),
    ("SEND_PUSH", wqe::SEND_PUSH as u64, " Flag of a send's element: PUSH."),
    ("SEND_INLINE", wqe::SEND_INLINE as u64, " Flag of a send's element: its data stand in it."),
    (
        "SEND_IMMEDIATE",
        wqe::SEND_IMMEDIATE as u64,
        " Flag of a send's element: an immediate stands in front of the rest.",
    ),
    ("SEND_FENCE", wqe::SEND_FENCE as u64, " Flag of a send's element: READs before it are complete before it begins."),
    ("SEND_UNSIGNALLED", wqe::SEND_UNSIGNALLED as u64, " Flag of a send's element: no completion if it succeeds."),
    (
        "SEND_INVALIDATE",
        wqe::SEND_INVALIDATE as u64,
        " Flag of a send's element: a key that the peer is to invalidate stands where the immediate does.",
    ),
    ("CQE_PUSH", wqe::CQE_PUSH as u64, " Flag of a completion: PUSH."),
    ("CQE_IMMEDIATE", wqe::CQE_IMMEDIATE as u64, " Flag of a completion: `remaining` is the sender's."),
    ("CQE_INVALIDATED", wqe::CQE_INVALIDATED as u64, " Flag of a completion: `remaining` is a key that is dead."),
    ("MAX_INLINE", wqe::MAX_INLINE as u64, " Most bytes of data in an element."),
    ("SLOT_INLINE", wqe::SLOT_INLINE as u64, " Most bytes of data in an element that a doorbell brings."),
    ("MAX_SGE", wqe::MAX_SGE as u64, " Ranges of a queue element."),
    ("WQE_BYTES", wqe::WQE_BYTES as u64, " Bytes of a queue element."),
    ("RAW_SGES", raw::RAW_SGES as u64, " Ranges of an element of a raw queue."),
    ("RAW_WQE_BYTES", raw::RAW_WQE_BYTES as u64, " Bytes of an element of a raw queue."),
    ("RAW_FRAME_BYTES", raw::RAW_FRAME_BYTES as u64, " Bytes of its longest frame."),
    ("RAW_LEAST_BYTES", raw::RAW_LEAST_BYTES as u64, " Bytes of its shortest frame."),
    ("RAW_RECEIVE_BYTES", raw::RAW_RECEIVE_BYTES as u64, " Most bytes of a receive of a raw queue."),
    ("RAW_QPN", raw::RAW_QPN as u64, " Number of raw queue 0 in completions."),
    ("RAW_GO_CREATE", raw::RAW_GO_CREATE as u64, " Makes a raw queue."),
    ("RAW_GO_END", raw::RAW_GO_END as u64, " Ends it."),
    ("RAW_GO_MODE", raw::RAW_GO_MODE as u64, " Sets its flags."),
    ("RAW_GO_FILTER", raw::RAW_GO_FILTER as u64, " Sets a filter."),
    ("LIST_KEY", wire::LIST_KEY as u64, " Key of the window for credit lists."),
    ("LIST_SLOT", wire::LIST_SLOT as u64, " Bytes of it for each queue pair."),
    ("NUM_RTL_COUNTERS", counters::NUM_RTL_COUNTERS as u64, " RTL counters (see C_*)."),
];

/// Header of both files.
pub const NOTE: &str = "Generated from driver/abi by `cargo xtask gen`; do not edit.";

/// Renders all generated files: (path relative to the repository, content).
///
/// # Panics
/// When two tables declare the same name with different values: a SystemVerilog
/// package has only one name space.
#[must_use]
pub fn files() -> Vec<(&'static str, String)> {
    vec![
        ("hw-rtl/rtl/berth_regs_pkg.sv", package(&[])),
        ("hw-rtl/rtl/small/berth_regs_pkg.sv", package(card::SMALL_CARD)),
        ("hw-rtl/rtl/large/berth_regs_pkg.sv", package(card::LARGE_CARD)),
        ("hw-rtl/rtl/berth_row_pkg.sv", crate::gen_rows::package()),
        ("hw-rtl/rtl/berth_wqe_pkg.sv", crate::gen_wqe::package()),
        ("docs/reference/registers.md", registers()),
        ("docs/reference/messages.md", messages()),
        ("docs/reference/rows.md", crate::gen_rows::page()),
        ("docs/reference/elements.md", crate::gen_wqe::page()),
    ]
}

/// The SystemVerilog package, some of whose constants have another value than in the tables.
fn package(others: &[(&str, u64)]) -> String {
    // As `cpu::rx_slot`, `cpu::scratch` and `cpu::PKT_BYTES` have it, with these sizes.
    let size = |name: &str| {
        let full = card::CARD_TABLE.iter().find(|row| row.0 == name).expect("a size of the card");
        others.iter().find(|other| other.0 == name).map_or(full.1, |other| other.1)
    };
    let receive = size("TX_SLOTS") * size("SLOT_BYTES");
    let scratch = receive + size("RX_SLOTS") * size("SLOT_BYTES");
    let end = scratch + size("SCRATCH_SLOTS") * size("SCRATCH_BYTES");
    let packet_ram: [(&str, u64, &str); 3] = [
        ("PKT_RX_BASE", receive, "Offset of receive slot 0 in packet RAM."),
        ("PKT_SCRATCH_BASE", scratch, "Offset of scratch place 0 in packet RAM."),
        ("PKT_BYTES", end, "Bytes of packet RAM in use."),
    ];
    let mut out = String::new();
    let mut seen: HashMap<&str, u64> = HashMap::new();
    writeln!(out, "// SPDX-License-Identifier: Apache-2.0 OR MIT").unwrap();
    writeln!(out, "// {NOTE}").unwrap();
    writeln!(out, "// Registers, opcodes and sizes that the RTL shares with driver and firmware.").unwrap();
    writeln!(out, "\n/* verilator lint_off UNUSEDPARAM */").unwrap();
    writeln!(out, "package berth_regs_pkg;").unwrap();
    let mut emit = |out: &mut String, title: &str, table: &[(&'static str, u64, &str)]| {
        writeln!(out, "\n    // {title}").unwrap();
        for &(name, value, text) in table {
            let value = others.iter().find(|other| other.0 == name).map_or(value, |other| other.1);
            if let Some(old) = seen.insert(name, value) {
                assert_eq!(old, value, "{name} is declared twice in berth-abi");
                continue;
            }
            let value = u32::try_from(value).expect("constants have 32 bits");
            let comment = first_sentence(text);
            writeln!(out, "    localparam logic [31:0] {name:<24} = 32'h{value:08x}; // {comment}").unwrap();
        }
    };
    for section in SECTIONS {
        emit(&mut out, section.title, section.table);
    }
    writeln!(out, "\n    // Soft core: fields of engine registers").unwrap();
    for (_, record) in cpu::CPU_RECORDS {
        packed(&mut out, "cpu", record);
    }
    writeln!(
        out,
        "\n    // Messages of the rings: those that the RTL carries out or sends, up to their last word in use"
    )
    .unwrap();
    crate::gen_ring::structs(&mut out);
    emit(&mut out, "Layout beyond the tables", EXTRA);
    emit(&mut out, "Packet RAM", &packet_ram);
    writeln!(out, "\nendpackage").unwrap();
    writeln!(out, "/* verilator lint_on UNUSEDPARAM */").unwrap();
    out
}

/// The register documentation.
fn registers() -> String {
    let mut out = String::new();
    writeln!(out, "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->").unwrap();
    writeln!(out, "<!-- {NOTE} -->").unwrap();
    writeln!(out, "# Registers, rings and codes").unwrap();
    writeln!(out, "\nro: read-only, wo: write-only, rw: both. All values are little-endian.").unwrap();
    for section in SECTIONS {
        writeln!(out, "\n## {}\n\n{}\n", section.title, section.intro).unwrap();
        let head = match section.show {
            Show::Offset => "Offset",
            Show::Number | Show::Hex => "Value",
        };
        writeln!(out, "| {head} | Name | Meaning |\n|---:|---|---|").unwrap();
        for &(name, value, text) in section.table {
            let record = cpu::CPU_RECORDS.iter().find(|record| record.0 == name).map(|record| record.1);
            let text = cell(text) + &fields(record);
            match section.show {
                Show::Offset => writeln!(out, "| `{value:#05x}` | `{name}` | {text} |"),
                Show::Number => writeln!(out, "| {value} | `{name}` | {text} |"),
                Show::Hex => writeln!(out, "| `{value:#x}` | `{name}` | {text} |"),
            }
            .unwrap();
        }
    }
    out
}

/// The page about the messages of the rings.
fn messages() -> String {
    let mut out = String::new();
    writeln!(out, "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->").unwrap();
    writeln!(out, "<!-- {NOTE} -->").unwrap();
    writeln!(
        out,
        "# Messages of the rings\n\nWhere the fields of commands and events lie in their 16 words; their meaning is in \
         [registers.md](registers.md). Bits 7:0 of word 0 are the opcode or kind, word {} of a command its cookie. Numbers \
         of 64 bits have their low half first.",
        message::COOKIE
    )
    .unwrap();
    for (title, table, codes) in
        [("Commands", message::COMMANDS, ring::CMD_TABLE), ("Events", message::EVENTS, ring::EV_TABLE)]
    {
        writeln!(out, "\n## {title}\n\n| Message | Word | Field | Meaning |\n|---|---|---|---|").unwrap();
        for entry in table {
            let code = codes.iter().find(|row| row.1 == u64::from(entry.code)).map_or("?", |row| row.0);
            for (i, &(field, word, low, kind, text)) in entry.fields.iter().enumerate() {
                let name = if i == 0 { format!("`{code}`") } else { String::new() };
                let place = match kind {
                    "u8" => format!("{word} {}:{low}", low + 7),
                    "u16" => format!("{word} {}:{low}", low + 15),
                    "bool" => format!("{word} {low}"),
                    "u64" => format!("{word}, {}", word + 1),
                    "u32" => word.to_string(),
                    _ => format!("{word}…"),
                };
                writeln!(out, "| {name} | {place} | `{field}` | {} |", cell(text)).unwrap();
            }
        }
    }
    out + &crate::gen_ring::pages()
}

/// A text in a table of the documentation.
pub fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}

/// The text up to its first full stop, so that the package's lines stay short.
pub fn first_sentence(text: &str) -> &str {
    let text = text.trim();
    let end = text.match_indices(". ").map(|(at, _)| at);
    match end.into_iter().find(|&at| at > 0 && !text[..at].ends_with([' ', '.'])) {
        Some(at) => &text[..at],
        None => text.trim_end_matches('.'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_holds_every_constant_once() {
        let text = package(&[]);
        assert!(text.contains(&format!("PKT_BYTES                = 32'h{:08x}", cpu::PKT_BYTES)));
        for section in SECTIONS {
            for (name, _, _) in section.table {
                let line = format!("[31:0] {name} ");
                assert_eq!(text.matches(&line).count(), 1, "{name}");
            }
        }
    }
}
