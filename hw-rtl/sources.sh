#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Lists the RTL's files, by their paths from this folder: packages first, as they must be read before what uses them.
# The package of registers is left out, since there are two: rtl/berth_regs_pkg.sv, and the small card's in rtl/small.
set -eu
cd "$(dirname "$0")"
find rtl -name '*_pkg.sv' ! -name berth_regs_pkg.sv | LC_ALL=C sort
find rtl -name '*.sv' ! -name '*_pkg.sv' | LC_ALL=C sort
