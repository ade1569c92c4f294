# Sourced by setup.sh and setup_verl.sh: torch in the build for this machine, a GPU's or a CPU's.
#
# Needs `say`, `fail`, `pip_install` and $venv_python of who sources it.
#   TORCH_INDEX_URL  an index that has torch's CPU builds (default: PyTorch's own)
TORCH_INDEX_URL=${TORCH_INDEX_URL:-https://download.pytorch.org/whl/cpu}

has_gpu() {
  # nvidia-smi asks the driver; an installed toolkit (nvcc) says nothing about a device.
  case "$(nvidia-smi -L 2>/dev/null || true)" in "GPU "*) return 0 ;; *) return 1 ;; esac
}

plain_wheel_is_cpu() {
  local url
  url=$("$venv_python" -m pip install -qq --dry-run --no-deps --report - "$1" 2>/dev/null |
    "$venv_python" -c 'import json, sys
print(json.load(sys.stdin)["install"][0]["download_info"]["url"])' 2>/dev/null) || return 1
  case "$url" in *+cpu* | *%2Bcpu* | *%2bcpu*) return 0 ;; *) return 1 ;; esac
}

install_torch() {
  # install_torch CONSTRAINTS: the version that the file names, in the build for this machine.
  # --no-deps: torch's own requirements come with the project's, from the ordinary index.
  local pin
  pin=$(sed -n 's/^\(torch==[^+ ]*\).*/\1/p' "$1")
  [ -n "$pin" ] || fail "$1 has no line 'torch==VERSION'."
  if "$venv_python" -c 'import importlib.metadata as m, sys
sys.exit(m.version("torch").split("+")[0] != sys.argv[1])' "${pin#torch==}" 2>/dev/null; then
    return
  fi
  if [ "$(uname -s)" != Linux ]; then
    say "installing $pin"
  elif has_gpu; then
    say "installing $pin for the GPU that nvidia-smi reports"
  elif plain_wheel_is_cpu "$pin"; then
    say "installing $pin (the configured package index offers a CPU build)"
  else
    say "installing $pin, CPU build, from $TORCH_INDEX_URL"
    if pip_install --no-deps --retries 1 --index-url "$TORCH_INDEX_URL" "$pin"; then return; fi
    say "that index did not work; taking the default build, which may bring CUDA (several GB)"
  fi
  pip_install --no-deps "$pin"
}
