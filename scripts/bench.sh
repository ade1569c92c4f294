#!/usr/bin/env bash
# Runs every benchmark in benchmarks/ (or the ones named), one after the other.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
if [ $# = 0 ]; then set -- benchmarks/bench_*.py benchmarks/endpoint.py; fi
[ -e "$1" ] || { echo "bench: no benchmark $1" >&2; exit 1; }
for script in "$@"; do
  echo "bench: $script"
  "${VENV:-.venv}/bin/python" "$script"
done
