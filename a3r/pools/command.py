"""What a job of a pool runs: the same worker as everywhere, after its ticket is exchanged for a token."""

from __future__ import annotations

import sys
from pathlib import Path

from a3r.core.errors import PoolRefused
from a3r.core.pools import CA_VARIABLE, TICKET_VARIABLE, JobAsk, PoolKind
from a3r.store.rows import PoolRow


def job_ask(pool: PoolRow, job_id: str, ticket: str, local_url: str) -> JobAsk:
    """The job for one worker. ``local_url`` is the hub on this machine, for pools that run here.

    Raises:
        PoolRefused: the certificate file is gone.
    """
    options = pool.options
    shared = pool.kind in (PoolKind.LOCAL, PoolKind.SLURM)
    python = options.python or (sys.executable if shared else "python")
    argv = [python, "-m", "a3r.worker.enlist", "--hub", options.hub_url or local_url]
    argv += ["--pool-job", job_id]
    if options.scratch:
        argv += ["--scratch", options.scratch]
    argv += ["--pool", pool.name, "--slots", str(options.slots)]
    argv += ["--idle-exit-s", f"{options.idle_exit_s:g}"]
    env = {TICKET_VARIABLE: ticket}
    if options.ca_file:
        try:
            env[CA_VARIABLE] = Path(options.ca_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PoolRefused(
                f"the certificate {options.ca_file!r} cannot be read: {error}",
                hint=f"`a3r pool add {pool.name} …` again with the right --ca-file",
            ) from error
    return JobAsk(job_id, tuple(argv), env)
