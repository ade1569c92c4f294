"""``python -m a3r.hosts.hub_trial ADDRESS [CA_FILE]``: is the hub there, seen from this host? One JSON object on stdout."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from a3r.worker.unix_http import PLAIN_URL, SCHEME, UnixManager

TIMEOUT_S = 10.0


def main(arguments: list[str]) -> int:
    """Ask for the hub's health; 0 when it answers."""
    address = arguments[0]
    trust: dict[str, Any] = {"ca_certs": arguments[1]} if len(arguments) > 1 else {}
    if address.startswith(SCHEME):
        url = PLAIN_URL
        pool = UnixManager(Path(address.removeprefix(SCHEME)), maxsize=1)
    else:
        url, pool = address.rstrip("/"), urllib3.PoolManager(retries=False, **trust)
    begun = time.monotonic()
    try:
        response = pool.request(
            "GET", f"{url}/health", timeout=urllib3.Timeout(total=TIMEOUT_S), redirect=False
        )
        told: dict[str, Any] = {"ok": response.status == 200, "status": response.status}
    except (HTTPError, OSError) as error:
        told = {"ok": False, "error": str(error)}
    told["ms"] = round((time.monotonic() - begun) * 1000)
    sys.stdout.write(json.dumps(told) + "\n")
    return 0 if told["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
