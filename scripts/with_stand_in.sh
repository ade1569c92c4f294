#!/usr/bin/env bash
# with_stand_in.sh SCRIPT GOAL: a campaign from goal to verified report, with a script in the language model's place.
# Scripts: a3r/testing/stand_in/scripts.py. Progress goes to stderr; the workspace is a new folder, and its report stays.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. scripts/to_report.sh

bin=${VENV:-.venv}/bin
[ -x "$bin/a3r" ] || { echo "error: there is no $bin/a3r; run 'make setup' first" >&2; exit 2; }
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1

# The stand-in ends with this script; its first lines are the settings that use it.
exec 3< <(exec "$bin/python" -m a3r.testing.stand_in --script "$1")
standin=$!
trap '"$bin/a3r" daemon stop --with-worker >/dev/null 2>&1 || true; kill "$standin" 2>/dev/null || true' EXIT
for _ in 1 2 3; do
  read -r _ setting <&3
  export "${setting?}"
done

# A workspace of its own: the daemon of another one may run with other settings.
place=$(mktemp -d)
export A3R_HOME=$place/.a3r
to_report "$2" "the campaign did not finish: A3R_HOME=$A3R_HOME $bin/a3r campaign list"
