"""The parameters of a benchmark: one frozen dataclass, which is also its options on the command line.

A field is written as `tables: int = count(1_000, "tables that land")`. It has a default and a help text, and its kind
says how text is read: `--tables 4` becomes 4, and `--tables many` is refused by argparse with a sentence that names the
option. A field `file_size` is the option `--file-size`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import Field, field, fields
from typing import Any, TypeVar

from tidegate.config.settings import duration_s
from tidegate.errors import BadSetting
from tidegate.sources.source import byte_count

P = TypeVar("P")
V = TypeVar("V")
N = TypeVar("N", int, float)


def count(default: int, meaning: str) -> int:
    """A whole number above 0."""
    return _option(default, meaning, type=_read_count, metavar="N")


def number(default: float, meaning: str) -> float:
    """A number above 0, such as seconds."""
    return _option(default, meaning, type=_read_number, metavar="X")


def duration(default: str, meaning: str) -> str:
    """A time with its unit, such as 100ms. It stays text, because options and workloads take it as text."""
    return _option(default, meaning, type=_read_duration, metavar="TIME")


def byte_size(default: str, meaning: str) -> str:
    """A number of bytes with its unit, such as 64MiB."""
    return _option(default, meaning, type=_read_size, metavar="SIZE")


def byte_rate(default: str, meaning: str) -> str:
    """Bytes per second: 4MiB, or 4MiB/s."""
    return _option(default, meaning, type=lambda text: _read_size(text.removesuffix("/s")), metavar="SIZE")


def text(default: str, meaning: str) -> str:
    return _option(default, meaning, metavar="TEXT")


def one_of(default: str, meaning: str, choices: tuple[str, ...]) -> str:
    return _option(default, meaning, choices=choices)


def flag(meaning: str) -> bool:
    """True where the option is given; it takes no value."""
    return _option(False, meaning, action="store_true")


def add_parameters(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """One option for each field of the dataclass `kind`."""
    for each in fields(kind):
        parser.add_argument(_flag(each), dest=each.name, default=each.default, **each.metadata)


def given_parameters(kind: type[P], arguments: argparse.Namespace) -> P:
    """The dataclass with what the command line says."""
    return kind(**{each.name: getattr(arguments, each.name) for each in fields(kind)})  # type: ignore[arg-type]


def _flag(of: Field[Any]) -> str:
    return "--" + of.name.replace("_", "-")


def _option(default: V, meaning: str, **options: Any) -> V:
    """A dataclass field whose metadata are the arguments of `add_argument`; to a type checker it is its value."""
    return field(default=default, metadata={"help": f"{meaning} (default: {default or 'none'})", **options})


def _read_count(given: str) -> int:
    return _above_zero(given, int, "a whole number")


def _read_number(given: str) -> float:
    return _above_zero(given, float, "a number")


def _above_zero(given: str, read: Callable[[str], N], what: str) -> N:
    try:
        value = read(given)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{given!r} is not {what}") from None
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{given} must be greater than 0")
    return value


def _read_duration(given: str) -> str:
    if not given:  # argparse reads defaults too, and "" is the default where there is no such time
        return given
    try:
        duration_s(given)
    except BadSetting as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
    return given


def _read_size(given: str) -> str:
    try:
        byte_count(given)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(f"{given!r} is not {exc}") from None
    return given
