#!/usr/bin/env bash
# The tests that need verl, in the environment of scripts/setup_verl.sh. ARGS go to pytest.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
exec "${VENV_VERL:-.venv-verl}/bin/python" -m pytest tests/swarm/engine_verl -m verl -p no:cacheprovider "$@"
