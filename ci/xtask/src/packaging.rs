// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver as others build it: by DKMS from its sources alone, and inside a kernel tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::kernel::Kernel;
use crate::steps::Builder;

/// What DKMS does with a copy of `driver/` and its `dkms.conf`: it reads that file with `kernel_source_dir` set, and
/// runs `MAKE[0]` there; then `BUILT_MODULE_NAME[0]` must be there, and `CLEAN` must work. (DKMS itself wants to be
/// root and an installed kernel; what it would run is run here.)
const DKMS: &str = r#"
kernel_source_dir=$1
kernelver=$2
set --
. ./dkms.conf
[ -n "$PACKAGE_NAME" ] && [ -n "$PACKAGE_VERSION" ] && [ -n "${DEST_MODULE_LOCATION[0]}" ]
for option in $BUILD_EXCLUSIVE_CONFIG; do grep -q "^$option=[ym]" "$kernel_source_dir/.config"; done
eval "${MAKE[0]}"
modinfo "./${BUILT_MODULE_NAME[0]}.ko"
eval "$CLEAN"
[ ! -e "./${BUILT_MODULE_NAME[0]}.ko" ]
"#;

/// Where the driver goes in a kernel tree.
const PLACE: &str = "drivers/infiniband/hw/berth";

/// Puts the driver into a kernel tree ($1 the tree, a copy of hard links: files that change are made anew; $2 the
/// checkout) and makes what a build folder needs besides objects ($3 from, $4 to).
const IN_TREE: &str = r#"
for file in drivers/infiniband/Kconfig drivers/infiniband/hw/Makefile; do
    cp "$1/$file" "$1/$file.new"
    mv "$1/$file.new" "$1/$file"
done
mkdir "$1/$PLACE"
cp -r "$2"/driver/. "$2/Kconfig" "$1/$PLACE/"
sed -i "0,/^source .*hw.*Kconfig/s,,source \"$PLACE/Kconfig\"\n&," "$1/drivers/infiniband/Kconfig"
grep -q "$PLACE/Kconfig" "$1/drivers/infiniband/Kconfig"
echo 'obj-$(CONFIG_BERTH) += berth/' >> "$1/drivers/infiniband/hw/Makefile"
cd "$3"
cp -a .config Makefile include scripts rust tools arch "$4"
find . -name '*.s' -path './kernel/*' -exec cp --parents -a {} "$4" \;
printf 'CONFIG_BERTH=m\nCONFIG_BERTH_DEBUG=y\n' >> "$4/.config"
"#;

/// Builds in a tree with the driver in it, in a folder that has seen it.
const BUILD: &str = r#"
make LLVM=1 O="$1" olddefconfig
grep -qx CONFIG_BERTH=m "$1/.config"
grep -qx CONFIG_BERTH_DEBUG=y "$1/.config"
make LLVM=1 O="$1" "$PLACE/"
test -s "$1/$PLACE/berth.o"
"#;

/// An empty folder in the cache.
fn fresh(builder: &Builder, name: &str) -> Result<PathBuf> {
    let folder = builder.context.built_folder(name)?;
    fs::remove_dir_all(&folder)?;
    fs::create_dir(&folder)?;
    Ok(folder)
}

/// A command that builds the driver as DKMS does.
///
/// # Errors
/// When the folder for it cannot be made.
pub fn dkms(builder: &Builder, kernel: &Kernel) -> Result<Command> {
    let folder = fresh(builder, "dkms")?;
    copy(&builder.context.repo.join("driver"), &folder)?;
    let mut command = builder.sysroot.command(&folder, &[], "bash");
    command.args(["-euxc", DKMS, "dkms"]).arg(&kernel.build).arg("berth-test");
    Ok(command)
}

/// Commands that put the driver into a copy of the kernel's tree, and build it there.
///
/// # Errors
/// When the folders for it cannot be made.
pub fn in_tree(builder: &Builder, kernel: &Kernel) -> Result<(Command, Command)> {
    let build = kernel.build.canonicalize()?;
    let source = fs::read_link(build.join("source")).context("the kernel's build folder does not name its source")?;
    let folder = fresh(builder, "in-tree")?;
    let (tree, objects) = (folder.join("tree"), folder.join("objects"));
    fs::create_dir(&objects)?;
    let mut prepare = builder.sysroot.command(&folder, &[], "sh");
    prepare.args(["-euxc", &format!("cp -al \"$5\" \"$1\"\n{IN_TREE}"), "in-tree"]);
    prepare.arg(&tree).arg(&builder.context.repo).arg(&build).arg(&objects).arg(&source).env("PLACE", PLACE);
    // Under the names that the kernel was built with, so that nothing else is built anew.
    let binds = [(&*tree, &*source), (&*objects, &*build)];
    let mut make = builder.sysroot.command_over(&source, &binds, "sh");
    make.args(["-euxc", BUILD, "in-tree"]).arg(&build).env("PLACE", PLACE);
    Ok((prepare, make))
}

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
