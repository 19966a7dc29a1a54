#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Lints the RTL at every width it is meant for. Runs in the sysroot; BERTH_VEXRISCV names
# the folder with the soft core's Verilog.
set -eu
cd "$(dirname "$0")"
core=${BERTH_VEXRISCV:?names the folder with VexRiscv_Full.v}/VexRiscv_Full.v
sources="rtl/berth_regs_pkg.sv $(ls rtl/*.sv | grep -v regs_pkg)"
for width in "${@:-64}"; do
    for fast in 0 1; do
        # shellcheck disable=SC2086 # a list of files
        verilator --lint-only -Wall --quiet --top-module berth_core "-GDATA_W=$width" "-GFAST=$fast" vendor.vlt $sources "$core"
    done
    echo "lint: clean at DATA_W=$width, without and with the fast path"
done
