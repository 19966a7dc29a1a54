#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Makes a build folder with which Rust modules can be built for an installed Debian kernel.
#
#   rust-metadata.sh HEADERS SOURCE BUILD
#
# Debian builds its kernel with Rust, but its headers package does not have what rustc reads of the kernel's crates
# (rust/*.rmeta, the macros, the target). This script makes it from the kernel's source, with the configuration and the
# symbols of the headers package.
#
#   HEADERS  the folder of the headers package, as /lib/modules/RELEASE/build names it
#   SOURCE   linux-source-X.Y.tar.xz of the package of the same version
#   BUILD    the folder to make; it takes some 600 MB. One that is complete is left as it is
#
# The script ends with 1, and says why, unless compilers and configuration are those of the kernel and all symbols that
# the kernel exports from Rust have the names that they get here.
set -eu

if [ $# -ne 3 ]; then
    sed -n '5p' "$0" | cut -c3- >&2
    exit 2
fi
headers=$1 source=$2 build=$3

fail() {
    echo "rust-metadata: $*" >&2
    exit 1
}

[ -r "$headers/.config" ] || fail "$headers has no .config: is the kernel's linux-headers package installed?"
grep -qx CONFIG_RUST=y "$headers/.config" || fail "the kernel of $headers was built without Rust"
# Headers with the metadata, and what an earlier run has made, need nothing.
if [ -e "$headers/rust/libkernel.rmeta" ] || [ -e "$build/symbols-equal" ]; then
    exit 0
fi
[ -r "$source" ] || fail "$source is missing: install the linux-source package of the kernel's version"
[ -r "$headers/.kernelvariables" ] || fail "$headers is not of a Debian package"
release=$(sed -n 's/^override KERNELRELEASE = *//p' "$headers/.kernelvariables")
[ -n "$release" ] || fail "$headers does not name its kernel's release"

# Equal names of symbols do not prove equal layouts, equal package versions do.
series=$(basename "$source" .tar.xz)
if command -v dpkg-query >/dev/null; then
    of_headers=$(dpkg-query -W -f '${Version}' "linux-headers-$release" 2>/dev/null || true)
    of_source=$(dpkg-query -W -f '${Version}' "$series" 2>/dev/null || true)
    if [ -n "$of_headers" ] && [ -n "$of_source" ] && [ "$of_headers" != "$of_source" ]; then
        fail "linux-headers-$release has version $of_headers, $series has $of_source: install the same version of both"
    fi
fi

rm -rf "$build"
mkdir -p "$build/source"
# What the kernel's crates and the bindings are made from; all of the source would be ten times as much.
xz -T0 -dc "$source" | tar -x -C "$build/source" --strip-components=1 --wildcards \
    --exclude="$series/tools/testing" --exclude="$series/tools/perf" \
    "$series/Makefile" "$series/Kbuild" "$series/Kconfig" "*/Kconfig*" \
    "$series/arch/x86" "$series/drivers/android/binder" "$series/drivers/base/base.h" "$series/include" \
    "$series/kernel" "$series/lib" "$series/rust" "$series/samples/rust" "$series/scripts" \
    "$series/security/selinux" "$series/tools"
# .kernelvariables has the architecture, the compiler and the release, for these runs of make and for those of modules.
cp "$headers/.config" "$headers/.kernelvariables" "$headers/Module.symvers" "$build/"
kernel_make() {
    make -C "$build/source" O="$build" -j"$(nproc)" "$@"
}
kernel_make olddefconfig
# olddefconfig changes what another compiler decides otherwise.
if ! diff "$headers/.config" "$build/.config"; then
    fail "the configuration is not that of $release: the compilers are other ones than those that built it (see above)"
fi
kernel_make modules_prepare

# Of the names on standard input those of Rust's symbols, and of the C functions made for Rust.
rust_names() {
    grep -E '^(_R|rust_helper_)' | sort -u
}
sed -n 's/.*(\(.*\)).*/\1/p' "$build"/rust/exports_*_generated.h | rust_names >"$build/symbols-here"
awk '{ print $2 }' "$headers/Module.symvers" | rust_names >"$build/symbols-there"
if ! cmp "$build/symbols-here" "$build/symbols-there"; then
    fail "the Rust symbols of $release have other names here: another rustc, or a source of another version"
fi
mv "$build/symbols-here" "$build/symbols-equal"
