"""``python -m a3r.worker.enlist``: what a pool's job runs. Makes a workspace, gets a token for the ticket, becomes ``a3r worker start``.

The job's process *is* the worker from then on, so signals of the cluster reach it. A guard in a session of its own outlives it:
when the cluster kills the worker, it ends what the worker's supervisors keep alive, and clears the workspace away.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import MutableMapping, Sequence
from pathlib import Path

import urllib3
from urllib3.exceptions import HTTPError

from a3r.core.pools import CA_VARIABLE, TICKET_VARIABLE
from a3r.worker.private import write_private

PATIENCE_S = 120.0
"""The hub may be restarting just now."""
GAP_S = 2.0
TIMEOUT_S = 20.0


class NotEnlisted(Exception):
    """The hub gives no token; the job ends."""


def parser() -> argparse.ArgumentParser:
    """The options; everything after them goes to ``a3r worker start``."""
    options = argparse.ArgumentParser(
        # No abbreviations: "--pool" is an option of the worker.
        prog="a3r.worker.enlist",
        description=__doc__,
        allow_abbrev=False,
    )
    options.add_argument("--hub", required=True)
    options.add_argument("--pool-job", required=True)
    options.add_argument("--scratch", default="", help="parent of the workspace; default: TMPDIR")
    return options


def main() -> None:
    """Parse, enlist, become the worker."""
    options, rest = parser().parse_known_args()
    try:
        argv = enlist(options.hub, options.pool_job, options.scratch, rest, os.environ)
    except NotEnlisted as error:
        sys.exit(f"error: {error}")
    os.execv(argv[0], argv)  # noqa: S606 - a list of arguments, no shell


def enlist(
    hub: str, job: str, scratch: str, rest: Sequence[str], environ: MutableMapping[str, str]
) -> list[str]:
    """Make the workspace and its token file, start the guard; returns the worker's command.

    The ticket is taken out of ``environ``: nothing that the worker starts shall see it.

    Raises:
        NotEnlisted: no ticket, a hub that refuses it, or one that does not answer for two minutes.
    """
    ticket, trust = environ.pop(TICKET_VARIABLE, ""), environ.pop(CA_VARIABLE, "")
    if not ticket:
        raise NotEnlisted(f"{TICKET_VARIABLE} is not set: this command is for jobs of a pool")
    token = _token(hub, job, ticket, trust)
    # Fresh in every case: a job that the cluster runs a second time is another worker.
    home = Path(tempfile.mkdtemp(prefix=f"a3r-{job}-", dir=scratch or None))
    command = [sys.executable, "-m", "a3r", "worker", "start", "--hub", hub]
    if trust:
        (home / "hub.pem").write_text(trust, encoding="utf-8")
        command += ["--ca-file", str(home / "hub.pem")]
    token_file = home / "worker.token"
    write_private(token_file, token)
    start_guard(home)
    command += ["--token-file", str(token_file), "--workspace", str(home), "--pool-job", job]
    return [*command, *rest]


def _token(hub: str, job: str, ticket: str, trust: str) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            status, data = _exchange(hub, job, ticket, trust)
        except (HTTPError, OSError) as error:
            why = f"the hub at {hub} does not answer ({type(error).__name__})"
        else:
            if status == 200:
                return str(json.loads(data)["token"])
            why = f"the hub at {hub} answered {status}: {_words(data)}"
            if status < 500:
                raise NotEnlisted(why)
        if time.monotonic() > deadline:
            raise NotEnlisted(why)
        time.sleep(GAP_S)


def _exchange(hub: str, job: str, ticket: str, trust: str) -> tuple[int, bytes]:
    context = ssl.create_default_context(cadata=trust) if trust else None
    headers = {"Authorization": f"Bearer {ticket}", "Content-Type": "application/json"}
    with urllib3.PoolManager(retries=False, ssl_context=context) as pool:
        answer = pool.request(
            "POST",
            f"{hub.rstrip('/')}/worker/v1/enlist",
            body=json.dumps({"pool_job": job}).encode(),
            headers=headers,
            timeout=TIMEOUT_S,
            redirect=False,
        )
        return answer.status, answer.data


def _words(data: bytes) -> str:
    """The message of an error, or the beginning of whatever came."""
    try:
        return str(json.loads(data)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return data[:200].decode("utf-8", "replace")


def start_guard(home: Path) -> int:
    """Start the guard of the workspace; returns the descriptor that must stay open for as long as the worker lives.

    It is inherited by the worker that this process becomes, and by nothing that the worker starts.
    """
    ours, its = os.pipe()
    os.set_inheritable(its, True)
    log = (home / "guard.log").open("ab")
    with log:
        subprocess.run(
            [sys.executable, "-m", "a3r.worker.pool_guard", str(home)],
            stdin=ours,
            stdout=log,
            stderr=log,
            check=True,  # it goes on in the background
        )
    os.close(ours)
    return its


if __name__ == "__main__":
    main()
