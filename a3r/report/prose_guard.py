"""Which prose of a language model may stand in a report: prose that can not state a result.

Numbers and verdicts are claims, and claims are computed. So text that a model wrote holds no digit, no number word, no name of a
factor or condition, no verdict, and nothing that could hide one (foreign letters, markup, letters spelled out). A refused text
costs a section, never a false statement; so where a rule is unsure it refuses. English only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

LIMIT = 400
"""Characters of one text."""
_PUNCTUATION = frozenset(" .,;:'\"()-?!")
_LIKE = {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "\u00a0": " ", "\n": " "}  # noqa: RUF001 - these are what is mended
_UNITS = "zero one two three four five six seven eight nine ten eleven twelve"
_TEENS = "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fourty fifty sixty seventy eighty ninety"
_LARGE = "hundred thousand million billion trillion dozen"
_NUMBER = "|".join(f"{_UNITS} {_TEENS} {_TENS} {_LARGE}".split())
_NUMBERS = re.compile(rf"(?:{_NUMBER})(?:and|{_NUMBER})*(?:fold|th|ths|s|es|ish|some|er|ers)?")
_RUN_TOGETHER = re.compile(rf"(?:{_NUMBER})(?:and|point|dot|comma)*(?:{_NUMBER}|per)|percent")
"""Inside one token: ``fortytwopointthreepercent``."""
_ORDINALS = (
    "first second third fifth eighth ninth twelfth twentieth thirtieth fortieth fiftieth hundredth"
)
_SHARES = (
    "half halve halves halved halving quarter quarters quartered third thirds once twice thrice double doubles doubled doubling "
    "triple triples tripled tripling treble quadruple quadrupled quintuple sextuple single pair pairs couple both either neither "
    "percent percentage percentages percentile percents permille pct cent cents nil nought aught naught null score scores scored "
    "sole solely majority minority tenfold multiple decade halfway"
)
_NUMBER_WORDS = frozenset(f"{_ORDINALS} {_SHARES}".split())
_ROMAN = re.compile(r"(?=[MDCLXVI])M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_RESULT_STEMS = (
    "best better winner winning wins won worse worst beat outperform outclass outdo superior inferior optim maximum maximal minimum "
    "minimal smallest largest lowest highest greatest biggest fewest improv worsen significan prove proof confirm demonstrat "
    "establish verif succe fail train works worked working gain increas decreas reduc rose rise rising fell falls falling drop "
    "exceed surpass equal equivalent identical differ outcome result finding conclu evidence shown showed shows reveal certain "
    "undeniabl clearly definit undoubt obvious always never must correct accura reject accept held achiev reach converg collaps "
    "dominat preferr prefera ideal unmatched trump lead leads led leading ahead behind top bottom threshold"
)
_RESULTS = re.compile("(?:" + "|".join(_RESULT_STEMS.split()) + r")\w*")
_FREE = frozenset(
    {"topic", "topics", "topology", "training", "trainer", "trainers", "difficult", "difficulty"}
    | {"definition", "definitions", "reduction", "held"}
)
"""Words that begin like a verdict and are none (``held`` is half of held-out)."""
_HEDGE_WORDS = (
    "may might could can would should perhaps possibly plausible plausibly conceivable conceivably whether if unclear unknown "
    "worth speculative suspect guess"
)
_HEDGES = frozenset(_HEDGE_WORDS.split())
_COMMON = frozenset({"name", "path", "enabled", "engine", "policy", "mode"})
"""Last parts of dotted names that are everyday words."""


def reserved_names(goal_spec: Mapping[str, Any], others: Iterable[str] = ()) -> tuple[str, ...]:
    """Names that prose must not use: factors, levels that are words, the task, the model, and ``others`` (blueprints)."""
    factors: dict[str, dict[str, Any]] = dict(goal_spec.get("factors") or {})
    found = [*factors, str(goal_spec.get("task") or ""), str(goal_spec.get("model") or "")]
    for factor in factors.values():
        levels: list[Any] = list(factor.get("levels") or ())
        found += [str(x) for x in levels if isinstance(x, str)]
    last = [re.split(r"[.:/]", name)[-1] for name in found]
    names = {*found, *(name for name in last if name not in _COMMON), *others}
    return tuple(sorted(name for name in names if len(_plain(name)) > 1))


def prose_faults(text: str, names: Iterable[str] = (), *, limit: int = LIMIT) -> list[str]:
    """Why the text may not stand in a report, one sentence a fault; empty when it may. ``names``: see ``reserved_names``."""
    if not text.strip():
        return ["the text is empty"]
    if len(text) > limit:
        return [f"the text has {len(text)} characters; at most {limit} are allowed"]
    mended = "".join(_LIKE.get(c, c) for c in text)
    found = [*_characters(mended), *_words(mended), *_names(mended, names)]
    return list(dict.fromkeys(found))


def hedge_fault(text: str) -> str:
    """Empty when the text speaks of possibilities; else what it lacks."""
    if _HEDGES & set(_plain(text).split()):
        return ""
    return "the text asserts: say it as a possibility (may, might, could, perhaps, whether)"


def _characters(text: str) -> Iterable[str]:
    for char in text:
        if unicodedata.numeric(char, None) is not None or char.isdigit():
            yield f"a digit or numeral ({char!r})"
        elif char not in _PUNCTUATION and not _latin(char):
            yield f"the character {char!r}: letters and plain punctuation only"
    if text.count("--") or re.search(r"[-_*]{2}|\bhttps?\b|\bwww\b", text):
        yield "markup or an address"


def _latin(char: str) -> bool:
    """An English letter, perhaps with an accent: ``é`` is, a Cyrillic or full-width look-alike is not."""
    base = unicodedata.normalize("NFD", char)[0]
    return base.isascii() and base.isalpha()


def _words(text: str) -> Iterable[str]:
    plain = _plain(text)
    tokens = plain.split()
    for token in tokens:
        if _NUMBERS.fullmatch(token) or token in _NUMBER_WORDS or _RUN_TOGETHER.search(token):
            yield f"the number word {token!r}"
        elif token not in _FREE and _RESULTS.fullmatch(token):
            yield f"{token!r} states a result: results are claims, and code writes them"
    for token in re.findall(r"[A-Za-z]+", text):
        if len(token) > 1 and _ROMAN.fullmatch(token):
            yield f"the roman numeral {token!r}"
    if re.search(r"(?:\b\w\b[ ]){2}\b\w\b", plain):
        yield "letters spelled out one by one"
    # "f-our", "fo ur" and "fourteen" cut in two: pieces that only together make a word.
    for left, right in pairwise(tokens):
        joined = left + right
        if _NUMBERS.fullmatch(joined) and min(len(left), len(right)) < 3:
            yield f"the number word {joined!r} in pieces"


def _names(text: str, names: Iterable[str]) -> Iterable[str]:
    spaced = f" {_plain(text)} "
    packed = spaced.replace(" ", "")
    for name in names:
        wanted = _plain(name)
        tight = wanted.replace(" ", "")
        if not tight:
            continue
        whole = any(f" {wanted}{end} " in spaced for end in ("", "s", "es"))
        if whole or (len(tight) > 7 and tight in packed) or _tail_of(wanted, spaced):
            yield f"the name {name!r}: conditions and factors are named by code"


def _tail_of(wanted: str, spaced: str) -> bool:
    """``batch size`` for ``train batch size``: the last words of a long name name it too."""
    words = wanted.split()
    tail = " ".join(words[-2:])
    return len(words) > 2 and any(f" {tail}{end} " in spaced for end in ("", "s"))


def _plain(text: str) -> str:
    """Lower-case words without accents, one space between."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(re.findall(r"[a-z0-9]+", bare.lower().replace("'s", "").replace("'", "")))
