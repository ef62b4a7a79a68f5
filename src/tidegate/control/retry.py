"""How long to wait before something that failed is tried again."""

from __future__ import annotations

_FIRST_S, _MOST_S = 1.0, 60.0
_GOLDEN = 0.6180339887498949


def pause_s(attempt: int, salt: int) -> float:
    """From one second doubled up to a minute, less up to a quarter by `salt`, so that not all come back at once."""
    longest: float = min(_FIRST_S * 2 ** min(attempt, 10), _MOST_S)
    return longest * (1 - (salt * _GOLDEN % 1) / 4)
