"""Campaigns through real processes, with a language model over HTTP that is a script."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, suppress

import pytest

from a3r.testing.stand_in.server import StandIn


@pytest.fixture
def led_by(tmp_path):
    """``led_by(script)``: the command ``a3r`` in a workspace of its own, led by that script; its daemon is ended."""
    with ExitStack() as stack:

        def begin(script):
            model = stack.enter_context(StandIn(script))
            env = {k: v for k, v in os.environ.items() if not k.startswith("A3R_")}
            env |= {
                "A3R_HOME": str(tmp_path / "Ort mit Ü" / ".a3r"),
                "A3R_LLM": "openai/stand-in",
                "A3R_LLM_BASE_URL": model.url,
                "A3R_LLM_PRICE": "1,4",
                "OPENAI_API_KEY": "none",
                "OMP_NUM_THREADS": "1",
            }

            def run(*arguments, timeout=420):
                return subprocess.run(
                    [sys.executable, "-c", "from a3r.cli import main; main()", *arguments],
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=timeout,
                )

            def stop():
                with suppress(subprocess.TimeoutExpired):
                    run("daemon", "stop", timeout=30)

            stack.callback(stop)
            run.model = model
            return run

        yield begin
