"""How a difference is explained: the row found is looked for among the rows before and after the one expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tidegate.errors import VerifyError
from tidegate.format.encode.protocol import Encoding
from tidegate.reader.replay import TableFiles
from tidegate.tools.verify.runs import Run, Table
from tidegate.tools.verify.schemas import SchemaFault

_SEARCH_BYTES = 16 << 20  # looked at to explain a difference
_MARGIN_BYTES = 1 << 20


class Difference(Exception):
    """Row `row` of a run is not what the file has at the table's place, which is where the row should begin."""

    def __init__(self, run: Run, row: int) -> None:
        super().__init__()
        self.run, self.row = run, row


def explain(difference: Difference, runs: Iterator[Run], sink_bytes: int, options: Encoding) -> str:
    run, row, table = difference.run, difference.row, difference.run.table
    found = table.files.ahead(len(run.rows(row, len(run.ts))) + _MARGIN_BYTES, len(run.header))
    line, wanted = _line(found, options), run.rows(row, row + 1)
    number, here = table.rows + row + 1, _here(table, row)
    if other := _swapped(run, row, found, line):
        return f"{table.name}: rows {number} and {number + other} are swapped, at {here}"
    if (earlier := _repeated(run, row, found, line)) is not None:
        first = table.rows + earlier + 1
        return f"{table.name}: row {first} is doubled: it is again at {here}, where row {number} should be"
    if dropped := _dropped(run, row, found, line, within(runs, min(sink_bytes, _SEARCH_BYTES))):
        return f"{table.name}: {_counted(dropped)} dropped from row {number} on ({shown(wanted)}), before {here}"
    if twin := _passed(table.files, line, options):
        return f"{table.name}: a row is doubled: {twin} is again at {here}, where row {number} should be"
    at = next((i for i, (a, b) in enumerate(zip(line, wanted, strict=False)) if a != b), min(len(line), len(wanted)))
    return f"{table.name}: row {number} is altered: {here} says {shown(line, at)}, the source says {shown(wanted, at)}"


def explain_early_end(run: Run, row: int, is_ddl: Callable[[int], bool], options: Encoding) -> str:
    """The directory of a run ends before row `row` of it, and the files go on in a later one."""
    table, wanted = run.table, run.rows(row, row + 1)
    who = f"{table.name}: row {table.rows + row + 1}"
    for version, path, offset, data in table.files.pieces(_SEARCH_BYTES):
        if (at := _find(data, wanted, options)) is not None:
            why = f"it is older than the DDL at commit-ts {version} and" if is_ddl(version) else "it"
            return (
                f"{who} (commit-ts {run.ts[row]}) is behind its version, at byte {offset + at} of {path}, under "
                f"version {version}; {why} should be under version {run.directory}"
            )
    return f"{who} of version {run.directory} is dropped: {table.files.path} comes next"


def explain_late_end(run: Run, row: int, is_ddl: Callable[[int], bool], options: Encoding) -> str:
    """The files of an earlier directory go on where row `row` of a run should begin its own."""
    table, wanted = run.table, run.rows(row, row + 1)
    if table.files.ahead(len(wanted), len(table.header)) != wanted:
        return explain_more(table, options)
    why = f"it comes after the DDL at commit-ts {run.directory} and" if is_ddl(run.directory) else "it"
    return (
        f"{table.name}: row {table.rows + row + 1} (commit-ts {run.ts[row]}) is before its version, at "
        f"{_here(table, row)}, under version {table.files.version}; {why} should be under version {run.directory}"
    )


def explain_more(table: Table, options: Encoding) -> str:
    """The files of a table (or of one version) go on where the source has no more rows."""
    line = _line(table.files.ahead(_MARGIN_BYTES, len(table.header)), options)
    twin = _passed(table.files, line, options)
    what = f"a row is doubled: {twin} is again" if twin else f"a row too many, {shown(line)}, is"
    return f"{table.name}: {what} at {_here(table, 0)}, where the source has no row after row {table.rows}"


def _alike(run: Run, first: int, last: int, found: bytes, line: bytes) -> Iterator[int]:
    """The rows from `first` up to `last` that are just what `found` begins with; `line` is its first line."""
    base, text = run.ends[first], run.rows(first, last)
    at = text.find(line)
    while at >= 0:
        row = int(np.searchsorted(run.ends, base + at))
        if run.ends[row] == base + at and found.startswith(run.rows(row, row + 1)):
            yield row
        at = text.find(line, at + 1)


def _swapped(run: Run, row: int, found: bytes, line: bytes) -> int:
    """How far behind `row` the row is that has changed places with it; 0 if none has."""
    for other in _alike(run, row + 1, len(run.ts), found, line):
        if found.startswith(run.rows(other, other + 1) + run.rows(row + 1, other) + run.rows(row, row + 1)):
            return other - row
    return 0


def _repeated(run: Run, row: int, found: bytes, line: bytes) -> int | None:
    """The earlier row from which on the rows before `row` come once more."""
    for earlier in _alike(run, 0, row, found, line):
        again = run.rows(earlier, row + 1)
        if found.startswith(again) or again.startswith(found):
            return earlier
    return None


def _dropped(run: Run, row: int, found: bytes, line: bytes, runs: Iterator[Run]) -> int:
    """After how many rows the source comes to the row that was found; 0 if it does not come to it soon."""
    for other in _alike(run, row + 1, len(run.ts), found, line):
        return other - row
    passed = len(run.ts) - row
    for later in runs:
        if later.table is run.table:
            for other in _alike(later, 0, len(later.ts), found, line):
                return passed + other
            passed += len(later.ts)
    return 0


def within(runs: Iterator[Run], most: int = _SEARCH_BYTES) -> Iterator[Run]:
    """The next runs, `most` bytes of them. Another difference ends them, because the first is the one to tell.

    A fault of a schema file is raised all the same: it may be the cause of the difference.
    """
    try:
        for run in runs:
            yield run
            most -= run.data.size
            if most <= 0:
                return
    except SchemaFault:
        raise
    except VerifyError:
        return


def _passed(files: TableFiles, line: bytes, options: Encoding) -> str | None:
    """Where the same line is among those that were compared already."""
    end = options.terminator.encode()
    if not line or not line.endswith(end) or not end:
        return None
    for path, offset, data in files.behind(_SEARCH_BYTES):
        if (at := _find(data, line, options)) is not None:
            return f"the one at byte {offset + at} of {path}"
    return None


def _find(data: bytes, line: bytes, options: Encoding) -> int | None:
    """Where this line begins in a text of whole lines; the last time, if it is there more than once."""
    end = options.terminator.encode() or b"\n"
    at = data.rfind(end + line)
    if at >= 0:
        return at + len(end)
    return 0 if data.startswith(line) else None


def _line(found: bytes, options: Encoding) -> bytes:
    line, end, _ = found.partition(options.terminator.encode() or b"\n")
    return line + end


def _here(table: Table, row: int) -> str:
    number = table.rows + row - table.rows_before + 1
    return f"row {number} of {table.files.path} (byte {table.files.offset})"


def _counted(rows: int) -> str:
    return "1 row is" if rows == 1 else f"{rows} rows are"


def shown(line: bytes, at: int = 0) -> str:
    """A line for people: 60 bytes of it around byte `at`."""
    low = max(0, min(at - 20, len(line) - 60))
    text = line[low : low + 60].decode(errors="backslashreplace").encode("unicode_escape").decode()
    return f"`{'...' if low else ''}{text}{'...' if low + 60 < len(line) else ''}`"
