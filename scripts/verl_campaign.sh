#!/usr/bin/env bash
# verl_campaign.sh [GOAL]: a campaign on the engine verl, from goal to verified report. Needs `make setup-verl`.
# Daemon, worker and servers live in that environment. Progress goes to stderr; the workspace is a new folder, and its report stays.
#   VENV_VERL  the environment (default: .venv-verl)
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. scripts/to_report.sh

bin=${VENV_VERL:-.venv-verl}/bin
goal=${1:-campaigns/verl-smoke}
[ -x "$bin/a3r" ] || { echo "error: there is no $bin/a3r; run 'make setup-verl' first" >&2; exit 2; }
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1

# A workspace of its own: the daemon of another one may run in another environment.
place=$(mktemp -d)
export A3R_HOME=$place/.a3r
trap '"$bin/a3r" daemon stop --with-worker >/dev/null 2>&1 || true' EXIT
to_report "$goal" "the campaign did not finish: A3R_HOME=$A3R_HOME $bin/a3r campaign list"
