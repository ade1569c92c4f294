import pytest

from a3r.worker.logs import LONGEST_LINE, clean_lines, keep_tail, read_tail
from a3r.worker.scrape.follow import LogFollower
from a3r.worker.scrape.trainers import SCRAPERS, TrlScraper, VerlScraper


def test_lines_are_shown_as_a_person_would_have_seen_them():
    data = b"a\xff\r\n10%\r50%\r100%\n\n\0b\0\n" + b"x" * 5000 + b"\nend"
    lines = clean_lines(data)
    assert lines[:3] == ["a\ufffd", "100%", "b"]
    assert (len(lines[3]), lines[3][-6:], lines[4]) == (LONGEST_LINE + 6, " [...]", "end")
    assert clean_lines(b"") == clean_lines(b"\n\r\n") == []


def test_the_end_of_a_log_is_read_over_its_files_oldest_first(tmp_path):
    log = tmp_path / "client.log"
    assert read_tail(log, 10) == b""
    log.write_bytes(b"0123456789")
    assert read_tail(log, 4) == b"6789"
    assert read_tail(log, 100, begin=7) == b"789"
    assert read_tail(log, 100, begin=99) == b"0123456789"  # it was truncated since
    (tmp_path / "client.log.2").write_bytes(b"abc")
    (tmp_path / "client.log.1").write_bytes(b"xyz")
    assert read_tail(log, 5) == b"bcxyz"
    assert read_tail(log, 8, begin=8) == b"89abcxyz"


def test_only_a_log_that_went_on_elsewhere_gets_a_file_with_its_end(tmp_path):
    log = tmp_path / "client.log"
    log.write_bytes(b"begin\n")
    assert keep_tail(log) is None
    (tmp_path / "client.log.1").write_bytes(b"end\n")
    assert keep_tail(log).name == "client.tail"
    assert keep_tail(log).read_bytes() == b"begin\nend\n"


def test_the_end_of_a_log_of_many_pieces_is_that_of_the_program(bench):
    code = "import sys\nfor n in range(4000): sys.stdout.write(f'{n} ' + 'x' * 60 + chr(10))\nsys.exit(3)"
    spec_limit = 32 * 1024
    process = bench.start(code, rotate_bytes=spec_limit)
    bench.ended(process)
    assert (bench.folder / "logs" / "client.log.1").exists()
    tail = process.log_tail(300).decode()
    assert "3999 xxx" in tail
    assert "code=3" in tail


VERL = (
    "\x1b[36m(TaskRunner pid=77)\x1b[0m step:12 - actor/entropy:0.31 - actor/pg_loss:np.float64(-0.01) - "
    "critic/score/mean:0.5 - actor/grad_norm:nan - perf/throughput:812.5 - response_length/mean:101.0"
)


def test_a_line_of_verl_is_read_and_what_is_not_finite_is_named():
    found = VerlScraper().line(VERL)
    assert found.step == 12
    assert found.metrics == {
        "entropy": 0.31,
        "loss": -0.01,
        "reward_mean": 0.5,
        "response_tokens_mean": 101.0,
        "perf/throughput": 812.5,
    }
    assert found.not_finite == ("grad_norm",)
    assert VerlScraper().line("step: no number") is None


def test_lines_of_trl_are_counted_unless_a_progress_bar_tells_the_step():
    reader = TrlScraper()
    line = "{'loss': 0.02, 'grad_norm': tensor(1.5), 'reward': 0.4, 'kl': 1e-05, 'epoch': 0.1}"
    first, second = reader.line(line), reader.line(line)
    assert (first.step, second.step) == (1, 2)
    assert first.metrics["reward_mean"] == 0.4
    assert (first.metrics["grad_norm"], first.metrics["kl"]) == (1.5, 1e-05)
    assert reader.line(" 12%|#2        | 12/100 [00:10<01:20,  1.1it/s]") is None
    assert reader.line(line).step == 12
    assert reader.line("{'eval_loss': 0.3, 'epoch': 1.0}") is None
    assert reader.line("{'train_runtime': 12.5, 'train_loss': 0.3}") is None
    assert reader.line("{'loss': 'nan', 'step': 40}").not_finite == ("loss",)


def test_lightning_counts_over_epochs():
    reader = SCRAPERS["lightning"]()
    bar = "Epoch 1:  35%|###5      | 35/100 [00:10<00:20, 3.2it/s, v_num=0, train_loss=0.52]"
    found = reader.line(bar)
    assert (found.step, found.metrics) == (135, {"loss": 0.52})
    assert reader.line("Epoch 0:   0%|          | 0/100 [00:00<?, ?it/s]") is None


@pytest.mark.parametrize("trainer", SCRAPERS)
@pytest.mark.parametrize("text", ["", "{", "step:", "Epoch", "{'a': }", "\x1b[", "x" * 10000])
def test_no_line_breaks_a_scraper(trainer, text):
    assert SCRAPERS[trainer]().line(text) is None


def test_a_log_is_followed_over_half_lines_truncation_and_rotation(tmp_path):
    log = tmp_path / "train.log"
    follower = LogFollower(log, VerlScraper())
    assert follower.new_steps() == []
    log.write_bytes(b"step:1 - actor/entropy:0.5\nstep:2 - actor/ent")
    assert [s.step for s in follower.new_steps()] == [1]
    with log.open("ab") as file:
        file.write(b"ropy:0.4\n\xff\xfe\rstep:3 - actor/entropy:0.3\r")
    assert [s.metrics["entropy"] for s in follower.new_steps()] == [0.4, 0.3]
    log.write_bytes(b"step:4 - actor/entropy:0.2\n")  # truncated
    assert [s.step for s in follower.new_steps()] == [4]
    log.replace(tmp_path / "train.log.1")
    log.write_bytes(b"x" * 100 + b"\nstep:4 - actor/entropy:0.2\nstep:5 - actor/entropy:0.1\n")
    assert [s.step for s in follower.new_steps()] == [5]
