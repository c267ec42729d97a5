#!/usr/bin/env bash
# Runs every campaign at full size and prints a table of the results. Takes hours.
#
# Usage: tests/campaign.sh [NAME…]     e.g. tests/campaign.sh crash store_faults; without names, all of them
#
# Environment: BLOOMSDAY_CAMPAIGN=small tries the script itself in minutes; BLOOMSDAY_SEED=n repeats a
# failure. tests/run.sh installs what is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
export BLOOMSDAY_CAMPAIGN="${BLOOMSDAY_CAMPAIGN:-full}"

# What there is: a name, the file with it, and the command. A campaign prints
# lines `CAMPAIGN what | how much | what came of it | seconds`; to add one is to add a line here.
tests="cargo test --locked --features bloomsday-tests/integration"
release="$tests --release --test"
# Places to stop at exist only without --release; and what waits for a store gains nothing from it.
debug="$tests --test"
alone="-- --nocapture --test-threads 1"
campaigns=(
  "crash              | tests/tests/build/crash.rs        | $debug build $alone crash::"
  "store_faults       | tests/tests/build/store_faults.rs | $debug build $alone store_faults::"
  "store_faults_serve | tests/tests/serve/store_faults.rs | $debug serve $alone store_faults::"
  "disk_full          | tests/tests/build/disk_full.rs    | $debug build $alone disk_full::"
  "corruption         | tests/tests/build/corruption.rs   | $release build $alone corruption::"
  "small_days         | tests/tests/build/small_days.rs   | $release build $alone small_days::"
  "races              | tests/tests/store/races.rs        | $debug store $alone races::"
  "live_kills         | tests/tests/live/kills.rs         | $debug live $alone kills::"
  "resp_kill          | tests/tests/resp/kill.rs          | $debug resp $alone kill"
  "live_full_disk     | tests/tests/resp/full_disk.rs     | $debug resp $alone full_disk::"
  "near_duplicates    | server/src/live/memory/near/tests.rs | cargo test --locked --release -p bloomsday-server --features live --lib fifty_million $alone --ignored"
  "swaps              | tests/tests/serve/swaps.rs        | $release serve $alone swaps::"
  "months             | server/src/simulation/months.rs   | cargo test --locked --release -p bloomsday-server --lib months $alone"
  "model              | common/tests/model/pointers.rs    | $release model $alone --include-ignored"
  "spark              | python/bloomsday/tests/test_spark.py | $debug clients $alone spark"
  "fuzz               | fuzz/run.sh                       | fuzz/run.sh $BLOOMSDAY_CAMPAIGN"
)

log=$(mktemp) table=$(mktemp) failed=0
trap 'rm -f "$log" "$table"' EXIT
names=" $(printf '%s\n' "${campaigns[@]}" | awk '{ printf "%s ", $1 }')"
for name in "$@"; do
  if [[ "$names" != *" $name "* ]]; then
    echo "there is no campaign \`$name\`:$names" >&2
    exit 2
  fi
done
for campaign in "${campaigns[@]}"; do
  IFS='|' read -r name file command <<<"$campaign"
  name=${name// /} file=${file// /}
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  if [ ! -e "$file" ]; then
    echo "$name: there is no $file" >&2
    exit 2
  fi
  echo "== $name:$command" >&2
  # A filter that matches no test succeeds, too.
  if ! $command >"$log" 2>&1 || ! grep -q CAMPAIGN "$log"; then
    failed=1
    cat "$log" >&2
    echo "| $name | | **failed, or ran nothing** | |" >>"$table"
  fi
  # Behind the harness's own words, if it wrote some on the same line.
  sed -n 's/^.*CAMPAIGN \(.*\)$/| \1 |/p' "$log" | tee -a "$table" >&2
done

cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
memory=$(awk '/MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo)
echo
echo "$(date -u +%F), $(nproc) cores of ${cpu:-an unnamed CPU}, $memory GiB, $BLOOMSDAY_CAMPAIGN size:"
echo
echo '| campaign | size | result | seconds |'
echo '|---|---|---|---|'
cat "$table"
exit $failed
