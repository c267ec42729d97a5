#!/bin/sh
# Builds libbloomsday and installs it: header, shared and static library, pkg-config file.
#
#     c/install.sh [PREFIX]      PREFIX is /usr/local by default
#
# Environment: CARGO_FLAGS, such as --no-default-features for a library without cloud stores; PROFILE, release by
# default; CARGO_TARGET_DIR.
set -eu
prefix=${1:-/usr/local}
here=$(cd "$(dirname "$0")" && pwd)
profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-$here/target}
# shellcheck disable=SC2086
cargo build --locked --quiet --manifest-path "$here/Cargo.toml" --target-dir "$target" --profile "$profile" \
  ${CARGO_FLAGS:-}
case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -1)
mkdir -p "$prefix/include" "$prefix/lib/pkgconfig"
install -m 644 "$here/include/bloomsday.h" "$prefix/include/"
install -m 644 "$target/$folder/libbloomsday.a" "$prefix/lib/"
install -m 755 "$target/$folder/libbloomsday.so" "$prefix/lib/libbloomsday.so.$version"
ln -sf "libbloomsday.so.$version" "$prefix/lib/libbloomsday.so.0"
ln -sf libbloomsday.so.0 "$prefix/lib/libbloomsday.so"
sed -e "s|@PREFIX@|$(cd "$prefix" && pwd)|" -e "s|@VERSION@|$version|" "$here/bloomsday.pc.in" \
  >"$prefix/lib/pkgconfig/bloomsday.pc"
