#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Synthesises the whole card, soft core included, for ECP5 with Yosys, so that nothing
# that only simulates creeps in. Fails on errors, latches, and memories that became
# flip-flops. Runs in the sysroot: run.sh OUTPUT_FOLDER; BERTH_VEXRISCV names the folder
# with the soft core's Verilog.
set -eu
out=${1:?the folder for the reports}
core=${BERTH_VEXRISCV:?names the folder with VexRiscv_Full.v}/VexRiscv_Full.v
cd "$(dirname "$0")/.."
mkdir -p "$out"
sources="rtl/berth_regs_pkg.sv $(ls rtl/*.sv | grep -v regs_pkg | tr '\n' ' ')"
sed -e "s#@SOURCES@#$sources#" -e "s#@CORE@#$core#" -e "s#@OUT@#$out#" synth/card.ys >"$out/card.ys"
yosys -q -l "$out/yosys.log" "$out/card.ys"
if grep "Latch inferred" "$out/yosys.log" || grep "DLATCH" "$out/cells.txt"; then
    echo "synthesis: a latch" >&2
    exit 1
fi
# The large memories must be block RAM: in flip-flops they would be several million bits.
ffs=$(awk '$1 == "TRELLIS_FF" { n = $2 } END { print n + 0 }' "$out/cells.txt")
rams=$(awk '$1 == "DP16KD" { n = $2 } END { print n + 0 }' "$out/cells.txt")
luts=$(awk '$1 == "LUT4" { n = $2 } END { print n + 0 }' "$out/cells.txt")
echo "synthesis: $luts LUT4, $ffs flip-flops, $rams block RAMs of 18 kbit"
if [ "$ffs" -gt 40000 ] || [ "$rams" -lt 300 ]; then
    echo "synthesis: a large memory is not in block RAM; see $out/cells.txt" >&2
    exit 1
fi
