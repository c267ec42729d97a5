#!/bin/sh
# The compiler for our own crates, with coverage: `run.sh` names it to cargo. Its first argument is rustc.
# shellcheck disable=SC2086
exec "$@" $BLOOMSDAY_COVERAGE
