"""The value of a column's DEFAULT, from the text of a DDL or as `information_schema` shows it: both give the same.

c int default 2.8                      3
c decimal(12,2) default '1.005'        1.01
c enum('A','b') default 'a'            A
c datetime(3) default now(3)           CURRENT_TIMESTAMP
c varchar(36) default (uuid())         uuid()
c int default (a + 1)                  no default: its value depends on the row, and servers print it in their own way
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.format.sql.json_values import plain_float
from tidegate.format.sql.words import Token, Words
from tidegate.format.tables import Column

_NOW = ("current_timestamp", "now", "localtime", "localtimestamp")
_TODAY = ("current_date", "curdate")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_MOMENTS = ("datetime", "timestamp")
_OFFSET = re.compile(r"([+-])(\d{1,2}):(\d\d)")


@dataclass(frozen=True)
class Reading:
    """What decides the value besides the column: `rounds` if digits of a second that do not fit are rounded."""

    rounds: bool = True
    time_zone: str = ""  # of a TIMESTAMP that is written in it


def take_default(words: Words) -> list[Token]:
    """The tokens of the default that is next in a definition."""
    if words.peek("("):
        return _group(words)
    first = words.take()
    if first.kind == "mark" and first.value in "+-":
        return [first, words.take()]
    if first.lower in ("date", "time", "timestamp") and words.ahead().kind == "text":
        return [words.take()]
    if first.lower == "next":  # next value for a sequence
        return [first, *(words.take() for _ in range(3 + 2 * (words.ahead(3).lower == ".")))]
    return [first, *(_group(words) if first.kind == "word" and words.peek("(") else [])]


def _group(words: Words) -> list[Token]:
    found, depth = [words.take()], 1
    while depth:
        found.append(words.take())
        depth += (found[-1].lower == "(") - (found[-1].lower == ")")
    return found


def server_default(column: Column, tokens: Sequence[Token], reading: Reading) -> str | None:
    """None for NULL, and for an expression other than a plain call."""
    while len(tokens) > 2 and tokens[0].lower == "(" and _closes_at_the_end(tokens):
        tokens = tokens[1:-1]
    if len(tokens) == 2 and tokens[0].lower in ("+", "-"):
        sign = "-" if tokens[0].lower == "-" else ""
        tokens = [tokens[1]._replace(value=sign + tokens[1].value)]
    if len(tokens) == 1 and tokens[0].kind in ("text", "literal", "word"):
        return _value(column, tokens[0], reading)
    return _call(tokens)


def _closes_at_the_end(tokens: Sequence[Token]) -> bool:
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.lower == "(") - (token.lower == ")")
        if not depth:
            return at == len(tokens) - 1
    return False


def _call(tokens: Sequence[Token]) -> str | None:
    name = tokens[0].lower
    if tokens[0].kind != "word" or len(tokens) < 3 or tokens[1].lower != "(" or not _closes_at_the_end(tokens[1:]):
        return None
    if name in _NOW:
        return "CURRENT_TIMESTAMP"
    if len(tokens) > 3:
        return None
    return "CURRENT_DATE" if name in _TODAY else f"{name}()"


def _value(column: Column, token: Token, reading: Reading) -> str | None:
    if token.kind == "word":
        match token.lower:
            case "null":
                return None
            case "true" | "false":
                token = Token("word", str(int(token.lower == "true")))
            case word if word in _NOW:
                return "CURRENT_TIMESTAMP"
            case word if word in _TODAY:
                return "CURRENT_DATE"
    if token.kind == "literal" and column.type not in _TAKES_BYTES:
        token = Token("word", str(int.from_bytes(token.raw, "big")))
    try:
        return _READERS.get(column.type, _as_given)(column, token, reading)
    except (ValueError, InvalidOperation, OverflowError, IndexError):
        return token.text  # the server has accepted it; how it understands it does not matter for any row


_TAKES_BYTES = ("bit", "char", "varchar", "var_string", "tinytext", "text", "mediumtext", "longtext", "enum", "set")


def _as_given(column: Column, token: Token, reading: Reading) -> str | None:
    return token.text


def _integer(column: Column, token: Token, reading: Reading) -> str:
    return str(int(Decimal(token.text.strip()).to_integral_value(ROUND_HALF_UP)))


def _decimal(column: Column, token: Token, reading: Reading) -> str:
    step = Decimal(1).scaleb(-(column.decimals or 0))
    value = Decimal(token.text.strip()).quantize(step, ROUND_HALF_UP)
    return f"{value or abs(value):f}"


def _float(column: Column, token: Token, reading: Reading) -> str:
    """Servers show six digits of a FLOAT, so a reader of `information_schema` knows no more."""
    value = float(token.text.strip())
    if column.decimals is not None and column.flen is not None:
        value = round(value, column.decimals)
    return plain_float(float(f"{value:.6g}") if column.type == "float" else value)


def _text(column: Column, token: Token, reading: Reading) -> str:
    if column.type != "char":
        return token.text
    if not column.binary:
        return token.text.rstrip(" ")
    missing = (column.flen or 0) - len(token.text.encode("utf-8", "surrogateescape"))
    return token.text + "\0" * missing


def _bit(column: Column, token: Token, reading: Reading) -> str:
    if token.kind == "literal":
        number = int.from_bytes(token.raw, "big")
    elif token.kind == "word":
        number = int(Decimal(token.text))
    else:
        number = int.from_bytes(token.text.encode("utf-8", "surrogateescape"), "big")
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big").decode("utf-8", "surrogateescape")


def _enum(column: Column, token: Token, reading: Reading) -> str:
    """The element as it is declared. Servers compare without case, as most collations do."""
    return _element(column, token.text.rstrip(" ")) if token.kind != "word" else column.elems[int(token.text) - 1]


def _element(column: Column, name: str) -> str:
    same = (each for each in column.elems if each.casefold() == name.casefold())
    return name if name in column.elems else next(same, name)


def _set(column: Column, token: Token, reading: Reading) -> str:
    if token.kind == "word":
        mask = int(token.text)
        return ",".join(name for bit, name in enumerate(column.elems) if mask >> bit & 1)
    chosen = {_element(column, name) for name in token.text.rstrip(" ").split(",")}
    return ",".join(name for name in column.elems if name in chosen)


def _year(column: Column, token: Token, reading: Reading) -> str:
    number = int(Decimal(token.text.strip()))
    if not number and token.kind == "word":
        return "0000"
    if number < 100 and len(token.text.strip()) < 4:
        number += 2000 if number < 70 else 1900
    return f"{number:04d}"


def _date(column: Column, token: Token, reading: Reading) -> str:
    return _moment_text(_moment(token.text), 0)[:10]


def _datetime(column: Column, token: Token, reading: Reading) -> str:
    numbers = _moment(token.text)
    if column.type == "timestamp":
        numbers = _in_utc(numbers, reading.time_zone)
    return _moment_text(_to_digits(numbers, column.decimals or 0, reading.rounds), column.decimals or 0)


def _moment(text: str) -> list[int]:
    """`[2020, 1, 2, 3, 4, 5, 678900]` of `2020-1-2 3:4:5.6789`, `20200102030405` and other forms."""
    text = text.strip()
    whole, _, fraction = text.partition(".") if text.count(".") == 1 else (text, "", "")
    micros = int(f"{fraction:0<6.6}" or 0)
    if whole.isdecimal():
        whole = whole.rjust(max(6, len(whole) + len(whole) % 2), "0") if int(whole) else "0" * 14
        years = 4 if len(whole) in (8, 14) else 2
        parts = [whole[:years], *(whole[at : at + 2] for at in range(years, len(whole), 2))]
    else:
        parts = re.findall(r"\d+", whole)
    numbers = [int(part) for part in parts]
    if len(parts[0]) == 2:
        numbers[0] += 2000 if numbers[0] < 70 else 1900
    return [*(*numbers, 0, 0, 0, 0, 0)[:6], micros]


def _to_digits(numbers: list[int], digits: int, rounds: bool) -> list[int]:
    step = 10 ** (6 - digits)
    cut = [*numbers[:6], numbers[6] // step * step]
    if not rounds or numbers[6] - cut[6] < step / 2 or not numbers[0]:
        return cut
    later = datetime(*cut) + timedelta(microseconds=step)
    return [*later.timetuple()[:6], later.microsecond]


def _in_utc(numbers: list[int], time_zone: str) -> list[int]:
    zone = _zone(time_zone)
    if zone is None or not any(numbers[:3]):
        return numbers
    local = datetime(*numbers, tzinfo=zone)  # type: ignore[misc,arg-type]
    moment = local.astimezone(UTC)
    return [*moment.timetuple()[:6], moment.microsecond]


def _zone(name: str) -> timezone | ZoneInfo | None:
    if found := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name) if name not in ("", "SYSTEM") else None
    except (ZoneInfoNotFoundError, ValueError):
        return None


def _moment_text(numbers: list[int], digits: int) -> str:
    year, month, day, hour, minute, second, micros = numbers
    fraction = f".{micros:06d}"[: 1 + digits] if digits else ""
    return f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}{fraction}"


def _time(column: Column, token: Token, reading: Reading) -> str:
    text = token.text.strip()
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    days, text = (int(text.split(" ")[0]), text.split(" ", 1)[1]) if re.match(r"\d+ \d", text) else (0, text)
    whole, _, fraction = text.partition(".")
    if ":" in whole:
        parts = [*map(int, whole.split(":")), 0][:3]
    else:
        number = int(whole or 0)
        parts = [number // 10000, number // 100 % 100, number % 100]
    digits = column.decimals or 0
    micros = ((parts[0] + 24 * days) * 3600 + parts[1] * 60 + parts[2]) * 10**6 + int(f"{fraction:0<6.6}" or 0)
    step = 10 ** (6 - digits)
    micros = (micros + (step // 2 if reading.rounds else 0)) // step * step
    seconds, micros = divmod(micros, 10**6)
    shown = f".{micros:06d}"[: 1 + digits] if digits else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{shown}"


_READERS = {
    **dict.fromkeys(_INTEGERS, _integer),
    **dict.fromkeys(("float", "double"), _float),
    **dict.fromkeys(("char", "varchar", "var_string"), _text),
    **dict.fromkeys(_MOMENTS, _datetime),
    "decimal": _decimal,
    "bit": _bit,
    "enum": _enum,
    "set": _set,
    "year": _year,
    "date": _date,
    "time": _time,
}
