#!/usr/bin/env bash
# Runs the demo, and installs the C compiler and linker that Rust needs where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v cc >/dev/null; then
  echo "installing gcc, which Rust links with" >&2
  root=(); [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends gcc libc6-dev
fi
exec cargo run --release --locked --package bloomsday-jobs -- demo "$@"
