#!/usr/bin/env bash
# verl_campaign.sh [GOAL]: a campaign on the engine verl, from goal to verified report. Needs `make setup-verl`.
# Daemon, worker and servers live in that environment. Progress goes to stderr; the workspace is a new folder, and its report stays.
#   VENV_VERL  the environment (default: .venv-verl)
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

bin=${VENV_VERL:-.venv-verl}/bin
goal=${1:-campaigns/verl-smoke}
[ -x "$bin/a3r" ] || { echo "error: there is no $bin/a3r; run 'make setup-verl' first" >&2; exit 2; }
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1

# A workspace of its own: the daemon of another one may run in another environment.
place=$(mktemp -d)
export A3R_HOME=$place/.a3r
trap '"$bin/a3r" daemon stop --with-worker >/dev/null 2>&1 || true' EXIT
answer=$("$bin/a3r" campaign start "$goal" --review none --watch --json) || {
  status=$?
  printf '%s\n' "$answer"
  echo "the campaign did not finish: A3R_HOME=$A3R_HOME $bin/a3r campaign list" >&2
  exit "$status"
}
report=$(printf '%s' "$answer" | "$bin/python" -c 'import json, sys; print(json.load(sys.stdin)["report"])')
"$bin/a3r" campaign verify "$report"
echo "read $report"
