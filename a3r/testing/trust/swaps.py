"""Swapped comparisons: every sentence of a finished report is turned round; none may pass ``a3r campaign verify``.

The forger is a good one: the manifest's hashes are made to fit the forged files again, and claims and report are changed together
where the lie needs both. A second forger changes what the claims are computed from, by giving one blueprint the factors of another.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from a3r.report.files import json_bytes
from a3r.report.verify import verify
from a3r.report.write import MANIFEST, manifest_bytes, write_report
from a3r.testing.records import synthetic_goal, synthetic_records, two_condition_stages
from a3r.testing.trust.figure import Figure

PAIRS = (
    ("10", "16"),
    ("2", "4"),
    ("trains", "is not shown to train"),
    ("trains", "is shown not to train"),
    ("rises", "falls"),
    ("above", "below"),
    ("minus", "plus"),
    ("is shown", "is not shown"),
    ("smallest", "largest"),
    ("confirmed", "not confirmed"),
)
"""Two words of one sentence that a swap exchanges: condition, level, verdict, direction."""
MOST = 200
"""Forged folders of the whole run; more sentences are sampled."""
Folder = dict[str, bytes]


def swaps_figure(scale: float = 1.0) -> Figure:
    """Every forged folder that verify accepts counts as rendered."""
    with tempfile.TemporaryDirectory(prefix="a3r-trust-") as scratch:
        root = Path(scratch)
        honest = _read(write_report(_records(), root / "honest"))
        forged = list(_forged(honest))
        rng = random.Random("swaps")  # noqa: S311 - a sample
        chosen = rng.sample(forged, min(len(forged), max(10, int(MOST * scale))))
        accepted = [name for name, files in chosen if _accepted(files, root / "forged")]
        sound = verify(root / "honest").ok
    detail = f" Accepted: {'; '.join(accepted[:5])}." if accepted else ""
    return Figure(
        "swapped comparisons that verify lets pass",
        "0",
        f"{len(accepted)} of {len(chosen)}",
        not accepted and sound and bool(chosen),
        f"{len(forged)} forgeries of one report exist: conditions, levels, verdicts, directions, signs; the honest report verifies.{detail}",
    )


def _records() -> Any:
    return synthetic_records(two_condition_stages(), synthetic_goal())


def _forged(honest: Folder) -> Iterator[tuple[str, Folder]]:
    for name in ("report.md", "report.html"):
        if name in honest:
            for what, text in _turned(honest[name].decode()):
                yield f"{name}: {what}", {**honest, name: text.encode()}
    claims: list[dict[str, Any]] = json.loads(honest["claims.json"])
    for claim in claims:
        for what, text in _turned(claim["text"]):
            yield f"claim {claim['id']}: {what}", _with_claim(honest, claims, claim, text)
    yield from _with_swapped_cells(honest)


def _turned(text: str) -> Iterator[tuple[str, str]]:
    """Every line that a swap changes, each alone: (what was swapped, the whole text)."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        for what, changed in _line_swaps(line):
            yield (
                f"line {number + 1}, {what}",
                "\n".join([*lines[:number], changed, *lines[number + 1 :]]),
            )


def _line_swaps(line: str) -> Iterator[tuple[str, str]]:
    for first, second in PAIRS:
        changed = _exchanged(line, first, second)
        if changed != line:
            yield f"{first!r} for {second!r}", changed
    numbers = re.findall(r"[+-]\d\.\d+", line)
    if numbers and "-" not in line[:2]:
        yield "signs", re.sub(r"([+-])(?=\d\.\d)", lambda m: "-" if m[1] == "+" else "+", line)
    if len(set(numbers)) > 1:
        yield "two numbers", _exchanged(line, numbers[0], numbers[-1])


def _exchanged(line: str, first: str, second: str) -> str:
    either = re.compile(
        "|".join(
            rf"(?<![\w.]){re.escape(x)}(?![\w.])"
            for x in sorted((first, second), key=len, reverse=True)
        )
    )
    return either.sub(lambda m: second if m[0] == first else first, line)


def _with_claim(
    honest: Folder, claims: list[dict[str, Any]], claim: dict[str, Any], text: str
) -> Folder:
    """The claim's sentence turned round in claims and, where it stands there in these words, in the report too."""
    changed = [{**c, "text": text} if c["id"] == claim["id"] else c for c in claims]
    report = honest["report.md"].decode().replace(claim["text"], text)
    return {**honest, "claims.json": json_bytes(changed), "report.md": report.encode()}


def _with_swapped_cells(honest: Folder) -> Iterator[tuple[str, Folder]]:
    """Two blueprints trade their factors in the records, so that each cell shows the other's runs."""
    for name, data in honest.items():
        if not name.endswith(".json") or b'"content_hash"' not in data or name == MANIFEST:
            continue
        body: Any = json.loads(data)
        rows = cast("list[dict[str, Any]]", body if isinstance(body, list) else [])
        for left, right in pairwise(rows):
            if "document" not in left or "document" not in right:
                continue
            traded = json.loads(json.dumps(rows))
            a, b = rows.index(left), rows.index(right)
            traded[a]["document"]["factors"] = right["document"]["factors"]
            traded[b]["document"]["factors"] = left["document"]["factors"]
            yield f"{name}: cells {a} and {b}", {**honest, name: json_bytes(traded)}


def _accepted(files: Folder, folder: Path) -> bool:
    contents = {**files, MANIFEST: manifest_bytes(files)}
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return verify(folder).ok


def _read(folder: Path) -> Folder:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }
