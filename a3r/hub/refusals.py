"""The one error that only the hub knows; apart from ``errors`` so that the light client can import it."""

from __future__ import annotations

from a3r.core.errors import A3RError


class RequestInvalid(A3RError):
    """A request body or parameter of the wrong form."""

    code = "request_invalid"
    exit_code = 2
    status = 400
