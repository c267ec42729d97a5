#!/usr/bin/env bash
# Runs everything that must hold, and installs what it needs on Debian or Ubuntu: formatting, lints, documentation,
# all tests (with real servers of S3, Azure, Google Cloud Storage, HDFS and Redis, a real browser and real Guava),
# packages, and a short run of every fuzz target.
#
# Environment: none needed. As root it installs Debian packages itself; otherwise it uses sudo.
set -euo pipefail
cd "$(dirname "$0")/.."
# Where Debian puts servers.
export PATH="$PATH:/usr/sbin"

say() { printf '\n== %s (after %d min)\n' "$*" "$((SECONDS / 60))"; }

# 1. What compiling needs: a C compiler; and for Kafka a C++ compiler, make and the headers of OpenSSL.
debian() {
  local root=(); [ "$(id -u)" = 0 ] || root=(sudo)
  say "installing $*"
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "$@"
}
compiling=()
command -v g++ >/dev/null && command -v cc >/dev/null || compiling+=(gcc g++ libc6-dev)
command -v make >/dev/null || compiling+=(make)
command -v pkg-config >/dev/null || compiling+=(pkgconf)
[ -e /usr/include/openssl/ssl.h ] || compiling+=(libssl-dev)
[ ${#compiling[@]} = 0 ] || debian "${compiling[@]}"

# 2. What the tests need: Python (moto is an S3 server written in it, redis a client; maturin builds the package, whose
# tests use numpy, pyarrow, polars, pandas, DuckDB and Spark), Java with Maven and Guava, Redis, a browser, nginx,
# promtool, mandoc, systemd-analyze, valgrind, Go; npm brings azurite, an Azure Blob server, and node-redis; Maven Central
# Kafka and HDFS, and the Go proxy fake-gcs-server. Fetched while the lints compile.
install_tools() {
  local need=() tools=target/test-tools
  python3 -c 'import venv, ensurepip' 2>/dev/null || need+=(python3 python3-venv)
  command -v javac >/dev/null || need+=(default-jdk-headless)
  command -v mvn >/dev/null || need+=(maven)
  [ -e /usr/share/java/guava.jar ] || need+=(libguava-java)
  command -v redis-server >/dev/null || need+=(redis-server)
  command -v chromedriver >/dev/null || need+=(chromium chromium-driver)
  command -v promtool >/dev/null || need+=(prometheus)
  command -v nginx >/dev/null || need+=(nginx-light)
  command -v mandoc >/dev/null || need+=(mandoc)
  command -v systemd-analyze >/dev/null || need+=(systemd)
  command -v valgrind >/dev/null || need+=(valgrind)
  command -v curl >/dev/null || need+=(curl)
  command -v go >/dev/null || need+=(golang-go)
  command -v script >/dev/null || need+=(bsdutils)
  command -v npm >/dev/null || need+=(npm)
  [ ${#need[@]} = 0 ] || debian "${need[@]}"
  local modules='moto, flask, blake3, xxhash, redis, w3lib, maturin, pytest, numpy, pyarrow, polars, pandas, duckdb, mypy, pyspark, grpc'
  if ! "$tools/bin/python" -c "import $modules" 2>/dev/null; then
    say "installing moto, maturin and columns into $tools"
    python3 -m venv "$tools"
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check \
      'moto[s3]==5.2.5' flask==3.1.3 flask-cors==6.0.5 blake3==1.0.11 xxhash==4.1.0 redis==8.1.0 w3lib==2.5.0 \
      maturin==1.16.0 pytest==9.2.0 numpy==2.4.6 pyarrow==26.0.1 polars==2.1.0 pandas==3.1.1 duckdb==2.0.0 mypy==2.4.1 'pyspark[connect]==4.3.0'
  fi
  # Two versions of Scrapy: one that scrapy-redis works with, and the newest.
  if ! "$tools/scrapy-2.12/bin/python" -c 'import scrapy, scrapy_redis_bloomfilter' 2>/dev/null; then
    say "installing Scrapy 2.12 into $tools"
    python3 -m venv "$tools/scrapy-2.12"
    "$tools/scrapy-2.12/bin/python" -m pip install --quiet --disable-pip-version-check Scrapy==2.12.0 \
      Twisted==24.11.0 w3lib==2.2.1 scrapy-redis==0.9.1 scrapy-redis-bloomfilter==0.8.1 redis==8.1.0 setuptools==84.2.1
  fi
  if ! "$tools/scrapy-2.19/bin/python" -c 'import scrapy' 2>/dev/null; then
    say "installing Scrapy 2.19 into $tools"
    python3 -m venv "$tools/scrapy-2.19"
    "$tools/scrapy-2.19/bin/python" -m pip install --quiet --disable-pip-version-check Scrapy==2.19.0 \
      Twisted==26.10.0 w3lib==2.5.0 setuptools==84.2.1
  fi
  tests/kafka/fetch.sh "$tools/kafka"
  if ! [ -x "$tools/node_modules/.bin/azurite-blob" ]; then
    say "installing azurite into $tools"
    npm install --silent --no-audit --no-fund --prefix "$tools" azurite@3.37.0
  fi
  if ! [ -e "$tools/node_modules/redis" ]; then
    say "installing node-redis into $tools"
    npm install --silent --no-audit --no-fund --prefix "$tools" redis@5.12.1
  fi
  # Hadoop's cluster for tests. The rest of Hadoop is in pyspark, of the same version.
  local jar=hadoop-client-minicluster sum=06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c
  if ! [ -e "$tools/hadoop/$jar.jar" ]; then
    say "installing HDFS into $tools"
    mkdir -p "$tools/hadoop"
    curl --fail --silent --show-error --location --retry 3 --output "$tools/hadoop/$jar.part" \
      "https://repo1.maven.org/maven2/org/apache/hadoop/$jar/3.5.0/$jar-3.5.0.jar"
    echo "$sum  $tools/hadoop/$jar.part" | sha256sum --check --quiet
    mv "$tools/hadoop/$jar.part" "$tools/hadoop/$jar.jar"
  fi
  # Its version, and those of all it needs, are in go.mod and go.sum.
  if ! [ "$tools/bin/fake-gcs-server" -nt tests/gcs/main.go ]; then
    say "building fake-gcs-server into $tools"
    (cd tests/gcs && go build -buildvcs=false -o "../../$tools/bin/fake-gcs-server" .)
  fi
}
installing_log=$(mktemp)
trap 'rm -f "$installing_log" "${others:-}"; kill $(jobs -rp) 2>/dev/null || true' EXIT
install_tools >"$installing_log" 2>&1 &
installing=$!

# 3. The program and its tests.
say "formatting"
cargo fmt --all --check
cargo fmt --manifest-path python/bloomsday/Cargo.toml --check
cargo fmt --manifest-path c/Cargo.toml --check
say "lints"
# One selection for lints and documentation: what the first compiles, the second uses.
all=(--locked --workspace --features bloomsday-tests/integration --quiet)
cargo clippy "${all[@]}" --all-targets -- -D warnings
# As they are released, with every kind of store; the tests build them without.
for folder in python/bloomsday c; do
  cargo clippy --locked --manifest-path "$folder/Cargo.toml" --target-dir target --all-targets --quiet -- -D warnings
done
say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc "${all[@]}" --no-deps
say "each feature alone"
# `alone FOLDER FEATURE…`: without any feature, then with each one and no other. A kind of store that a crate only passes
# on to `common` is left out: nothing in that crate depends on it. `architecture.rs` compares the lists with the manifests.
alone() {
  local folder=$1 feature
  shift
  for feature in "" "$@"; do
    cargo check --locked --quiet --manifest-path "$folder/Cargo.toml" --target-dir target --no-default-features \
      --features "$feature" || { echo "$folder does not compile with the features \"$feature\""; exit 1; }
  done
}
alone common aws azure gcp hdfs http-store redis
alone builder fuzzing
alone server http live resp redis-streams kafka
alone jobs kafka redis redis-streams
alone c
alone python/bloomsday
wait "$installing" || { cat "$installing_log"; exit 1; }
cat "$installing_log"
say "tests"
# The default members: the benchmark and the fuzz targets need not be built to test the rest.
tests=(cargo test --locked --features bloomsday-tests/integration --quiet)
"${tests[@]}" --no-run
# The packages in other languages and the kinds of stores at the same time as all else, since tests wait half of their
# time, for servers and timers. Each runs to its end, also after a failure: one run says what there is to mend.
others=$(mktemp)
rest=()
for group in tests/tests/* common/tests/*; do
  case $group in */clients | */store) ;; *) rest+=(--test "$(basename "$group" .rs)") ;; esac
done
RUST_TEST_THREADS=$((2 * $(nproc))) "${tests[@]}" --no-fail-fast --test clients --test store >"$others" 2>&1 &
waiting=$!
failed=
RUST_TEST_THREADS=$((1 + $(nproc))) "${tests[@]}" --no-fail-fast --lib --bins "${rest[@]}" || failed=1
wait "$waiting" || failed=1
cat "$others"
[ -z "$failed" ] || exit 1
"${tests[@]}" --doc
# Counted by valgrind, so ignored by a plain `cargo test`.
"${tests[@]}" --lib -- --ignored instructions
say "packages"
# Without compiling what is in them: before a release, the same without --no-verify.
cargo package --locked --workspace --exclude bloomsday-tests --exclude bloomsday-bench --exclude bloomsday-fuzz \
  --no-verify --allow-dirty --quiet
say "a short run of every fuzz target"
fuzz/run.sh
say "everything holds"
