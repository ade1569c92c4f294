#!/usr/bin/env bash
# The example campaign from goal to verified report. Progress goes to stderr as it happens.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. scripts/to_report.sh

bin=${VENV:-.venv}/bin
goal=campaigns/min_batch_size/goal.md
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1

to_report "$goal" "demo: the campaign did not finish. 'a3r campaign list' shows it, 'a3r campaign resume' goes on." "demo: "
