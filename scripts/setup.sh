#!/usr/bin/env bash
# Makes a virtual environment with everything that developing, testing and the demo need.
#
# Safe to run again: a stamp of pyproject.toml, constraints.txt and this file makes the next run
# instant, and an interrupted run leaves no stamp. Variables that change what it does:
#   PYTHON           the interpreter to use          (default: the first Python >= 3.11 found)
#   VENV             where the environment goes      (default: .venv)
#   TORCH_INDEX_URL  an index that has torch's CPU builds (default: PyTorch's own)
# `--unpinned` resolves every extra afresh, only torch stays pinned: for scripts/constraints.sh.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

VENV=${VENV:-.venv}
venv_python=$VENV/bin/python
requirements=(-c constraints.txt -e '.[all,dev]')
if [ "${1:-}" = --unpinned ]; then requirements=(-e '.[all,dev,docs,loggers,datasets,pools]'); fi

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }
. scripts/torch.sh
can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }
apt_install() {
  say "installing $* with apt-get"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

is_new_enough() {
  # Running it is the test: a version manager's shim can be on PATH and still refuse to start.
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python >= 3.11."
    printf '%s\n' "$PYTHON"
    return
  fi
  for candidate in python3 python3.13 python3.12 python3.11 python; do
    if is_new_enough "$candidate"; then printf '%s\n' "$candidate"; return; fi
  done
  fail "no Python >= 3.11 found. Install one, or name it: make setup PYTHON=/path/to/python3"
}

create_venv() {
  local python
  python=$(find_python)
  say "creating $VENV with $("$python" --version 2>&1)"
  if ! "$python" -m venv --clear "$VENV" >/dev/null 2>&1; then
    # Debian ships the venv module apart from the interpreter.
    can_apt || fail "'$python -m venv' does not work. On Debian or Ubuntu: apt-get install python3-venv"
    apt_install python3-venv
    "$python" -m venv --clear "$VENV" || fail "'$python -m venv $VENV' does not work."
  fi
  pwd > "$VENV/.root"
}

has_usable_venv() {
  # Scripts in a venv carry its absolute path, so one that was moved or copied is made anew.
  grep -qxF -- "$PWD" "$VENV/.root" 2>/dev/null && "$venv_python" -m pip --version >/dev/null 2>&1
}

pip_install() {
  if "$venv_python" -m pip install --disable-pip-version-check --progress-bar off "$@" \
    >> "$VENV/setup.log" 2>&1; then return; fi
  printf 'setup: pip failed; the end of %s:\n' "$VENV/setup.log" >&2
  tail -n 6 "$VENV/setup.log" >&2
  return 1
}

upgrade_old_pip() {
  # The torch probe below needs `pip install --dry-run --report`, which came with pip 22.2.
  "$venv_python" -c 'import pip, sys; sys.exit(int(pip.__version__.split(".")[0]) < 23)' && return
  say "upgrading a pip older than 23"
  pip_install --upgrade 'pip>=23'
}

ensure_tmux() {
  if command -v tmux >/dev/null 2>&1; then return; fi
  if can_apt && apt_install tmux; then return; fi
  say "tmux is missing. It is only the window in which you watch runs: tests that need it are"
  say "skipped and the demo goes on. To have it: 'apt-get install tmux' or 'brew install tmux'."
}

stamp=$VENV/.stamp-$(cat pyproject.toml constraints.txt scripts/setup.sh scripts/torch.sh | cksum | tr ' ' '-')
if [ -f "$stamp" ] && has_usable_venv; then
  say "$VENV is up to date"
  exit 0
fi
has_usable_venv || create_venv
rm -f "$VENV"/.stamp-*
upgrade_old_pip
install_torch constraints.txt
say "installing the project and its requirements (minutes on a slow link; log: $VENV/setup.log)"
pip_install "${requirements[@]}"
ensure_tmux
touch "$stamp"
say "$VENV is ready"
