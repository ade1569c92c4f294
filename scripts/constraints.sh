#!/usr/bin/env bash
# Rewrites constraints.txt from a real, unpinned install into a fresh environment.
# torch stays at the version that constraints.txt names: raise it by editing that line first.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
VENV=$scratch/venv bash scripts/setup.sh --unpinned

{
  echo "# Exact versions that fit together, for \`pip install -e '.[all,dev]' -c constraints.txt\`"
  echo "# and for the extras docs, loggers, datasets and pools beside it. A constraint installs nothing by itself."
  echo "# Made by \`make constraints\` (a fresh environment, then pip freeze). Do not edit by hand, but"
  echo "# for the torch line: the one place that names torch's version, without +cpu or +cu, because"
  echo "# scripts/setup.sh chooses the build per machine. CUDA packages of a GPU build are left out."
  "$scratch/venv/bin/python" -m pip freeze --exclude-editable --exclude a3r --exclude setuptools |
    sed 's/^\(torch==[^+]*\)+.*/\1/' |
    awk '/^nvidia-ml-py==/ || !/^(nvidia-|cuda-|triton==)/'
} > "$scratch/constraints.txt"
grep -q '^torch==' "$scratch/constraints.txt" || { echo "constraints: torch is missing" >&2; exit 1; }
cp "$scratch/constraints.txt" constraints.txt
echo "constraints: wrote constraints.txt ($(grep -c == constraints.txt) packages)"
