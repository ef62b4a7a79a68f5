"""A table on the sink at a commit-ts: its rows, gathered from all directories that its history is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from tidegate.config.settings import Settings
from tidegate.errors import VerifyError
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import is_schema_path, parse_schema_path, schema_path
from tidegate.format.rules.changes import TableRules
from tidegate.reader.replay import Lane, Planned, Surveyed, survey
from tidegate.storage.store import Store
from tidegate.tools.verify.unfinished import planned_files
from tidegate.tools.verify_database.compare import Era
from tidegate.tools.verify_database.landed import Files, NotComparable
from tidegate.tools.verify_database.lineage import (
    Name,
    Part,
    SchemaFile,
    Unsaid,
    layout,
    lineage,
    may_gain_rows,
    may_lose_rows,
    read_schema_file,
    unchanged,
)
from tidegate.tools.verify_database.ranges import Ranges
from tidegate.tools.verify_database.rows import Changes, Shape, Spill, changes
from tidegate.tools.verify_database.state import settled_rows
from tidegate.tools.verify_database.tables import DatabaseTable


def has_commit_ts(encoding: CsvOptions | CanalOptions) -> bool:
    """Whether every row on the sink says its commit-ts."""
    return encoding.include_commit_ts if isinstance(encoding, CsvOptions) else encoding.tidb_extension


class Sink:
    """One look at a sink. What is listed stays as it was then: data files only grow in number."""

    def __init__(self, settings: Settings, store: Store, ts: int) -> None:
        self.ts = ts
        self._settings, self._store = settings, store
        self._rules = TableRules(settings.rules)
        self._seen: dict[Name, Surveyed] = {}
        self._schema_files: dict[Name, list[SchemaFile]] = {}

    def target_of(self, schema: str, table: str) -> Name:
        """The name under which a table of the database lands."""
        return self._rules.target(schema, table)

    def _standing(self, name: Name) -> Surveyed:
        if name not in self._seen:
            paths = self._settings.paths
            levels = 2 if name[1] else 1  # of a database only the folder of its schema files
            folder = schema_path(*name, 1, 0, paths).rsplit("/", levels)[0]
            found = survey(self._store, paths, folder=folder)
            if found.faults:
                found = survey(self._store, paths, self._planned, folder)
            if found.faults:
                raise VerifyError(found.faults[0].text)
            self._seen[name] = found
        return self._seen[name]

    @cached_property
    def _planned(self) -> Planned:
        """What the next start of a changefeed that was killed will adopt."""
        return planned_files(self._store, self._settings.paths, self.ts)

    def names(self) -> set[Name]:
        """All names that have a schema file, those of databases among them, with an empty table."""
        parsed = (
            parse_schema_path(path, self._settings.paths) for path, _ in self._store.list("") if is_schema_path(path)
        )
        return {(found.schema, found.table) for found in parsed if found is not None}

    def schema_files(self, name: Name) -> Sequence[SchemaFile]:
        if name not in self._schema_files:
            paths = [path for paths in self._standing(name).schema_files.values() for path in paths]
            texts = ((self._store.get(path) or b"", path) for path in sorted(paths))
            self._schema_files[name] = [read_schema_file(text, path) for text, path in texts]
        return self._schema_files[name]

    def lanes(self, name: Name, version: int) -> list[Lane]:
        lanes = (lane for lanes in self._standing(name).tables.values() for lane in lanes)
        return [lane for lane in lanes if lane.key.version == version]

    def history(self, table: DatabaseTable) -> list[Part]:
        return self.history_of(self.target_of(table.schema, table.table))

    def history_of(self, name: Name) -> list[Part]:
        return lineage(name, self.ts, self.schema_files)

    @cached_property
    def _ranges(self) -> Ranges | None:
        return None if has_commit_ts(self._settings.encoding) else Ranges.of(self._store, self._settings.paths)

    # Rows.

    def spill(self, table: DatabaseTable, parts: Sequence[Part], shape: Shape, directory: Path, buckets: int) -> Spill:
        """All changes of the table on disk, under the key that it has now."""
        spill, key = Spill(directory / "sink", len(shape.names), buckets), shape.key
        for era, (part, file) in enumerate(_versions(parts)):
            of_era = _key_of(file, table, shape)
            if of_era != key:
                directory = directory / f"before-{era}"
                spill, key = _keyed_anew(spill, key, of_era, Spill(directory, len(shape.names), buckets)), of_era
            for lane in self.lanes(part.name, file.version):
                for rows in self._read(table, part, file, era, lane, shape._replace(key=key)):
                    spill.add(rows)
        if key == shape.key:
            return spill
        return _keyed_anew(spill, key, shape.key, Spill(directory / "now", len(shape.names), buckets))

    def _read(
        self, table: DatabaseTable, part: Part, file: SchemaFile, era: int, lane: Lane, shape: Shape
    ) -> Iterator[Changes]:
        columns = layout(file, Unsaid(table.virtual, table.zerofill, table.unique_keys))
        selected = self._rules.selected(table.schema, table.table, columns)
        files = Files(self._store, self._settings.paths, self._settings.encoding, columns, selected, era)
        until_ts = min(part.until_ts, self.ts)
        last = len(lane.sizes) if self._ranges is None else self._ranges.last_file(lane, until_ts)
        yield from files.changes(lane, last, until_ts, shape)

    def eras(self, parts: Sequence[Part], shape: Shape) -> list[Era]:
        files = [file for _, file in _versions(parts)]
        gains = may_gain_rows(files)
        found = []
        for file in files:
            same = unchanged(file, files[-1])
            kept = tuple(same.get(name, False) for name in shape.names)
            found.append(Era(file.version, kept, may_lose_rows(files, file.version), gains))
        return found


def _versions(parts: Sequence[Part]) -> list[tuple[Part, SchemaFile]]:
    return [(part, file) for part in parts for file in part.files]


def _key_of(file: SchemaFile, table: DatabaseTable, shape: Shape) -> tuple[int, ...]:
    """The positions of the columns that identified a row in this version."""
    primary = {column.name for column in file.columns if column.pk}
    names = {column.name for column in file.columns}
    if not primary:  # a unique key takes its place, as far as it was there
        return shape.key if names.issuperset(shape.names[i] for i in shape.key) else ()
    if not primary <= set(shape.names):
        raise NotComparable(f"its key had other columns before the DDL that followed version {file.version}")
    return tuple(i for i, name in enumerate(shape.names) if name in primary)


def _keyed_anew(spill: Spill, key: tuple[int, ...], now: tuple[int, ...], fresh: Spill) -> Spill:
    """The rows that are left of these changes, by another key."""
    for bucket in spill.buckets():
        rows = settled_rows(bucket, bool(key))
        fresh.add(changes(rows.op, rows.columns, now)._replace(era=rows.era, ts=rows.ts))
    return fresh
