"""Which schema files should exist on a sink, and in the directory of which version the rows of a table are.

A schema file has one of two reasons. Either a DDL wrote it (`format/ddl/files.py`): up to the checkpoint its files must
exist, beyond it they may, and those that exist have exactly that text. Or rows of a version that had no file yet wrote
it, with no query and type 0; rows that find a file of the same columns under an older version go to the directory of
that one instead. A file that has neither reason is named in the end.

A source may hand out a DDL behind the rows that follow it, but in the same step. So what rows do not explain waits for
the end of the step.
"""

from __future__ import annotations

import json
from bisect import bisect_right, insort
from collections.abc import Mapping

from tidegate.config.settings import Settings
from tidegate.errors import VerifyError
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.ddl.files import SchemaFile, schema_files
from tidegate.format.ddl.filter import DdlRules
from tidegate.format.layout import parse_schema_path, schema_path
from tidegate.format.rules.changes import TableRules
from tidegate.format.tables import Layout, columns_text, schema_checksum, schema_file_text
from tidegate.reader.replay import Surveyed, VersionKey
from tidegate.storage.store import Store
from tidegate.tools.verify.runs import Head

Folder = tuple[str, str]  # schema and table as paths tell them: with table ids for names the id's text and ""
_SHOWN_CHARS = 120


class SchemaFault(VerifyError):
    """A schema file is wrong or missing; what else differs may be a consequence."""


