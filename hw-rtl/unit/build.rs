// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verilates single modules of hw-rtl/rtl at each width, and writes the C++ that makes their ports reachable by name.
//!
//! A module is built when its file exists. `BERTH_UNITS` (names, with commas) builds only some, for work on one of them;
//! `BERTH_UNIT_WIDTHS` likewise. `BERTH_UNIT_VERILATOR` (with spaces) are further arguments of Verilator.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../kept.rs"]
mod kept;
#[path = "../side_by_side.rs"]
mod side_by_side;
use kept::output;
use side_by_side::side_by_side;

/// The modules that have benches.
const UNITS: &[&str] = &[
    "berth_dma_wr",
    "berth_fp",
    "berth_fp_builder",
    "berth_fp_cut",
    "berth_fp_frame_in",
    "berth_fp_grant",
    "berth_fp_keys",
    "berth_fp_rx",
    "berth_fp_tx",
    "berth_mac_rx",
    "berth_raw",
    "berth_xlt",
];

/// The package that all others build on.
const REGISTERS: &str = "rtl/berth_regs_pkg.sv";

/// One of them once more with as many QPs as there may be, at one width.
const LARGE: (&str, &str) = ("berth_fp_1024", "-GQPS=1024");

fn main() {
    if env::var_os("CARGO_FEATURE_FASTPATH").is_none() {
        return;
    }
    if let Err(message) = build() {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

/// One module at one width.
struct Unit {
    name: &'static str,
    module: &'static str,
    width: u32,
    prefix: String,
    folder: PathBuf,
    /// In that folder.
    object: String,
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(variable("OUT_DIR")?);
    for name in ["BERTH_UNITS", "BERTH_UNIT_WIDTHS", "BERTH_UNIT_VERILATOR", "CXX"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for path in ["build.rs", "../kept.rs", "../side_by_side.rs", "../sources.sh", "../rtl"] {
        println!("cargo::rerun-if-changed={path}");
    }
    // Where the sources are named by relative paths, the C++ of them does not say which checkout it is of.
    env::set_current_dir("..").map_err(|e| format!("hw-rtl: {e}"))?;
    let list = output(Command::new("sh").arg("sources.sh"))?;
    let sources: Vec<PathBuf> = list.lines().map(PathBuf::from).collect();
    let wanted = env::var("BERTH_UNITS").ok().filter(|list| !list.is_empty());
    let widths = match env::var("BERTH_UNIT_WIDTHS").ok().filter(|list| !list.is_empty()) {
        Some(list) => list
            .split(',')
            .map(|w| w.trim().parse().map_err(|e| format!("BERTH_UNIT_WIDTHS: {w}: {e}")))
            .collect::<Result<Vec<u32>, _>>()?,
        None if env::var_os("CARGO_FEATURE_WIDTHS").is_some() => vec![64, 128, 256, 512],
        None => vec![64],
    };
    let cxx = env::var("CXX").ok().filter(|c| !c.is_empty());
    let cxx = cxx.or_else(|| ["clang++", "g++"].into_iter().find(|c| works(c)).map(str::to_string));
    let cxx = cxx.ok_or("no C++ compiler found; the sysroot of `cargo xtask` has one")?;
    let root = output(Command::new("verilator").args(["--getenv", "VERILATOR_ROOT"]))?;
    let include = PathBuf::from(root.trim()).join("include");

    let mut units = Vec::new();
    for name in UNITS.iter().copied().chain([LARGE.0]) {
        let module = name.strip_suffix("_1024").unwrap_or(name);
        let asked = wanted.as_ref().map(|list| list.split(',').any(|n| n.trim() == name));
        if asked == Some(false) || (asked.is_none() && source_of(module, &sources).is_none()) {
            continue;
        }
        for &width in widths.iter().take(if name == LARGE.0 { 1 } else { widths.len() }) {
            let prefix = format!("V{name}_{width}");
            let unit =
                Unit { name, module, width, folder: out.join(&prefix), object: format!("{prefix}_ports.o"), prefix };
            units.push(unit);
        }
    }
    let records = records(&sources)?;
    let units = side_by_side(units, |unit| {
        unit.verilate(&sources)?;
        let text = source_of(unit.module, &sources).map(fs::read_to_string);
        let text = text.transpose().map_err(|e| format!("{}: {e}", unit.module))?.unwrap_or_default();
        unit.compile(&include, &cxx, &text, &records)?;
        Ok(unit)
    })?;
    if units.is_empty() {
        return Err(format!("there is nothing to build: BERTH_UNITS names none of {}", UNITS.join(", ")));
    }

    fs::write(out.join("units.rs"), table(&units)).map_err(|e| e.to_string())?;
    let library = out.join("libberth_units.a");
    let _ = fs::remove_file(&library);
    output(Command::new("ar").arg("crs").arg(&library).args(units.iter().map(|u| u.folder.join(&u.object))))?;
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=berth_units");
    for unit in &units {
        println!("cargo::rustc-link-search=native={}", unit.folder.display());
        println!("cargo::rustc-link-lib=static={}", unit.prefix);
    }
    println!("cargo::rustc-link-lib=static=verilated");
    println!("cargo::rustc-link-lib=dylib=stdc++");
    if tracing() {
        println!("cargo::rustc-link-lib=dylib=z");
    }
    Ok(())
}

/// Whether waveforms are wanted.
fn tracing() -> bool {
    env::var_os("CARGO_FEATURE_TRACE").is_some()
}

impl Unit {
    /// Makes the model's C++.
    fn verilate(&self, sources: &[PathBuf]) -> Result<(), String> {
        let mut verilator = Command::new("verilator");
        verilator
            .args(["--cc", "--prefix", &self.prefix, "--top-module", self.module])
            // One thread reads the RTL: Verilator 5 before its issue 8441 may crash with more.
            .args(["--verilate-jobs", "1"])
            // cargo knows what the C++ is made of; make, which runs elsewhere, would not find it.
            .arg("--no-MMD")
            // What nothing resets begins with anything: see `make`.
            .args(["-O3", "--x-assign", "fast", "--x-initial", "unique", "-Wall"])
            // A port may have a name that means something in C++.
            .arg("-Wno-SYMRSVDWORD")
            .args(["-CFLAGS", "-fPIC"])
            .arg("--Mdir")
            .arg(&self.folder);
        for folder in sources.iter().filter_map(|source| source.parent()).collect::<BTreeSet<_>>() {
            verilator.arg("-y").arg(folder);
        }
        let source = source_of(self.module, sources).ok_or_else(|| format!("hw-rtl/rtl: no {}", self.module))?;
        let text = fs::read_to_string(source).map_err(|e| format!("{}: {e}", source.display()))?;
        if text.contains("DATA_W") {
            verilator.arg(format!("-GDATA_W={}", self.width));
        }
        if self.name == LARGE.0 {
            verilator.arg(LARGE.1);
        }
        if tracing() {
            verilator.arg("--trace-fst");
        }
        if env::var_os("CARGO_FEATURE_ASSERT").is_some() {
            verilator.arg("--assert");
        }
        verilator.args(env::var("BERTH_UNIT_VERILATOR").unwrap_or_default().split_whitespace());
        let packages = sources.iter().filter(|source| source.to_string_lossy().ends_with("_pkg.sv"));
        verilator.arg(REGISTERS).args(packages).arg(source);
        // of what was there before nothing would be used
        let _ = fs::remove_dir_all(&self.folder);
        output(&mut verilator).map(drop)
    }

    /// Writes the table of ports, and compiles it and the model.
    fn compile(&self, include: &Path, cxx: &str, module: &str, records: &Records) -> Result<(), String> {
        let header = self.folder.join(&self.prefix).with_extension("h");
        let header = fs::read_to_string(&header).map_err(|e| format!("{}: {e}", header.display()))?;
        let source = format!("{}_ports.cpp", self.prefix);
        let ports = with_fields(ports(&header), module, records)?;
        fs::write(self.folder.join(&source), ports_source(&self.prefix, &ports)).map_err(|e| e.to_string())?;
        let mut make = Command::new("make");
        make.args(["-f", &format!("{}.mk", self.prefix), "OPT_FAST=-O2", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2"]);
        make.arg(format!("CXX={cxx}")).arg(format!("LINK={cxx}"));
        let mut compile = Command::new(cxx);
        compile.args(["-O2", "-std=c++17", "-fPIC", "-faligned-new", "-c", &source, "-o", &self.object, "-I."]);
        compile.arg("-I").arg(include).arg("-I").arg(include.join("vltstd"));
        if tracing() {
            compile.args(["-DBERTH_TRACE", "-DVM_TRACE=1", "-DVM_TRACE_FST=1"]);
        }
        let products = [format!("lib{}.a", self.prefix), "libverilated.a".to_owned(), self.object.clone()];
        kept::compile(&self.folder, &mut [make, compile], &products)
    }
}

/// The file of a module.
fn source_of<'a>(module: &str, sources: &'a [PathBuf]) -> Option<&'a PathBuf> {
    sources.iter().find(|source| source.file_stem().is_some_and(|name| name == module))
}

/// A port as the model's header declares it, or a field of one.
struct Port {
    name: String,
    whole: String,
    whole_bits: u32,
    input: bool,
    low: u32,
    bits: u32,
}

/// Fields of the packages' records, by `package::record`: name, lowest bit, bits; a record's own fields have names with a dot.
type Records = BTreeMap<String, Vec<(String, u32, u32)>>;

/// What the packages say of records.
fn records(sources: &[PathBuf]) -> Result<Records, String> {
    let registers = PathBuf::from(REGISTERS);
    let packages = sources.iter().filter(|source| source.to_string_lossy().ends_with("_pkg.sv"));
    let mut records = Records::new();
    for path in [&registers].into_iter().chain(packages) {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let package = path.file_stem().unwrap_or_default().to_string_lossy();
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
        let mut fields: Vec<(String, u32)> = Vec::new();
        let mut inside = false;
        for line in lines {
            if line.starts_with("typedef struct packed") {
                (inside, fields) = (true, Vec::new());
            } else if let Some(name) = line.strip_prefix('}').and_then(|rest| rest.trim().strip_suffix(';')) {
                inside = false;
                // the first field is the highest
                let mut low = fields.iter().map(|(_, bits)| bits).sum::<u32>();
                let mut all = Vec::new();
                for (field, bits) in fields.drain(..) {
                    low -= bits;
                    let (field, kind) = field.split_once(' ').unwrap_or((&field, ""));
                    all.push((field.to_string(), low, bits));
                    let inner = records.get(&format!("{package}::{kind}")).into_iter().flatten();
                    all.extend(inner.map(|(name, at, bits)| (format!("{field}.{name}"), low + at, *bits)));
                }
                records.insert(format!("{package}::{name}"), all);
            } else if let Some(line) = line.strip_suffix(';').filter(|_| inside) {
                let failed = || format!("{}: {line}", path.display());
                let (kind, names) = line.split_once(char::is_whitespace).ok_or_else(failed)?;
                let (bits, names) = match names.trim().strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                    Some((range, names)) => {
                        let (high, low) = range.split_once(':').ok_or_else(failed)?;
                        let value = |text| number(text).ok_or_else(failed);
                        (value(high)? - value(low)? + 1, names)
                    }
                    None if kind == "logic" => (1, names),
                    None => {
                        let inner = records.get(&format!("{package}::{kind}")).ok_or_else(failed)?;
                        (inner.iter().filter(|(name, ..)| !name.contains('.')).map(|(.., bits)| bits).sum(), names)
                    }
                };
                fields.extend(names.split(',').map(|name| (format!("{} {kind}", name.trim()), bits)));
            }
        }
    }
    Ok(records)
}

/// The value of a number, or of a product or a difference of them.
fn number(text: &str) -> Option<u32> {
    if let Some((left, right)) = text.rsplit_once('-') {
        return number(left)?.checked_sub(number(right)?);
    }
    text.split('*').map(|factor| factor.trim().parse::<u32>().ok()).product()
}

/// The ports, and the fields of those that are records by the module's text: lines like `input  berth_card_pkg::frame_t rf,`.
fn with_fields(ports: Vec<Port>, module: &str, records: &Records) -> Result<Vec<Port>, String> {
    let mut all = Vec::new();
    for port in ports {
        let kind = module.lines().find_map(|line| {
            let mut words = line.trim().split([' ', ',']).filter(|word| !word.is_empty());
            let record = words.next().is_some_and(|word| matches!(word, "input" | "output"));
            let kind = words.next().filter(|kind| record && kind.contains("::"))?;
            (words.next() == Some(&*port.whole)).then_some(kind)
        });
        let fields = match kind {
            Some(kind) => records.get(kind).ok_or_else(|| format!("there is no record {kind}"))?.as_slice(),
            None => &[],
        };
        let bits: u32 = fields.iter().filter(|(name, ..)| !name.contains('.')).map(|(.., bits)| bits).sum();
        if kind.is_some() && bits != port.bits {
            return Err(format!("{}: {bits} bits, the model has {}", port.whole, port.bits));
        }
        all.extend(fields.iter().map(|(name, low, bits)| Port {
            name: format!("{}.{name}", port.whole),
            whole: port.whole.clone(),
            low: *low,
            bits: *bits,
            ..port
        }));
        all.push(port);
    }
    Ok(all)
}

/// The ports of a model, from lines like `VL_IN8(&clk,0,0);` and `VL_OUTW(&data,511,0,16);` of its header.
fn ports(header: &str) -> Vec<Port> {
    let port = |line: &'_ str| -> Option<(bool, usize, usize, u32)> {
        let (kind, rest) = line.trim().strip_prefix("VL_")?.split_once("(&")?;
        let input = kind.starts_with("IN") && !kind.starts_with("INOUT");
        if !input && !kind.starts_with("OUT") {
            return None;
        }
        let mut parts = rest.split([',', ')']);
        let name = parts.next()?;
        let from = name.as_ptr() as usize - line.as_ptr() as usize;
        let (high, low): (u32, u32) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((input, from, name.len(), high - low + 1))
    };
    header
        .lines()
        .filter_map(|line| {
            let (input, at, n, bits) = port(line)?;
            let name = line[at..at + n].to_string();
            Some(Port { whole: name.clone(), name, whole_bits: bits, input, low: 0, bits })
        })
        .collect()
}

/// C++ that makes a model and gives a pointer to each of its ports.
fn ports_source(prefix: &str, ports: &[Port]) -> String {
    let mut table = String::new();
    for Port { name, whole, whole_bits, input, low, bits } in ports {
        let of = if *whole_bits > 64 { format!("&m->top->{whole}[0]") } else { format!("&m->top->{whole}") };
        let input = u8::from(*input);
        let _ =
            writeln!(table, "    {{\"{name}\", {low}, {bits}, {input}, [](Model* m) -> void* {{ return {of}; }}}},");
    }
    format!(
        r#"// Ports of {prefix}; the Rust side is src/ffi.rs.
#include <cstdint>
#include <cstring>
#include "{prefix}.h"
#include "verilated.h"
#ifdef BERTH_TRACE
#include "verilated_fst_c.h"
#endif

namespace {{
struct Model {{
    VerilatedContext context;
    {prefix}* top = nullptr;
    uint64_t time = 0;
#ifdef BERTH_TRACE
    VerilatedFstC* trace = nullptr;
#endif
}};
struct Port {{
    const char* name;
    uint32_t low;
    uint32_t bits;
    uint32_t input;
    void* (*at)(Model*);
}};
const Port ports[] = {{
{table}}};

// A model may move between threads, and Verilator keeps the current context per thread.
void enter(Model* m) {{ Verilated::threadContextp(&m->context); }}

Model* make(int seed) {{
    auto* m = new Model;
    enter(m);
    m->context.randReset(2);
    m->context.randSeed(seed);
#ifdef BERTH_TRACE
    m->context.traceEverOn(true);
#endif
    m->top = new {prefix}(&m->context);
    for (const Port& port : ports)
        if (port.input && port.low == 0) std::memset(port.at(m), 0, (port.bits + 7) / 8);
    return m;
}}

void stop(Model* m) {{
#ifdef BERTH_TRACE
    if (m->trace) {{
        m->trace->close();
        delete m->trace;
        m->trace = nullptr;
    }}
#endif
    (void)m;
}}

void release(Model* m) {{
    enter(m);
    stop(m);
    m->top->final();
    delete m->top;
    delete m;
}}

void eval(Model* m, int clk) {{
    enter(m);
    m->top->clk = clk;
    m->top->eval();
#ifdef BERTH_TRACE
    if (m->trace) m->trace->dump(m->time);
#endif
    m->time += clk;
}}

int trace(Model* m, const char* path) {{
    enter(m);
    stop(m);
#ifdef BERTH_TRACE
    if (path) {{
        m->trace = new VerilatedFstC;
        m->top->trace(m->trace, 99);
        m->trace->open(path);
    }}
    return 0;
#else
    return path ? 1 : 0;
#endif
}}
}}  // namespace

extern "C" {{
struct BerthUnit_{prefix} {{
    const Port* ports;
    uint64_t count;
    Model* (*make)(int);
    void (*release)(Model*);
    void (*eval)(Model*, int);
    int (*trace)(Model*, const char*);
}};
extern const BerthUnit_{prefix} berth_unit_{prefix};
const BerthUnit_{prefix} berth_unit_{prefix} = {{
    ports, sizeof(ports) / sizeof(ports[0]), make, release, eval, trace,
}};
}}
"#
    )
}

/// The Rust table of what was built, included by src/ffi.rs.
fn table(units: &[Unit]) -> String {
    let mut text = String::from("unsafe extern \"C\" {\n");
    for unit in units {
        let _ = writeln!(text, "    #[allow(non_upper_case_globals)]\n    static berth_unit_{}: Api;", unit.prefix);
    }
    text += "}\n/// Name, width and table of each module.\nfn units() -> [(&'static str, u32, &'static Api); ";
    let _ = writeln!(text, "{}] {{\n    // SAFETY: constants of the generated C++.\n    unsafe {{ [", units.len());
    for unit in units {
        let _ = writeln!(text, "        (\"{}\", {}, &berth_unit_{}),", unit.name, unit.width, unit.prefix);
    }
    text + "    ] }\n}\n"
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} is not set"))
}

fn works(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success())
}
