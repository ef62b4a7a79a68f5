"""Character sets of MySQL and MariaDB: which one a collation id means, and their texts in UTF-8.

Both servers have the same tables. Most equal a codec of Python, but for some characters that are listed here. A byte
sequence that the server accepts and cannot name is `?`, as in its own answers. Texts of a column are decoded together,
by one call for all of them.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadLog
from tidegate.format.pieces import bytes_of

_MOST_BYTES = 2**31 - 1
BINARY = 63  # the collation of BINARY, VARBINARY and the BLOBs

_UTF8 = frozenset(("utf8mb3", "utf8mb4", "binary"))
_WIDE = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}

# Collation ids by character set, as ranges. MariaDB adds 1024 for the variant without padding.
_IDS: dict[str, tuple[int | tuple[int, int], ...]] = {
    "big5": (1, 84), "latin2": (2, 9, 21, 27, 77), "dec8": (3, 69), "cp850": (4, 80),
    "latin1": (5, 8, 15, 31, (47, 49), 94), "hp8": (6, 72), "koi8r": (7, 74), "swe7": (10, 82), "ascii": (11, 65),
    "ujis": (12, 91), "sjis": (13, 88), "cp1251": (14, 23, (50, 52)), "hebrew": (16, 71), "tis620": (18, 89),
    "euckr": (19, 85), "latin7": (20, 41, 42, 79), "koi8u": (22, 75), "gb2312": (24, 86), "greek": (25, 70),
    "cp1250": (26, 34, 44, 66, 99), "gbk": (28, 87), "cp1257": (29, 58, 59), "latin5": (30, 78), "armscii8": (32, 64),
    "utf8mb3": (33, 76, 83, (192, 215), 223, (576, 578), (2048, 2303)),
    "ucs2": (35, 90, (128, 151), 159, (640, 642), (2560, 2815)),
    "cp866": (36, 68), "keybcs2": (37, 73), "macce": (38, 43), "macroman": (39, 53), "cp852": (40, 81),
    "utf8mb4": (45, 46, (224, 247), (255, 323), (608, 610), (2304, 2559)),
    "utf16": (54, 55, (101, 124), (672, 674), (2816, 3071)), "utf16le": (56, 62), "cp1256": (57, 67),
    "utf32": (60, 61, (160, 183), (736, 738), (3072, 3327)), "binary": (BINARY,), "geostd8": (92, 93),
    "cp932": (95, 96), "eucjpms": (97, 98), "gb18030": ((248, 250),),
}  # fmt: skip
_BASES = {
    each: name
    for name, ids in _IDS.items()
    for span in ids
    for each in (range(span[0], span[1] + 1) if isinstance(span, tuple) else (span,))
}
_NO_PAD = range(1024, 2048)
CHARSETS = frozenset(_IDS)

# The most bytes of a character, where it is not one.
_CHAR_BYTES = {"utf8mb3": 3, "utf8mb4": 4, "ucs2": 2, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4}
_CHAR_BYTES |= dict.fromkeys(("ujis", "eucjpms"), 3) | dict.fromkeys(
    ("big5", "sjis", "euckr", "gb2312", "gbk", "cp932"), 2
)

# One byte a character: Python's codec, or latin-1 where it has none, and the characters that differ by their byte.
_CODECS = {
    "latin2": "iso8859-2", "cp850": "cp850", "latin1": "cp1252", "hp8": "hp-roman8", "koi8r": "koi8-r",
    "ascii": "ascii", "cp1251": "cp1251", "hebrew": "iso8859-8", "tis620": "tis-620", "latin7": "iso8859-13",
    "koi8u": "koi8-u", "greek": "iso8859-7", "cp1250": "cp1250", "cp1257": "cp1257", "latin5": "iso8859-9",
    "cp866": "cp866", "macce": "mac_latin2", "macroman": "mac_roman", "cp852": "cp852", "cp1256": "cp1256",
    "swe7": "ascii", "armscii8": "latin-1", "dec8": "latin-1", "keybcs2": "latin-1", "geostd8": "latin-1",
}  # fmt: skip
_DIFFERENT: dict[str, dict[int, str]] = {
    "latin1": {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)},
    "hebrew": {0xAF: "\u203e"},
    "koi8u": {0x95: "\u2022"},
    "greek": {0xA1: "\u02bd", 0xA2: "\u02bc"} | dict.fromkeys((0xA4, 0xA5, 0xAA), "?"),
    "tis620": dict.fromkeys((0xA0, *range(0xDB, 0xDF), *range(0xFC, 0x100)), "\ufffd"),
    "cp866": {0xFC: "\u207f", 0xFD: "\u00b2"},
    "cp1256": dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF), "?"),
    "dec8": dict.fromkeys(b"\xa4\xa6\xac\xad\xae\xaf\xb4\xb8\xbe\xd0\xde\xf0\xfe\xff", "?")
    | {0xA8: "\u00a4", 0xD7: "\u0152", 0xDD: "\u0178", 0xF7: "\u0153", 0xFD: "\u00ff"},
    "swe7": dict(zip(b"@[\\]^`{|}~\x7f", "ÉÄÖÅÜéäöåü?", strict=True)),
    "armscii8": dict(enumerate(
        "❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'",
        0xA1,
    )),
    "keybcs2": dict(enumerate(
        "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»"
        "░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0",
        0x80,
    )),
    "geostd8": dict(enumerate("€?‚?„…†‡?‰?‹?????‘’“”•–—???›????", 0x80))
    | dict(enumerate("აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ", 0xC0))
    | dict(enumerate("???????????????????????№??", 0xE6)),
}  # fmt: skip

# Several bytes a character: Python's codec; characters that it names otherwise; byte sequences that it does not know.
_MANY = {
    "big5": "big5", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "cp949",
    "gb2312": "gb2312", "gbk": "gbk", "gb18030": "gb18030",
}  # fmt: skip
_RENAMED = {
    "sjis": str.maketrans("\uff3c", "\\"),
    "ujis": str.maketrans("\uff3c", "\\"),
    "gb18030": str.maketrans("\ue7c7\u1e3f", "\u1e3f\ue7c7"),
    "eucjpms": str.maketrans(
        "\u301c\u2016\u2212\u00a2\u00a3\u00ac\u00a6", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2\uffe4"
    ),
}
_BIG5_MORE = "碁銹裏墻恒粧嫺"
_IBM_MORE = (
    "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏塚增寬峵嵓﨑德悅愠敎昻晥晴朗栁﨓﨔橫"
    "櫢淸淲瀨凞猪甁皂皞益礰礼神祥福竧靖精綠緖羽荢﨟薰蘒﨡蠇諸譿賴赶﨣﨤逸郞都鄕﨧﨨閒隆﨩霻靍靑飯飼館馞髙魲鶴黑"
)


def charset_of(collation: int) -> str:
    """`charset_of(255)` is `utf8mb4`."""
    base = collation - _NO_PAD.start if collation in _NO_PAD else collation
    if base not in _BASES:
        raise BadLog(f"the collation with the id {collation} is not known, so texts in it cannot be read")
    return _BASES[base]


def char_bytes(charset: str) -> int:
    """The most bytes that a character takes: 4 for `utf8mb4`."""
    return _CHAR_BYTES.get(charset, 1)


def text_of(raw: bytes, charset: str) -> str:
    """One text, such as the name of an element."""
    return raw.decode("utf-8", "surrogateescape") if charset in _UTF8 else _decoder(charset)(raw)


def to_utf8(values: pa.Array, charset: str) -> pa.Array:
    """The texts of a column in UTF-8. `values` has no NULL; bytes of the character set `binary` stay as they are."""
    if charset in _UTF8 or not len(values):
        return values
    if charset not in _WIDE and charset != "swe7" and _is_ascii(values):
        return values
    decode = _decoder(charset)
    for separator in ("\0", "\x01", "\x1f"):
        if (found := _decoded_together(values, charset, decode, separator)) is not None:
            return found
    return pa.array([decode(value).encode() for value in values.to_pylist()], pa.binary())


def _is_ascii(values: pa.Array) -> bool:
    _, held = bytes_of(values)
    return not len(held) or int(held.max()) < 0x80


def _decoded_together(
    values: pa.Array, charset: str, decode: Callable[[bytes], str], separator: str
) -> pa.Array | None:
    """All texts by one call, joined by a separator; None if the separator is also inside of a text."""
    joint = separator.encode(_WIDE.get(charset, "ascii"))
    ends = pa.array([0, len(values)], pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(ends, values), joint)[0].as_py()
    text = np.frombuffer(decode(joined).encode("utf-8", "surrogatepass"), np.uint8)
    if len(text) > _MOST_BYTES:
        raise BadLog("the texts of one column exceed 2 GiB in UTF-8; decode smaller parts of the log")
    cuts = np.flatnonzero(text == ord(separator))
    if len(cuts) != len(values) - 1:
        return None
    # Each separator is a value of its own, and every second value is taken.
    offsets = np.empty(2 * len(values), np.int32)
    offsets[0], offsets[-1] = 0, len(text)
    offsets[1:-1:2], offsets[2::2] = cuts, cuts + 1
    pieces = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return pieces.take(pa.array(np.arange(0, len(pieces), 2)))


@cache
def _decoder(charset: str) -> Callable[[bytes], str]:
    if charset in _WIDE:
        codec = _WIDE[charset]
        return lambda raw: raw.decode(codec, _QUESTION)
    if charset in _MANY:
        return _many_decoder(charset)
    table = "".join(_character(charset, byte) for byte in range(256))
    return lambda raw: codecs.charmap_decode(raw, "strict", table)[0]


def _character(charset: str, byte: int) -> str:
    if found := _DIFFERENT.get(charset, {}).get(byte):
        return found
    return bytes([byte]).decode(_CODECS[charset], _QUESTION)


def _many_decoder(charset: str) -> Callable[[bytes], str]:
    codec, renamed, handler = _MANY[charset], _RENAMED.get(charset, {}), f"tidegate-{charset}"
    codecs.register_error(handler, _unknown_to_python(charset))

    def decode(raw: bytes) -> str:
        if charset == "eucjpms":  # 0x8f only begins a character; Python takes this one for the ASCII tilde
            raw = raw.replace(b"\x8f\xa2\xb7", b"\xa1\xc1")
        return raw.decode(codec, handler).translate(renamed)

    return decode


def _unknown_to_python(charset: str) -> Callable[[UnicodeError], tuple[str, int]]:
    """What the codec calls where it knows no character: the server's own, or `?`."""
    more = _more_characters(charset)

    def named(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        raw, start = error.object, error.start
        width = _width(charset, raw[start : start + 4])
        return more.get(raw[start : start + width], "?"), start + width

    return named


def _width(charset: str, raw: bytes) -> int:
    """The bytes of the character at the beginning of `raw`. A byte that cannot follow another is no part of it."""
    wanted = 2
    if charset in ("ujis", "eucjpms") and raw[0] == 0x8F:
        wanted = 3
    elif charset == "gb18030" and raw[1:2] and 0x30 <= raw[1] <= 0x39:
        wanted = 4
    least = 0x30 if charset == "gb18030" else 0x40
    return wanted if len(raw) >= wanted and min(raw[1:wanted]) >= least else 1


def _more_characters(charset: str) -> dict[bytes, str]:
    if charset == "big5":
        return {bytes([0xF9, 0xD6 + i]): found for i, found in enumerate(_BIG5_MORE)}
    if charset not in ("ujis", "eucjpms"):
        return {}
    # Ten rows, and then ten more behind 0x8f, are for users: they are the private characters of Unicode in order.
    places = [bytes([row, cell]) for row in range(0xF5, 0xFF) for cell in range(0xA1, 0xFF)]
    more = {place: chr(0xE000 + i) for i, place in enumerate(places)}
    more |= {b"\x8f" + place: chr(0xE000 + len(places) + i) for i, place in enumerate(places)}
    if charset == "eucjpms":
        more |= {bytes([0xAD, 0xA1 + i]): found for i, found in enumerate(_nec_row()) if len(found) == 1}
        cells = [*(0xF3A1 + i for i in range(0x52, 0x5E)), *(0xF4A1 + i for i in range(0x5E))]
        more |= {b"\x8f" + cell.to_bytes(2): found for cell, found in zip(cells, _IBM_MORE, strict=True)}
    return more


def _nec_row() -> list[str]:
    """The characters of row 13, which only the codec cp932 of Python has."""
    return [bytes([0x87, 0x40 + i + (i >= 63)]).decode("cp932", _QUESTION) for i in range(94)]


def _question(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "?", error.end


_QUESTION = "tidegate-question"
codecs.register_error(_QUESTION, _question)
