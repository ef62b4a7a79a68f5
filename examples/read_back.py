"""Reads what landed, as any program can: the checkpoint, schema files, index files, and the rows they name.

    python examples/read_back.py file:///path/of/the/sink

Needs nothing but the standard library. It reads a CSV sink with TiCDC's defaults (a date level, CRLF) on a file system,
applies all rows of each table in order, and prints how many rows each table has at the checkpoint.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

Row = list[str]


def checkpoint(sink: Path) -> int:
    """Everything up to this commit-ts is there."""
    found: int = json.loads((sink / "metadata").read_text())["checkpoint-ts"]
    return found


def key_columns(table: Path, version: str) -> list[int]:
    """Where the primary key is among the columns, from the schema file of this version."""
    [schema] = table.glob(f"meta/schema_{version}_*.json")
    columns = json.loads(schema.read_text())["TableColumns"]
    keys = [at for at, column in enumerate(columns) if column.get("ColumnIsPk") == "true"]
    return keys or list(range(len(columns)))


def files(version: Path) -> Iterator[Path]:
    """The data files of one version in order: by day, then by number up to the one that the index names."""
    for index in sorted(version.rglob("meta/CDC.index")):
        last = index.read_text().splitlines()[-1]
        yield from (path for path in sorted(index.parent.parent.glob("CDC*.csv")) if path.name <= last)


def rows(path: Path) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.reader(file)


def state(table: Path) -> dict[tuple[str, ...], Row]:
    """The table as it is after all changes: each row is `op, table, schema, column, column, ...`."""
    found: dict[tuple[str, ...], Row] = {}
    for version in sorted((each for each in table.iterdir() if each.name.isdigit()), key=lambda each: int(each.name)):
        keys = key_columns(table, version.name)
        for row in (row for path in files(version) for row in rows(path)):
            key = tuple(row[3:][at] for at in keys)
            if row[0] == "D":
                found.pop(key, None)
            else:
                found[key] = row[3:]
    return found


def main(sink_uri: str = "file://example/out") -> None:
    sink = Path(unquote(sink_uri.removeprefix("file://")))
    print(f"checkpoint-ts {checkpoint(sink)}")
    for table in sorted(path.parent for path in sink.glob("*/*/meta")):
        if "_tidegate" not in table.parts:
            print(f"{table.parent.name}.{table.name}: {len(state(table)):,} rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
