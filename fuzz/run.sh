#!/usr/bin/env bash
# Fuzzes every parser of bytes from outside, and prints a table: target, executions, executions a second,
# result.
#
#   fuzz/run.sh                  a short run: 10 seconds a target
#   fuzz/run.sh full             the long run: 100,000,000 executions a target
#   fuzz/run.sh full header      one target of it
#
# Needs a Rust toolchain, stable will do, and g++, which it installs on Debian or Ubuntu. An input that
# breaks a target is kept in fuzz/artifacts/TARGET; what was learnt, in fuzz/target/corpus/TARGET.
set -euo pipefail
cd "$(dirname "$0")"

targets=(header record query config)
short_seconds=10
long_runs=100000000

limit=(-max_total_time=$short_seconds)
if [ "${1:-}" = full ]; then
  limit=(-runs=$long_runs)
  shift
fi
[ $# = 0 ] || targets=("$@")

if ! command -v g++ >/dev/null; then
  root=(); [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends g++
fi

# What cargo-fuzz passes to a nightly compiler, without its address sanitizer, which stable has not:
# there is unsafe code in the kernels only, and those have tests of their own.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares"
host=$(rustc -vV | sed -n 's/^host: //p')
# With a target named, build scripts and macros are built without coverage.
# shellcheck disable=SC2086
RUSTFLAGS="--cfg fuzzing $(echo $coverage)" \
  cargo build --locked --quiet --release --target "$host" --target-dir target

failed=0
table=$(printf '%-8s %14s %10s  %s' target executions exec/s result)
for target in "${targets[@]}"; do
  corpus=target/corpus/$target artifacts=artifacts/$target
  mkdir -p "$corpus" "$artifacts"
  log=target/$target.log
  # An input takes microseconds: five seconds is a hang. 1 GiB is far above what a target needs.
  if "target/$host/release/$target" "$corpus" "seeds/$target" "${limit[@]}" -print_final_stats=1 \
    -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=20000 \
    -artifact_prefix="$artifacts/" >"$log" 2>&1; then
    result='nothing found'
  else
    result="BROKEN: see fuzz/$log and fuzz/$artifacts" failed=1
    grep -v '^#' "$log" | tail -n 30
  fi
  stat() { sed -n "s/^stat::$1: *//p" "$log"; }
  table+=$(printf '\n%-8s %14s %10s  %s' "$target" "$(stat number_of_executed_units)" \
    "$(stat average_exec_per_sec)" "$result")
done
printf '%s\n' "$table"
exit $failed
