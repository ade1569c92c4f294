"""The functions of scipy that the statistics need, typed; scipy.special loads far faster than scipy.stats."""

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


def normal_tail(statistic: float) -> float:
    """P(Z > statistic) of the standard normal."""
    return float(_SPECIAL.ndtr(-statistic))


def chi2_quantile(probability: float, df: float) -> float:
    """Quantile of the chi-squared distribution with ``df`` degrees of freedom."""
    return float(_SPECIAL.chdtri(df, 1 - probability))


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Quantile of the beta distribution; ``a`` and ``b`` positive."""
    return float(_SPECIAL.betaincinv(a, b, probability))


def noncentral_t_tail(statistic: float, df: float, noncentrality: float) -> float:
    """P(T > statistic) of the noncentral t; what a t test reaches when there is an effect."""
    found = 1 - float(_SPECIAL.nctdtr(df, noncentrality, statistic))
    return min(1.0, max(0.0, found))
