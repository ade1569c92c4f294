"""For all tests: servers that tests start are not listed among those of the person who runs the tests, and Ctrl-C reaches what they start.

A test that failed and passed when it was run again (`scripts/test.sh`) is told of, with how it failed.
"""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state_home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A shell lets what it starts in the background ignore SIGINT, and that would be inherited by every process under test."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how tests failed that passed when they were run again: that is evidence of a fault."""
    failed = {report.nodeid for report in terminalreporter.getreports("failed")}
    first_runs = [r for r in terminalreporter.getreports("rerun") if r.nodeid not in failed]
    if first_runs:
        terminalreporter.section("run again and passed: a fault to mend")
    for report in first_runs:
        terminalreporter.section(report.nodeid, sep="_")
        terminalreporter.write_line(report.longreprtext)
