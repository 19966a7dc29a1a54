// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verilates the card (hw-rtl/rtl and the soft core that `BERTH_VEXRISCV` points to) and
//! compiles the C ABI around it; neither when `BERTH_NO_MODEL` is set, as for Clippy, which links nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../kept.rs"]
mod kept;
#[path = "../side_by_side.rs"]
mod side_by_side;
use kept::output;
use side_by_side::side_by_side;

fn main() {
    println!("cargo::rerun-if-env-changed=BERTH_NO_MODEL");
    if env::var_os("BERTH_NO_MODEL").is_some() {
        return;
    }
    if let Err(message) = build() {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(variable("OUT_DIR")?);
    let trace = env::var_os("CARGO_FEATURE_TRACE").is_some();
    println!("cargo::rerun-if-env-changed=BERTH_VEXRISCV");
    println!("cargo::rerun-if-env-changed=CXX");
    for path in [
        "build.rs",
        "../kept.rs",
        "../side_by_side.rs",
        "../sources.sh",
        "cpp",
        "rtl",
        "../rtl",
        "../vendor.vlt",
        "../coverage.vlt",
    ] {
        // relative: to this checkout, whichever made the output that cargo looks at
        println!("cargo::rerun-if-changed={path}");
    }

    let core = soft_core()?;
    // Where the sources are named by relative paths, the C++ of them does not say which checkout it is of.
    env::set_current_dir("..").map_err(|e| format!("hw-rtl: {e}"))?;
    let feature = |name: &str| env::var_os(format!("CARGO_FEATURE_{name}")).is_some();
    let small = feature("SMALL");
    let registers = match (small, feature("LARGE")) {
        (true, _) => "rtl/small/berth_regs_pkg.sv",
        (_, true) => "rtl/large/berth_regs_pkg.sv",
        _ => "rtl/berth_regs_pkg.sv",
    };
    let mut sources = vec![PathBuf::from(registers)];
    sources.extend(output(Command::new("sh").arg("sources.sh"))?.lines().map(PathBuf::from));
    sources.push(core);
    let top = if small { "berth_board" } else { "berth_core" };
    if small {
        sources.push("model/rtl/berth_board.sv".into());
    }

    // The compiler that was tried to give the faster model comes first.
    let cxx = env::var("CXX").ok().filter(|c| !c.is_empty());
    let cxx = cxx.or_else(|| ["clang++", "g++"].into_iter().find(|c| works(c)).map(str::to_string));
    let cxx = cxx.ok_or("no C++ compiler found; the sysroot of `cargo xtask` has one")?;

    let root = output(Command::new("verilator").args(["--getenv", "VERILATOR_ROOT"]))?;
    let root = PathBuf::from(root.trim());
    let widths: &[u32] = if feature("WIDTHS") {
        &[64, 128, 256, 512]
    } else if feature("ENDS") {
        &[64, 512]
    } else {
        &[64]
    };
    // With coverage there is several times as much to compile, most of which only says what the points are.
    let optimise = match feature("COVER") {
        true => ["OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2"],
        false => ["OPT_FAST=-O3", "OPT_SLOW=-O1", "OPT_GLOBAL=-O2"],
    };
    let build_jobs = if widths.len() > 1 { "1" } else { "2" };
    let objects = side_by_side(widths.to_vec(), |width| {
        let model = out.join(format!("model{width}"));
        let prefix = format!("Vberth{width}");
        let mut verilator = Command::new("verilator");
        verilator
            .args(["--cc", "--prefix", &prefix, "--top-module", top])
            // One thread reads the RTL: Verilator 5 before its issue 8441 may crash with more.
            .args(["--verilate-jobs", "1"])
            // cargo knows what the C++ is made of; make, which runs elsewhere, would not find it.
            .arg("--no-MMD")
            .arg(format!("-GDATA_W={width}"))
            // In benches what nothing resets begins with anything: see `Core::new`.
            .args([
                "-O3",
                "--x-assign",
                "fast",
                "--x-initial",
                if feature("ASSERT") { "unique" } else { "fast" },
                "-Wall",
            ])
            .args(["-CFLAGS", "-fPIC"])
            .arg("--Mdir")
            .arg(&model)
            .arg("vendor.vlt")
            .args(&sources);
        if trace {
            verilator.arg("--trace-fst");
        }
        if feature("ASSERT") {
            verilator.arg("--assert");
        }
        if feature("COVER") {
            // Wide signals are data and addresses: their bits say little of what the card does.
            verilator.args(["--coverage-line", "--coverage-toggle", "--coverage-max-width", "8"]);
            verilator.arg("coverage.vlt");
        }
        // of what was there before nothing would be used
        let _ = fs::remove_dir_all(&model);
        output(&mut verilator)?;
        let mut make = Command::new("make");
        make.args(["-f", &format!("{prefix}.mk"), "-j", build_jobs]).args(optimise);
        make.arg(format!("CXX={cxx}")).arg(format!("LINK={cxx}"));

        let (shim, object) = (format!("shim{width}.cpp"), format!("shim{width}.o"));
        fs::copy("model/cpp/shim.cpp", model.join(&shim)).map_err(|e| format!("shim.cpp: {e}"))?;
        let mut compile = Command::new(&cxx);
        compile.args(["-O3", "-std=c++17", "-fPIC", "-faligned-new", "-c", &shim, "-o", &object, "-I."]);
        compile.arg("-I").arg(root.join("include")).arg("-I").arg(root.join("include/vltstd"));
        compile.arg(format!("-DBERTH_WIDTH={width}")).arg(format!("-DBERTH_HEADER=\"{prefix}.h\""));
        // Where this version of Verilator keeps the clock's last value (see the shim); another
        // one that names it differently just gets a slower model.
        let clock_state = "__Vtrigprevexpr___TOP__clk__0";
        let header = format!("{prefix}___024root.h");
        if fs::read_to_string(model.join(&header)).map_err(|e| e.to_string())?.contains(clock_state) {
            compile.arg(format!("-DBERTH_CLOCK_STATE={clock_state}")).arg(format!("-DBERTH_ROOT=\"{header}\""));
        }
        if trace {
            compile.args(["-DBERTH_TRACE", "-DVM_TRACE=1", "-DVM_TRACE_FST=1"]);
        }
        if feature("COVER") {
            compile.arg(format!("-DBERTH_SYMBOLS=\"{prefix}__Syms.h\"")).arg("-DVM_COVERAGE=1");
        }
        let products = [format!("lib{prefix}.a"), "libverilated.a".to_owned(), object.clone()];
        kept::compile(&model, &mut [make, compile], &products)?;
        println!("cargo::rustc-link-search=native={}", model.display());
        Ok(model.join(object))
    })?;
    let shim = out.join("libberth_shim.a");
    let _ = fs::remove_file(&shim);
    output(Command::new("ar").arg("crs").arg(&shim).args(&objects))?;

    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=berth_shim");
    for width in widths {
        println!("cargo::rustc-link-lib=static=Vberth{width}");
    }
    println!("cargo::rustc-link-lib=static=verilated");
    println!("cargo::rustc-link-lib=dylib=stdc++");
    if trace {
        println!("cargo::rustc-link-lib=dylib=z");
    }
    Ok(())
}

/// The soft core's file.
fn soft_core() -> Result<PathBuf, String> {
    let folder = env::var("BERTH_VEXRISCV").map_err(|_| {
        "BERTH_VEXRISCV is not set: it names the folder of the package pythondata-cpu-vexriscv that holds \
         VexRiscv_Full.v (`cargo xtask` fetches it and sets this)"
    })?;
    let file = Path::new(&folder).join("VexRiscv_Full.v");
    println!("cargo::rerun-if-changed={}", file.display());
    if file.is_file() { Ok(file) } else { Err(format!("BERTH_VEXRISCV: there is no {}", file.display())) }
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} is not set"))
}

fn works(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success())
}
