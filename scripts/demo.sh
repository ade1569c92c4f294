#!/usr/bin/env bash
# The example campaign from goal to verified report. Progress goes to stderr as it happens.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

a3r=${VENV:-.venv}/bin/a3r
goal=campaigns/min_batch_size/goal.md
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1

# With --json stdout carries exactly one document; it names the report when the campaign is done.
answer=$("$a3r" campaign start "$goal" --review none --watch --json) || {
  status=$?
  printf '%s\n' "$answer"
  echo "demo: the campaign did not finish. 'a3r campaign list' shows it, 'a3r campaign resume' goes on." >&2
  exit "$status"
}
report=$(printf '%s' "$answer" | "${VENV:-.venv}/bin/python" -c 'import json, sys; print(json.load(sys.stdin)["report"])')
"$a3r" campaign verify "$report"
echo "demo: read $report"
