#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Lists the RTL's files, by their paths from this folder: packages first, as they must be read before what uses them.
# The package of registers is left out, since there are three: rtl/berth_regs_pkg.sv, and those of the small and the large card in rtl/small and rtl/large.
set -eu
cd "$(dirname "$0")"
find rtl -name '*_pkg.sv' ! -name berth_regs_pkg.sv | LC_ALL=C sort
find rtl -name '*.sv' ! -name '*_pkg.sv' | LC_ALL=C sort
