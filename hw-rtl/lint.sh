#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Lints the RTL at every width it is meant for. Runs in the sysroot; BERTH_VEXRISCV names
# the folder with the soft core's Verilog.
set -eu
cd "$(dirname "$0")"
core=${BERTH_VEXRISCV:?names the folder with VexRiscv_Full.v}/VexRiscv_Full.v
sources="rtl/berth_regs_pkg.sv $(ls rtl/*.sv | grep -v regs_pkg)"
# Parts of the fast path that are not in the card yet, linted by themselves.
alone=
for top in berth_fp_tx berth_fp_rx berth_fp; do
    if [ -e "rtl/$top.sv" ]; then alone="$alone $top"; fi
done
for width in "${@:-64}"; do
    # shellcheck disable=SC2086 # a list of files
    verilator --lint-only -Wall --quiet --top-module berth_core "-GDATA_W=$width" vendor.vlt $sources "$core"
    for top in $alone; do
        verilator --lint-only -Wall --quiet --top-module "$top" "-GDATA_W=$width" -y rtl rtl/berth_regs_pkg.sv "rtl/$top.sv"
    done
    echo "lint: clean at DATA_W=$width:" berth_core $alone
done
