#!/usr/bin/env bash
# The campaign whose first client is broken, from goal to verified report, with a script in the language model's place.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

bin=${VENV:-.venv}/bin
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1

# The stand-in ends with this script; its first line names its address.
exec 3< <(exec "$bin/python" -m a3r.testing.stand_in.mending)
standin=$!
trap '"$bin/a3r" daemon stop >/dev/null 2>&1 || true; kill "$standin" 2>/dev/null || true' EXIT
read -r A3R_LLM_BASE_URL <&3
export A3R_LLM=openai/stand-in A3R_LLM_BASE_URL A3R_LLM_PRICE=1,4 OPENAI_API_KEY=none

# A workspace of its own: the daemon of another one may run with other settings.
place=$(mktemp -d)
export A3R_HOME=$place/.a3r
answer=$("$bin/a3r" campaign start campaigns/broken-client --review none --watch --json) || {
  status=$?
  printf '%s\n' "$answer"
  echo "broken client: the campaign did not finish; 'a3r campaign show' says why" >&2
  exit "$status"
}
report=$(printf '%s' "$answer" | "$bin/python" -c 'import json, sys; print(json.load(sys.stdin)["report"])')
"$bin/a3r" campaign verify "$report"
echo "broken client: read $report"