class SchemaFiles:
    """The schema files of a sink; `left` are those that nothing has explained yet."""

    def __init__(
        self, standing: Surveyed, settings: Settings, store: Store, rules: TableRules, checkpoint_ts: int
    ) -> None:
        self._paths, self._with_ids, self._store = settings.paths, settings.output_column_id, store
        self._rules, self._ddl_rules, self._checkpoint_ts = rules, DdlRules(settings.rules), checkpoint_ts
        self._standing = standing.schema_files
        self.left = {path: key for key, paths in standing.schema_files.items() for path in paths}
        self._right: set[str] = set()
        self._doubts: dict[str, str] = {}  # by path, the sentence about a file that is wrong unless a DDL wrote it
        self._ddls: dict[Folder, list[int]] = {}
        self._versions: dict[tuple[str, str, int], list[int]] = {}
        for path, key in self.left.items():
            if parsed := parse_schema_path(path, self._paths):
                self._versions.setdefault((key.schema, key.table, parsed.checksum), []).append(key.version)

    # DDLs.

    def learn(self, ts: int, event: DdlEvent, layouts: Mapping[int, Layout]) -> None:
        """A DDL of the source: its files must be right."""
        written = self._ddl_rules.written(event)
        if written is None:
            return
        files = dict(schema_files(written, ts, layouts, self._paths, self._rules.ddl_target, self._with_ids))
        standing = {path for path in files if path in self.left or path in self._right}
        for path in sorted(files, key=lambda path: path not in standing):
            file = SchemaFile(path, files[path])
            key = VersionKey(*(parse_schema_path(path, self._paths) or ("", "", ts))[:3])
            self._note(key[:2], ts)
            if path in standing:
                self._check_ddl_file(file, ts)
            else:
                self._check_no_ddl_file(file, key, ts)

    def _check_ddl_file(self, file: SchemaFile, ts: int) -> None:
        if wrong := self._wrong(file):
            raise SchemaFault(f"{_name(file)}: schema file {file.path} of the DDL at commit-ts {ts} {wrong}")
        self._explain(file.path)

    def _check_no_ddl_file(self, file: SchemaFile, key: VersionKey, ts: int) -> None:
        if other := self._other(key, file.path):
            raise SchemaFault(_wrong_checksum(_name(file), other, file.path))
        if ts <= self._checkpoint_ts:
            raise SchemaFault(
                f"{_name(file)}: schema file {file.path} of the DDL at commit-ts {ts} is missing, although the "
                f"checkpoint is {self._checkpoint_ts}"
            )

    def _note(self, folder: Folder, ts: int) -> None:
        known = self._ddls.setdefault(folder, [])
        if ts not in known[-1:]:
            insort(known, ts)

    def is_ddl(self, folder: Folder, ts: int) -> bool:
        return ts in self._ddls.get(folder, ())

    def last_ddl(self, folder: Folder, ts: int) -> int | None:
        """The commit-ts of the last DDL of this table up to `ts`."""
        known = self._ddls.get(folder, [])
        at = bisect_right(known, ts)
        return known[at - 1] if at else None

    def next_ddl(self, folder: Folder, ts: int) -> int | None:
        """The commit-ts of the first DDL of this table after `ts`."""
        known = self._ddls.get(folder, [])
        at = bisect_right(known, ts)
        return known[at] if at < len(known) else None

    # Rows.

    def settle(self, folder: Folder, names: Folder, rows: Head) -> tuple[int, bool]:
        """The version in the path of these rows, and whether its schema file exists; one that exists is right."""
        checksum = schema_checksum(*names, rows.layout, self._with_ids)
        versions = self._versions.get((*folder, checksum), ())
        right = self._path(names, rows, checksum, rows.version)
        if other := self._other(VersionKey(*folder, rows.version), right):
            self._doubts[other] = _wrong_checksum(".".join(names), other, right)
        if rows.version in versions:
            self._check_row_file(right, names, rows)
            return rows.version, True
        since = self.last_ddl(folder, rows.version) or 0  # the file of a DDL comes before any row behind it
        older = max((version for version in versions if since <= version < rows.version), default=None)
        if older is None or not self._same_columns(self._path(names, rows, checksum, older), names, rows):
            return rows.version, False
        return older, True

    def _path(self, names: Folder, rows: Head, checksum: int, version: int) -> str:
        return schema_path(*names, version, checksum, self._paths, rows.table_id)

    def _other(self, key: VersionKey, right: str) -> str | None:
        """A schema file of this version with another checksum."""
        return next((path for path in self._standing.get(key, ()) if path in self.left and path != right), None)

    def _check_row_file(self, path: str, names: Folder, rows: Head) -> None:
        if path in self._right or path in self._doubts:
            return  # a DDL wrote it, or another partition came before
        text = schema_file_text(*names, rows.version, rows.layout, output_column_id=self._with_ids)
        if wrong := self._wrong(SchemaFile(path, text)):
            self._doubts[path] = f"{'.'.join(names)}: schema file {path} {wrong}"
        else:
            self._explain(path)

    def _same_columns(self, path: str, names: Folder, rows: Head) -> bool:
        """The checksum does not see the order of columns, which rows depend on."""
        text = schema_file_text(*names, rows.version, rows.layout, output_column_id=self._with_ids)
        return columns_text((self._store.get(path) or b"").decode(errors="replace")) == columns_text(text)

    def _wrong(self, right: SchemaFile) -> str:
        """What is wrong with the text of the file; "" if it is right."""
        found = self._store.get(right.path) or b""
        return "" if found == right.text.encode() else _difference(found, right.text)

    def _explain(self, path: str) -> None:
        self.left.pop(path, None)
        self._doubts.pop(path, None)
        self._right.add(path)

    def end_step(self) -> None:
        """All DDLs of the rows so far have come: nothing else will explain what rows did not."""
        for sentence in self._doubts.values():
            raise SchemaFault(sentence)

    def check_rest(self) -> None:
        """The source has no more to say: every schema file must have had its reason."""
        for path, key in self.left.items():
            name = f"{key.schema}.{key.table}" if key.table else key.schema
            raise VerifyError(
                f"{name}: the source has no version {key.version}, but {path} is there: no DDL wrote it, and no row"
            )


def _name(file: SchemaFile) -> str:
    said = json.loads(file.text)
    return f"{said['Schema']}.{said['Table']}" if said["Table"] else str(said["Schema"])


def _wrong_checksum(name: str, path: str, right: str) -> str:
    return f"{name}: schema file {path} has a wrong checksum; by the source it should be {right}"


def _difference(found: bytes, wanted: str) -> str:
    """`says Type 5 where 7 should be`: the first field that differs."""
    try:
        said = json.loads(found)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return f"is no JSON object: it says {found[:_SHOWN_CHARS]!r}"
    for field, value in json.loads(wanted).items():
        if said.get(field) != value:
            if field.startswith("TableColumns"):
                return "does not describe the source's columns"
            return f"says {field} {said.get(field)!r:.{_SHOWN_CHARS}} where {value!r:.{_SHOWN_CHARS}} should be"
    return "has all that should be there, but is spelled otherwise"
