"""Errors that only a client can have; everything the server says arrives as a class of ``swarm.protocol.errors``.

Tree::

    SwarmError
    ├── TrainingComplete   the server reached stop_at_step; no train episode will be granted any more
    ├── WaitTimeout        a wait passed its deadline while the server was answering (also a ``TimeoutError``)
    ├── TooManyFailures    run_episodes stops: nothing has succeeded for a long time
    ├── ExternalModelDown  an external model of a swarm group does not answer; nobody's failure
    └── ClientUsageError   an argument that can never work (a negative ``parallel``, an empty task list, ...)
        └── ProgramNotStarted   exec: the program does not exist or may not be run
"""

from __future__ import annotations

from swarm.protocol.errors import SwarmError


class TrainingComplete(SwarmError):
    """The server is TRAINED: train grants have ended, evaluation goes on."""

    code = "training_complete"
    status = 409


class WaitTimeout(SwarmError, TimeoutError):
    """A wait passed its deadline although the server answers; the text says what the server waits for."""

    code = "wait_timeout"
    status = 408


class TooManyFailures(SwarmError):
    """Too many episodes failed in a row without one success; the first traceback is part of the text."""

    code = "too_many_failures"
    status = 500


class ExternalModelDown(SwarmError):
    """An external model did not answer within its patience. The episode is aborted; it says nothing of the agent."""

    code = "external_model_down"
    status = 503


class ClientUsageError(SwarmError):
    """An argument of the client that can never work."""

    code = "client_usage"
    status = 400


class ProgramNotStarted(ClientUsageError):
    """The program of ``swarm exec`` does not exist or may not be run."""

    code = "program_not_started"
