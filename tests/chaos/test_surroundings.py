"""What the lanes break besides the swarm: the agent's tool and sandbox, the disk, the clock, the processes' keeper."""

import asyncio
import os
import signal
import sys
import time
from subprocess import PIPE, Popen

import psutil
import pytest

from swarm.testing.chaos.disk import SmallDisk, small_disk
from swarm.testing.chaos.orders import Mischief, Orders, Part
from swarm.testing.chaos.processes import Program, free_port, python
from swarm.testing.chaos.server import JumpingClock, set_jump
from swarm.testing.chaos.tool import ask_sandbox, ask_tool, checksum


def waited(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)
    return True


def serves(port):
    try:
        return asyncio.run(ask_tool(port, "ready")) == checksum("ready")
    except OSError:
        return False


@pytest.fixture
def orders(tmp_path):
    return Orders(tmp_path / "orders")


@pytest.fixture
def tool(tmp_path, orders):
    """A tool server that is kept running, and its port."""
    port = free_port()
    command = python("swarm.testing.chaos.tool", port, orders.folder)
    program = Program("tool", command, tmp_path / "tool.log", tmp_path / "shots")

    def answers():
        program.keep()
        return serves(port)

    waited(answers)
    yield port, program, answers
    program.end()


def test_an_order_is_taken_once(orders):
    assert orders.take(Part.TOOL) is None
    orders.give(Part.TOOL, Mischief.DIE)
    assert orders.pending(Part.TOOL)
    assert (orders.take(Part.TOOL), orders.take(Part.TOOL)) == (Mischief.DIE, None)
    assert not orders.pending(Part.TOOL)


def test_a_tool_that_dies_is_started_again(orders, tool):
    port, program, answers = tool
    orders.give(Part.TOOL, Mischief.DIE)
    with pytest.raises(OSError, match=r"hung up|reset"):
        asyncio.run(ask_tool(port, "x"))
    assert waited(answers)
    assert program.starts == 2


def test_a_tool_that_lies_is_found_out(orders, tool):
    port, _, _ = tool
    orders.give(Part.TOOL, Mischief.LIE)
    with pytest.raises(ValueError, match="not a number"):
        asyncio.run(ask_tool(port, "x"))


def test_a_sandbox_answers_dies_or_lies(orders):
    assert asyncio.run(ask_sandbox(orders, "x")) == checksum("x")
    for mischief in (Mischief.DIE, Mischief.LIE):
        orders.give(Part.SANDBOX, mischief)
        with pytest.raises(ValueError, match="invalid literal"):
            asyncio.run(ask_sandbox(orders, "x"))


def test_a_sandbox_that_hangs_is_ended_with_the_agent_that_waits_for_it(orders):
    orders.give(Part.SANDBOX, Mischief.HANG)

    async def impatient():
        async with asyncio.timeout(0.1):
            await ask_sandbox(orders, "x")

    with pytest.raises(TimeoutError):
        asyncio.run(impatient())


def test_a_full_disk_takes_no_byte_and_keeps_its_files(tmp_path):
    folder = tmp_path / "disk"
    with small_disk(folder) as disk:
        if not disk.mounted:
            pytest.skip("this user may not mount a small disk")
        (folder / "kept").write_text("kept")
        disk.fill()
        with pytest.raises(OSError, match="No space"):
            (folder / "more").write_text("x" * 5000)
        disk.free()
        (folder / "more").write_text("x" * 5000)
    assert sorted(path.name for path in folder.iterdir()) == ["kept", "more"]
    assert (folder / "kept").read_text() == "kept"


def test_without_a_mount_a_limit_keeps_a_process_from_writing(tmp_path):
    script = "import os, sys\nf = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
    script += "for line in sys.stdin:\n  os.write(f, line.encode())\n  print('ok', flush=True)\n"
    with Popen(
        [sys.executable, "-c", script, str(tmp_path / "f")], stdin=PIPE, stdout=PIPE, stderr=PIPE
    ) as process:
        disk = SmallDisk(tmp_path, mounted=False, pids=lambda: [process.pid])

        def write():
            process.stdin.write(b"line\n")
            process.stdin.flush()
            return process.stdout.readline()

        assert write() == b"ok\n"
        disk.fill()
        assert write() == b""
        assert b"File too large" in process.stderr.read()


def test_a_clock_jumps_and_comes_back(tmp_path):
    file = tmp_path / "clock"
    clock = JumpingClock(file)
    set_jump(file, -86400.0)
    assert clock.time() < time.time() - 86000
    set_jump(file, 0.0)
    assert abs(clock.time() - time.time()) < 60


def test_a_program_is_kept_until_it_has_done_its_work(tmp_path):
    marker = tmp_path / "second"
    script = f"import os, pathlib, sys\nm = pathlib.Path({str(marker)!r})\n"
    script += "first = not m.exists()\nm.touch()\nsys.exit(7 if first else 0)"
    program = Program("p", [sys.executable, "-c", script], tmp_path / "log", tmp_path / "shots")
    waited(lambda: program.keep() or program.ended_well)
    assert waited(lambda: program.keep() or program.ended_well)
    waited(lambda: not program.keep() and program.ended_well)
    assert program.starts == 2
    program.end()


def test_a_stopped_program_counts_as_alive_and_can_be_ended(tmp_path):
    program = Program("p", ["sleep", "60"], tmp_path / "log", tmp_path / "shots")
    program.keep()
    os.kill(program.pid, signal.SIGSTOP)
    assert program.alive
    program.end()
    assert not program.alive


def test_a_process_of_a_proof_ends_when_its_parent_is_killed(tmp_path):
    orders = tmp_path / "orders"
    port = free_port()
    command = python("swarm.testing.chaos.tool", port, orders)
    script = f"import subprocess, time\np = subprocess.Popen({command!r})\n"
    script += "print(p.pid, flush=True)\ntime.sleep(60)\n"
    with Popen([sys.executable, "-c", script], stdout=PIPE) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        waited(lambda: serves(port))
        parent.kill()
    waited(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
