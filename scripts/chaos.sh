#!/usr/bin/env bash
# Runs one of the proofs that take minutes (a module), with its arguments.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
exec "${VENV:-.venv}/bin/python" -m "$@"
