#!/usr/bin/env bash
# A goal in prose: read, planned and its client written through a language model, here a scripted stand-in.
set -euo pipefail
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/with_stand_in.sh" prose-study campaigns/in-prose
