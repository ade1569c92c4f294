"""The three functions of scipy that the statistics need, typed; scipy.special loads far faster than scipy.stats."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_SPECIAL: Any = import_module("scipy.special")  # scipy ships no types


def t_quantile(probability: float, df: float) -> float:
    """Quantile of Student's t with ``df`` degrees of freedom."""
    return float(_SPECIAL.stdtrit(df, probability))


def t_tail(statistic: float, df: float) -> float:
    """P(T > statistic) of Student's t."""
    return float(_SPECIAL.stdtr(df, -statistic))


def normal_quantile(probability: float) -> float:
    """Quantile of the standard normal."""
    return float(_SPECIAL.ndtri(probability))
