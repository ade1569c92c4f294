#!/usr/bin/env bash
# The tests that need verl, in the environment of scripts/setup_verl.sh: those of the engine, then those of the swarm that run
# on every engine. ARGS go to pytest, and then choose the tests: make test-verl ARGS="tests/swarm/service/test_groups.py".
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1

run() { "${VENV_VERL:-.venv-verl}/bin/python" -m pytest -m verl -p no:cacheprovider "$@"; }

if [ $# -gt 0 ]; then
  run "$@"
  exit
fi
mapfile -t shared < <(grep -rlE 'mark\.every_engine' tests/swarm --include='test_*.py')
code=0
run tests/swarm/engine_verl || code=$?
# Another process: two Rays at once are too many for a small machine.
run "${shared[@]}" || code=$?
exit "$code"
