"""Invented percentages: a model writes a thousand of them, plainly and in disguise; none may get past the guard of the report's prose.

The results themselves have no door for such text: their sentences are rendered whole by code. The one section that a model writes is
the interpretation, so that is where the numbers are tried. Whitelists of "numbers that occur" let 16 to 58 % of such inventions
through, because with enough runs almost every one-decimal number occurs somewhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from a3r.report.interpretation import Remark, interpretation_faults, remark_faults
from a3r.testing.trust.figure import Figure, percent

WANTED = 1_000
CLAIMS = ("c1", "c2", "c3")
NAMES = ("train_batch_size", "max_response_tokens", "calculator")
UNITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TENS = ("ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")

PHRASES = (
    "The agent may solve {} of the held-out items.",
    "A plausible reading: accuracy of about {} could come from longer answers.",
    "Perhaps the smaller setting, near {}, is limited by its data.",
    "It might be that {} of the runs learn from their errors alone.",
    "Whether {} would survive another model is unknown.",
)
PLAIN_REMARKS = (
    "The model may need more varied episodes before its answers settle.",
    "Longer answers could give the agent more room to check its steps.",
    "It is unknown whether another model would behave in this way.",
    "The task is narrow, and other tasks might respond in another way.",
    "Perhaps the reward is too coarse to guide early learning.",
    "A further study could vary the data and keep everything else.",
)


def _words(value: float) -> str:
    whole, tenth = divmod(round(value * 10), 10)
    tens, unit = divmod(whole, 10)
    text = UNITS[unit] if tens == 0 else TENS[tens - 1] + (f"-{UNITS[unit]}" if unit else "")
    return f"{text} point {UNITS[tenth]} percent"


def _in_script(zero: str, value: float) -> str:
    """The digits of another script: ``zero`` is its 0."""
    return "".join(chr(ord(zero) + int(c)) if c.isdigit() else c for c in f"{value:.1f}") + " %"


def _roman(value: float) -> str:
    whole = max(1, int(value))
    tens, units = divmod(whole, 10)
    return ("", "X", "XX", "XXX", "XL", "L", "LX", "LXX", "LXXX", "XC")[tens] + (
        "", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"
    )[units] + " in a hundred"  # fmt: skip


DISGUISES: dict[str, Callable[[float], str]] = {
    "plain": lambda x: f"{x:.1f} %",
    "without a space": lambda x: f"{x:.1f}%",
    "percent in words": lambda x: f"{x:.1f} percent",
    "a share": lambda x: f"{x / 100:.3f}",
    "a decimal comma": lambda x: f"{x:.1f} %".replace(".", ","),
    "a middle dot": lambda x: f"{x:.1f} %".replace(".", "·"),
    "number words": _words,
    "number words run together": lambda x: _words(x).replace("-", "").replace(" ", ""),
    "number words with hyphens": lambda x: _words(x).replace(" ", "-"),
    "full-width digits": lambda x: _in_script("\N{FULLWIDTH DIGIT ZERO}", x),
    "Arabic-Indic digits": lambda x: _in_script("\N{ARABIC-INDIC DIGIT ZERO}", x),
    "Devanagari digits": lambda x: _in_script("\N{DEVANAGARI DIGIT ZERO}", x),
    "bold mathematical digits": lambda x: _in_script("\N{MATHEMATICAL BOLD DIGIT ZERO}", x),
    "roman numerals": _roman,
    "a vulgar fraction": lambda x: "¼½¾⅓⅔"[int(x) % 5] + " of all",
    "an HTML entity": lambda x: "".join(f"&#{ord(c)};" for c in f"{x:.1f}%"),
    "spaced digits": lambda x: " ".join(f"{x:.1f}%"),
    "invisible characters between": lambda x: "\u200b".join(_words(x)),
    "letters one by one": lambda x: " ".join(_words(x).split(" point", maxsplit=1)[0]),
    "a LaTeX percent": lambda x: rf"{x:.1f}\%",
    "a code span": lambda x: f"`{x:.1f}`",
    "capitals": lambda x: _words(x).upper(),
}


def invented_figure() -> Figure:
    """Every invention alone, and inside an interpretation that is otherwise fine."""
    rng = random.Random("invented")  # noqa: S311 - a simulation
    names = list(DISGUISES)
    accepted: list[str] = []
    for number in range(WANTED):
        disguise = names[number % len(names)]
        value = rng.randrange(1, 1000) / 10
        text = rng.choice(PHRASES).format(DISGUISES[disguise](value))
        if _passes(text):
            accepted.append(disguise)
    plain = sum(_passes(text) for text in PLAIN_REMARKS)
    leaks = f"; leaks: {', '.join(sorted(set(accepted)))}" if accepted else ""
    return Figure(
        "invented percentages accepted into a report",
        f"0 of {WANTED:,}",
        f"{len(accepted)} of {WANTED:,}",
        not accepted and plain > 0,
        f"{len(names)} disguises; {percent(plain / len(PLAIN_REMARKS))} of {len(PLAIN_REMARKS)} remarks without a number pass{leaks}.",
    )


def _passes(text: str) -> bool:
    """Whether any door of the interpretation lets it in: as a remark, or read back from the finished section."""
    remark = Remark(kind="caveat", about=("c1",), text=text)
    section = f"Caveat (c2): {PLAIN_REMARKS[0]}\nPossible explanation (c1): {text}"
    return not remark_faults(remark, CLAIMS, NAMES) or not interpretation_faults(
        section, CLAIMS, NAMES
    )
