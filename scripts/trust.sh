#!/usr/bin/env bash
# Measures the trust figures and prints them beside their goals; exit code 1 when one is missed.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

export OMP_NUM_THREADS=1 MPLBACKEND=Agg PYTHONUNBUFFERED=1
exec "${VENV:-.venv}/bin/python" -m a3r.testing.trust "$@"
