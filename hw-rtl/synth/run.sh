#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Synthesises the card, soft core included, for ECP5 with Yosys, so that nothing that only simulates creeps in;
# of the fast path only what is read and elaborated. Fails on errors, latches, and memories that became
# flip-flops. Runs in the sysroot: run.sh OUTPUT_FOLDER; BERTH_VEXRISCV names the folder
# with the soft core's Verilog. BERTH_SYNTHESISED names a folder, if any, that keeps reports by all that goes into them, the
# tools included: what has reports there is not synthesised again.
set -eu
out=${1:?the folder for the reports}
core=${BERTH_VEXRISCV:?names the folder with VexRiscv_Full.v}/VexRiscv_Full.v
cd "$(dirname "$0")/.."
mkdir -p "$out"
sources="rtl/berth_regs_pkg.sv $(sh sources.sh | tr '\n' ' ')"
boxes="rtl/fast/berth_fp.sv rtl/prim/berth_fp_ram.sv"
kept=
if [ -n "${BERTH_SYNTHESISED:-}" ]; then
    # shellcheck disable=SC2086 # a list of files
    kept=$BERTH_SYNTHESISED/$({ cat "$(command -v yosys)" "$(command -v yosys-abc)" synth/*.ys synth/*.sh synth/*.abc $sources "$core"; } |
        sha256sum | cut -c 1-32)
    if [ -d "$kept" ]; then
        cp -r "$kept/." "$out"
        cat "$out/summary"
        echo "synthesised before, from the same sources"
        exit
    fi
fi

# synthesise TOP: reports in $out/TOP, sets $luts, $ffs and $rams
synthesise() {
    mkdir -p "$out/$1"
    sed -e "s#@TOP@#$1#" -e "s#@SOURCES@#$sources#" -e "s#@CORE@#$core#" -e "s#@OUT@#$out/$1#" \
        -e "s#@BOXES@#$boxes#" synth/card.ys \
        >"$out/$1/run.ys"
    yosys -q -l "$out/$1/yosys.log" "$out/$1/run.ys"
    if grep "Latch inferred" "$out/$1/yosys.log" || grep "DLATCH" "$out/$1/cells.txt"; then
        echo "synthesis: a latch in $1" >&2
        exit 1
    fi
    ffs=$(awk '$1 == "TRELLIS_FF" { n = $2 } END { print n + 0 }' "$out/$1/cells.txt")
    rams=$(awk '$1 == "DP16KD" { n = $2 } END { print n + 0 }' "$out/$1/cells.txt")
    luts=$(awk '$1 == "LUT4" { n = $2 } END { print n + 0 }' "$out/$1/cells.txt")
    echo "synthesis: $1: $luts LUT4, $ffs flip-flops, $rams block RAMs of 18 kbit" | tee "$out/summary"
}

# The fast path, which is a box in the card here: read, elaborated, without latches, and its memories found as such.
fast_path() {
    mkdir -p "$out/berth_fp"
    yosys -q -l "$out/berth_fp/yosys.log" -p "read_verilog -sv -noassert $sources; hierarchy -top berth_fp; proc;
        opt -fast; memory -nomap; check; tee -q -o $out/berth_fp/cells.txt stat -top berth_fp" || return 1
    if grep "Latch inferred" "$out/berth_fp/yosys.log"; then
        echo "synthesis: a latch in berth_fp" >&2
        return 1
    fi
    echo "synthesis: berth_fp is read, without latches"
}
fast_path &
fast=$!
trap 'kill "$fast" 2>/dev/null || true' EXIT

# The large memories must be block RAM: in flip-flops they would be several million bits. Firmware's RAM alone is 128.
synthesise berth_core
if [ "$ffs" -gt 40000 ] || [ "$rams" -lt 300 ]; then
    echo "synthesis: a large memory is not in block RAM; see $out/berth_core/cells.txt" >&2
    exit 1
fi
wait "$fast"
if [ -n "$kept" ]; then
    rm -rf "$kept.partial"
    mkdir -p "$kept.partial"
    cp -r "$out/berth_core" "$out/berth_fp" "$out/summary" "$kept.partial"
    mv "$kept.partial" "$kept"
fi
