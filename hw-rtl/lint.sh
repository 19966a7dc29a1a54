#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Lints the RTL at every width it is meant for. Runs in the sysroot; BERTH_VEXRISCV names
# the folder with the soft core's Verilog.
# shellcheck disable=SC2086 # a list of files
set -eu
cd "$(dirname "$0")"
core=${BERTH_VEXRISCV:?names the folder with VexRiscv_Full.v}/VexRiscv_Full.v
sources=$(sh sources.sh)
# Yosys 0.52 drops such an assignment without a word: {a[i], b[i]} = ..., with a variable index.
if grep -nE '^[^/]*\{[^{}=;]*\[[^]{}:]*[a-z][^]{}:]*\][^{}=;]*\} *<?=[^=]' $sources | grep -v 'assign '; then
    echo "a variable index within a concatenation that is assigned to" >&2
    exit 1
fi
# Nor does it get an array of structs right: it takes it for one word with a bit per element.
if grep -nE '^ *[a-z_]+_t +[a-z_0-9]+ *\[' $sources; then
    echo "an array of structs" >&2
    exit 1
fi
# And it carries a cast's width into a concatenation: in 32'({a + b, c}) it adds 32 bits, Verilator those of a and b.
if grep -nE "[0-9A-Z)]'\(\{[^}]* [-+*] " $sources; then
    echo "a cast of a concatenation that computes" >&2
    exit 1
fi
verilator --lint-only -Wall --quiet --top-module berth_core -GFW_RAM=0 vendor.vlt rtl/small/berth_regs_pkg.sv $sources "$core"
echo "lint: clean, the small card"
verilator --lint-only -Wall --quiet --top-module berth_core vendor.vlt rtl/large/berth_regs_pkg.sv $sources "$core"
echo "lint: clean, the large card"
for width in "${@:-64}"; do
    verilator --lint-only -Wall --quiet --top-module berth_core "-GDATA_W=$width" vendor.vlt rtl/berth_regs_pkg.sv $sources "$core"
    echo "lint: clean at DATA_W=$width"
done
