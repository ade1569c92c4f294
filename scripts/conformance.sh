#!/usr/bin/env bash
# Runs the outside checks of the endpoint (or those named). Needs PyPI and npm; keeps what it installs in .conformance/.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
exec "${VENV:-.venv}/bin/python" -m conformance "$@"
