"""How things are said to a user: no secret, no control character, a hint for a typo, figures with units."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Collection
from urllib.parse import unquote

_FEW = 8  # keys that may all be listed
_NEAREST = 3
_CUTOFF = 0.5  # of the likeness that difflib measures, from 0 to 1
_CLOSE = 0.06  # how much less like it than the best another key may be

# Matches access-key, secret-access-key, session-token, account-key, sas-token (and the `sig` of a token that was not
# escaped), encryption-key, sse-kms-key-id and external-id of the object stores. The path of a file is no secret.
_SECRET = re.compile(
    r"(key|secret|token|passw|pwd|sas|credential|sig(nature)?$|external.?id)(?!.*file$)", re.IGNORECASE
)
_SHORT = 6  # a secret so short may be part of any word
# A password may hold any character, also '/', '?' and '@', if its writer did not escape it.
_PASSWORD = re.compile(r"^([a-z][a-z0-9+.-]*://[^/@:?]*):.*@", re.IGNORECASE)
_PASSWORD_INSIDE = re.compile(r"(://[^/@:?]*):.*@")


def redacted(uri: str) -> str:
    """The URI as it may be printed: a password and all option values that may be secret become `***`."""
    plain, mark, query = _PASSWORD.sub(r"\1:***@", uri).partition("?")
    return plain + mark + "&".join(_redacted_piece(piece) for piece in query.split("&"))


def _redacted_piece(piece: str) -> str:
    name, equals, _ = piece.partition("=")
    if equals and _SECRET.search(unquote(name)):
        return f"{name}=***"
    return _PASSWORD_INSIDE.sub(r"\1:***@", piece)


def hidden(text: str, secrets: Collection[str]) -> str:
    """The text with `***` in the place of every secret."""
    for value in sorted(filter(None, secrets), key=len, reverse=True):
        sign = re.escape(value)
        text = re.sub(rf"(?<!\w){sign}(?!\w)" if len(value) < _SHORT else sign, "***", text)
    return text


def escaped(text: str) -> str:
    r"""`escaped("a\x1b[2J")` is `a\x1b[2J` in plain letters: names and errors of others cannot change a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shell_word(text: str) -> str:
    r"""`shell_word("a b")` is `'a b'`; with control characters, as `$'a\x0ab'`, which bash and zsh read."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_shell_letter, text))}'"


def _shell_letter(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def hint(name: str, known: Collection[str], page: str) -> str:
    """What to write instead of an unknown name: `did you mean 'file-size'?`, else all names if they are few."""
    if near := nearest(name, known):
        return f"did you mean {_either(near)}?"
    return f"known: {', '.join(sorted(known))}" if len(known) <= _FEW else f"{page} lists all"


def nearest(name: str, known: Collection[str]) -> list[str]:
    """The keys that a misspelled one may mean, the likeliest first. A known key in the wrong section is found, too."""
    spelled = name.replace("_", "-")
    if namesakes := [key for key in known if key.rpartition(".")[2] == spelled.rpartition(".")[2]]:
        return namesakes[:_NEAREST]
    near = difflib.get_close_matches(spelled, known, n=_NEAREST, cutoff=_CUTOFF)
    alike = [difflib.SequenceMatcher(None, key, spelled).ratio() for key in near]
    return [key for key, ratio in zip(near, alike, strict=True) if ratio >= alike[0] - _CLOSE]


def _either(words: list[str]) -> str:
    """`'a'`, `'a' or 'b'`, `'a', 'b' or 'c'`."""
    shown = [repr(word) for word in words]
    return " or ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(size: float) -> str:
    """`human_bytes(1_600_000)` is "1.5 MiB": three digits at most, for people. `show_size` is exact."""
    power = 0
    while size >= 999.5 and power < len(_UNITS) - 1:
        size, power = size / 1024, power + 1
    digits = f"{size:.1f}".removesuffix(".0") if power and size < 99.95 else f"{size:.0f}"
    return f"{digits} {_UNITS[power]}"


def human_seconds(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3m 05s`, `2h 07m`, `3d 04h`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    hours, rest_m = divmod(minutes, 60)
    days, rest_h = divmod(hours, 24)
    if days:
        return f"{days}d {rest_h:02d}h"
    if hours:
        return f"{hours}h {rest_m:02d}m"
    return f"{minutes}m {rest_s:02d}s" if minutes else f"{rest_s} s"
