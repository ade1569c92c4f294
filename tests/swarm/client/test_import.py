"""The client is light: what it imports, and how long that takes."""

from __future__ import annotations

import subprocess
import sys

FORBIDDEN = ("torch", "transformers", "fastapi", "starlette", "msgspec", "openai", "httpx", "numpy")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_every_public_name_loads_no_heavy_module() -> None:
    code = (
        "import sys, swarm.client as c\n"
        "[getattr(c, name) for name in c.__all__]\n"
        f"print([m for m in {FORBIDDEN!r} if m in sys.modules])"
    )
    assert run(code).strip() == "[]"


def test_the_package_imports_in_a_fraction_of_its_budget() -> None:
    code = (
        "import time; t = time.perf_counter(); import swarm.client; print(time.perf_counter() - t)"
    )
    assert min(float(run(code)) for _ in range(3)) < 0.3


def test_a_synchronous_user_does_not_load_aiohttp() -> None:
    code = "import sys; from swarm.client import SwarmClient; print('aiohttp' in sys.modules)"
    assert run(code).strip() == "False"


def test_an_unknown_name_is_an_attribute_error() -> None:
    code = "import swarm.client\ntry: swarm.client.Nothing\nexcept AttributeError as e: print(e)"
    assert "Nothing" in run(code)
