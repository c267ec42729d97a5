#!/usr/bin/env bash
# Kafka 4.4 from Maven Central, with what a broker of one node and its clients need of its dependencies: 39 MB.
#
#   tests/kafka/fetch.sh FOLDER     what is there and has its digest is not fetched again
set -euo pipefail
list=$(realpath "$(dirname "$0")/jars.sha256")
mkdir -p "$1"
cd "$1"
# A line: the digest, two blanks, the path in the repository.
check() { awk '{ sub(".*/", "", $2); print $1 "  " $2 }' "$list" | sha256sum --check --quiet --strict; }
check >/dev/null 2>&1 && exit
echo "fetching Kafka into $1"
awk '{ print "https://repo1.maven.org/maven2/" $2 }' "$list" | xargs -P 4 -n 1 curl --fail --silent --show-error --retry 3 -O
check
