#!/usr/bin/env bash
# Fuzzes the parsers of bytes from outside that SECURITY.md lists, and prints a table: target, executions,
# executions a second, result.
#
#   fuzz/run.sh                  a short run: 8 seconds a target; also as `small`
#   fuzz/run.sh full             the long run: 100,000,000 executions a target, 10,000,000 of scan
#   fuzz/run.sh full header      one target of it
#
# Needs a Rust toolchain, stable will do, and g++, which it installs on Debian or Ubuntu. An input that
# breaks a target is kept in fuzz/artifacts/TARGET; what was learnt, in fuzz/target/corpus/TARGET.
# As many targets run side by side as there are cores.
set -euo pipefail
cd "$(dirname "$0")"

targets=(scan url_id kafka_url header config delta record foreign query request segment)  # the slowest first
short_seconds=8
long_runs=100000000
long_scan_runs=10000000

size=short limit=(-max_total_time=$short_seconds)
case "${1:-}" in
  full) size=full limit=(-runs=$long_runs); shift ;;
  small) shift ;;
esac
[ $# = 0 ] || targets=("$@")

if ! command -v g++ >/dev/null; then
  root=(); [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends g++
fi

# What cargo-fuzz passes to a nightly compiler, without its address sanitizer, which stable has not:
# of what is fuzzed, only kernels and memory have unsafe code, and they have tests of their own.
coverage="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
programs=()
for target in "${targets[@]}"; do programs+=(--bin "$target"); done
if [ "$size" = short ]; then
  # Seconds of fuzzing are not worth minutes of compiling: libraries are those of the tests, with their features, and
  # only our own crates are compiled again, with coverage. Comparisons that the fuzzer can see help it to guess, at half
  # the speed: worth it in a short run only.
  export BLOOMSDAY_COVERAGE="$coverage -Cllvm-args=-sanitizer-coverage-trace-compares"
  export RUSTC_WORKSPACE_WRAPPER=$PWD/rustc_with_coverage.sh
  folder=../target/debug
  build=(cargo build --locked --quiet --workspace --exclude bloomsday-bench
    --features bloomsday-tests/integration "${programs[@]}")
else
  # With a target named, build scripts and macros are built without coverage.
  host=$(rustc -vV | sed -n 's/^host: //p')
  # shellcheck disable=SC2086
  export RUSTFLAGS=$(echo $coverage)
  folder=target/long/$host/fuzz
  build=(cargo build --locked --quiet --package bloomsday-fuzz --profile fuzz --target "$host"
    --target-dir target/long "${programs[@]}")
fi
"${build[@]}"

# Leaves target/TARGET.log, and its line of the table in target/TARGET.row.
fuzz() {
  local limit=("${limit[@]}")
  # Each execution writes a whole Parquet file and reads it.
  if [ "$1" = scan ] && [ "$size" = full ]; then limit=(-runs=$long_scan_runs); fi
  # Four times the longest ID, text record's line or sensible configuration; a header comes with its blob.
  local longest=4096
  [ "$1" != header ] || longest=10000
  # Twice the longest piece in which a request arrives: what is longer takes the time of many.
  [ "$1" != request ] || longest=512
  local target=$1 corpus=target/corpus/$1 artifacts=artifacts/$1 log=target/$1.log result='nothing found'
  mkdir -p "$corpus" "$artifacts"
  # An input takes microseconds: a minute is a hang, whatever else the machine does. 1 GiB is far above
  # what a target needs.
  "$folder/$target" "$corpus" "seeds/$target" "${limit[@]}" -print_final_stats=1 \
    -timeout=60 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=$longest \
    -artifact_prefix="$artifacts/" >"$log" 2>&1 || result="BROKEN: see fuzz/$log and fuzz/$artifacts"
  stat() { sed -n "s/^stat::$1: *//p" "$log"; }
  local runs rate
  runs=$(stat number_of_executed_units) rate=$(stat average_exec_per_sec)
  printf '%-9s %14s %10s  %s\n' "$target" "${runs:--}" "${rate:--}" "$result" >"target/$target.row"
}

for target in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
  fuzz "$target" &
done
wait
printf '%-9s %14s %10s  %s\n' target executions exec/s result
failed=0
for target in "${targets[@]}"; do
  cat "target/$target.row"
  # For the table of tests/campaign.sh.
  if [ -n "${BLOOMSDAY_CAMPAIGN:-}" ]; then
    read -r _ runs rate result <"target/$target.row"
    echo "CAMPAIGN fuzzing of $target | $runs executions, $rate/s | $result | "
  fi
  if grep -q BROKEN "target/$target.row"; then
    failed=1
    grep -v '^#' "target/$target.log" | tail -n 30
  fi
done
exit $failed
