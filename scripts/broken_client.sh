#!/usr/bin/env bash
# The campaign whose first client is broken: repaired through a language model, here a scripted stand-in.
set -euo pipefail
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/with_stand_in.sh" mending campaigns/broken-client
