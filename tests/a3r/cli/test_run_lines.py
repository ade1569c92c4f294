from a3r.cli.run import telling_lines
from a3r.cli.run_screen import failing_log


def test_the_end_of_the_last_traceback_is_told_and_not_what_was_said_after_it():
    frames = "".join(f'  File "a.py", line {n}, in f\n    f()\n' for n in range(20))
    after = "".join(f"shutting down {n}\n" for n in range(30))
    data = f"start\nTraceback (most recent call last):\n{frames}ValueError: the reason\n{after}"
    lines = telling_lines(data.encode())
    assert lines[-1] == "ValueError: the reason"
    assert len(lines) == 12
    assert telling_lines(b"a\nb\n--- a3r end x ---\n") == ["a", "b"]
    assert telling_lines(b"") == []


def test_the_log_of_the_process_that_the_reason_names_is_shown_and_its_end_where_it_is_apart():
    attempt = {"state": "failed", "failure": "server_crash", "reason": "server: exit code 1"}
    logs = {"client": 10, "server": 10}
    assert failing_log({"attempts": [{**attempt, "logs": logs}]}) == "server"
    logs["server.tail"] = 5
    assert failing_log({"attempts": [{**attempt, "logs": logs}]}) == "server.tail"
    assert failing_log({"attempts": []}) is None
