"""Many small checks in one program: each prints one JSON line, ``{"check", "problem"}``; an empty problem means it passed."""

import json
import traceback
from collections.abc import Callable

CHECKS: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Register a check; its docstring is its name in the report, an exception its failure."""
    CHECKS.append(function)
    return function


def run_checks() -> None:
    """Run all of them in order."""
    for function in CHECKS:
        problem = ""
        try:
            function()
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[1].line if error.__traceback__ else ""
            problem = f"{type(error).__name__} at {line!r}: {str(error)[:600]}"
        print(json.dumps({"check": function.__doc__, "problem": problem}), flush=True)


def equal(found: object, wanted: object) -> None:
    """Fail unless both are equal."""
    if found != wanted:
        raise AssertionError(f"{found!r} is not {wanted!r}")


def raises(kind: type[Exception], action: Callable[[], object]) -> Exception:
    """Return the exception of that kind that ``action`` must raise."""
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")
