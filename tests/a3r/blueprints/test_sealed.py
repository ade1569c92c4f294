"""A sealed evaluator's code runs apart, answers in bounded time, and is never believed blindly."""

from __future__ import annotations

import pytest

from a3r.blueprints.sealed import SealedTask
from a3r.core.errors import BlueprintError

GOOD = """
import random
def items(count, seed):
    rng = random.Random(seed)
    return [{"item_id": f"h{i}", "payload": {"n": rng.randint(0, 10**6)}, "answer": i} for i in range(count)]
def score(item, trace):
    print("noise on stdout")
    return float(trace["calls"][-1]["reply"]["content"] == str(item["answer"]))
"""


@pytest.fixture
def sealed(tmp_path):
    """Write an evaluation.py and open it."""
    opened = []

    def make(code, **options):
        folder = tmp_path / "Prüfung mit Ü"
        folder.mkdir(exist_ok=True)
        (folder / "evaluation.py").write_text(code, encoding="utf-8")
        opened.append(SealedTask(folder, **options))
        return opened[-1]

    yield make
    for task in opened:
        task.close()


def said(text):
    return {"calls": [{"messages": [], "reply": {"content": text}, "finish_reason": "stop"}]}


def test_items_and_scores_come_from_the_folder_and_printing_does_no_harm(sealed):
    task = sealed(GOOD)
    items = task.items(3, 7)
    assert [i.task_id for i in items] == ["h0", "h1", "h2"]
    assert task.prompt(items[1]) == {"n": items[1].payload["payload"]["n"]}
    assert "answer" not in task.prompt(items[1])
    assert (task.score(items[1], said("1")), task.score(items[1], said("2"))) == (1.0, 0.0)
    assert task.items_hash(items) == task.item_set_hash(3, 7) != task.item_set_hash(3, 8)


def test_a_score_that_fails_is_told_and_the_next_one_still_works(sealed):
    task = sealed(GOOD)
    (item,) = task.items(1, 0)
    with pytest.raises(BlueprintError, match="IndexError"):
        task.score(item, {"calls": []})
    assert task.score(item, said("0")) == 1.0


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def items(c, s): return []", "gave 0 items"),
        ("def items(c, s): return [{'item_id': 'a', 'payload': {}, 'answer': 1}] * c", "comes twice"),
        ("def items(c, s): return [{'item_id': str(i), 'payload': {}} for i in range(c)]", "has no answer"),
        ("def items(c, s): return [{'item_id': i, 'payload': {}, 'answer': 0} for i in range(c)]", "is no {item_id"),
        ("def items(c, s): return 3", "TypeError"),
        ("def items(c, s): return [object()] * c", "TypeError"),
        ("x = (", "SyntaxError"),
        ("import os\nos._exit(3)", "ended with 3"),
        ("raise SystemExit(2)", "SystemExit"),
    ],
)  # fmt: skip
def test_a_broken_list_is_refused_in_words(sealed, code, why):
    with pytest.raises(BlueprintError) as caught:
        sealed(code).items(2, 0)
    assert why in caught.value.message


def test_a_score_that_is_no_finite_number_is_refused(sealed):
    code = GOOD.replace("return float(", "return float('nan') or float(")
    task = sealed(code)
    with pytest.raises(BlueprintError, match=r"Out of range|no finite number"):
        task.score(task.items(1, 0)[0], said("0"))


def test_code_that_does_not_end_is_ended(sealed):
    task = sealed("import time\ndef items(c, s):\n    time.sleep(600)", timeout_s=1.0)
    with pytest.raises(BlueprintError, match="no answer within 1 s"):
        task.items(1, 0)


def test_keys_of_the_environment_do_not_reach_the_code(sealed):
    code = (
        "import os\n"
        "def items(c, s): return [{'item_id': 'a', 'payload': dict(os.environ), 'answer': 0}]\n"
    )
    task = sealed(code, environment={"PATH": "/usr/bin", "OPENAI_API_KEY": "x", "A3R_NONCE": "n"})
    seen = task.prompt(task.items(1, 0)[0])
    assert seen["A3R_NONCE"] == "n"
    assert "OPENAI_API_KEY" not in seen
