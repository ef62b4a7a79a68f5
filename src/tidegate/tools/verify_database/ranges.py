"""Which data files hold only rows up to a commit-ts, for a sink whose rows do not say theirs: the journal tells.

An entry of the journal has the first and the last commit-ts of each file that it planned. For what is older than the
newest snapshot there is the last commit-ts of each table. A file with rows on both sides cannot be cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidegate.driver.entries import FILES, planned_files
from tidegate.driver.recovery import read_journal
from tidegate.format.layout import PathOptions, data_path
from tidegate.reader.replay import Lane
from tidegate.storage.store import Store
from tidegate.tools.verify_database.landed import NotComparable


@dataclass(frozen=True)
class Ranges:
    """By path the first and the last commit-ts of a file; `older_ts` is the last one of all other files."""

    paths: PathOptions
    files: dict[str, tuple[int, int]]
    older_ts: int

    @staticmethod
    def of(store: Store, paths: PathOptions) -> Ranges:
        _, found = read_journal(store, paths)
        tables = [table for table in found.tables if "plan" in table.schema.names]
        planned = planned_files(pa.concat_tables([*tables, found.pending, found.orphans, FILES.empty_table()]))
        files = {
            data_path(file.key(paths), file.number, file.naming(paths)): (file.first_ts, file.last_ts)
            for file in planned
        }
        older = [table["last_ts"] for table in found.tables if "plan" not in table.schema.names]
        return Ranges(paths, files, max((ts for column in older for ts in column.to_pylist()), default=0))

    def last_file(self, lane: Lane, until_ts: int) -> int:
        """The number of the last file of a directory that counts."""
        for number in range(1, len(lane.sizes) + 1):
            first, last = self.files.get(data_path(lane.key, number, self.paths), (0, self.older_ts))
            if last > until_ts and first > until_ts:
                return number - 1
            if last > until_ts:
                raise NotComparable(
                    "its rows do not say their commit-ts, and a data file has rows on both sides of the comparison; "
                    "stop the changefeed first, or use a sink with csv.include-commit-ts = true (canal-json: "
                    "enable-tidb-extension = true)"
                )
        return len(lane.sizes)
