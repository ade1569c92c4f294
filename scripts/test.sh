#!/usr/bin/env bash
# Runs pytest in the environment that tests expect; arguments go to pytest.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# One thread a process: the tests start several, and tiny tensors are slower on many threads.
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
# Two files at a time: many tests wait for processes. `make test ARGS="-n 0"` runs them one by one.
exec "${VENV:-.venv}/bin/python" -m pytest -n 2 --dist loadfile "$@"
