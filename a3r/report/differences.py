"""Where two files first differ, in words."""

from __future__ import annotations


def first_difference(expected: bytes, found: bytes, width: int = 60) -> str:
    """Line, column and both texts of the first difference; empty when the bytes are equal."""
    if expected == found:
        return ""
    wanted, got = (data.decode("utf-8", "replace").split("\n") for data in (expected, found))
    for number, (a, b) in enumerate(zip(wanted, got, strict=False), start=1):
        if a != b:
            column = next(
                (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
                min(len(a), len(b)),
            )
            start = max(0, column - width // 3)
            return (
                f"line {number}, column {column + 1}: the records give {a[start : start + width]!r}, "
                f"the file says {b[start : start + width]!r}"
            )
    if len(wanted) != len(got):
        return f"{len(got)} lines, the records give {len(wanted)}"
    return "the bytes differ"
