"""What is known of the chunks that have parts in the log at hand: their notes, and their tables as they are there."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.errors import BadSetting
from tidegate.sources.mysql.catalogue import Catalogue, TableEntry
from tidegate.sources.mysql.chain import Extra
from tidegate.sources.mysql.snapshot.progress import Progress
from tidegate.sources.mysql.snapshot.queue import PartName
from tidegate.sources.mysql.snapshot.stage import FOLDER, Note, PartNote, note_path, read_note
from tidegate.storage.store import Store


@dataclass
class Notes:
    store: Store
    tables: dict[str, TableEntry] = field(default_factory=dict)  # by name of a part
    _known: dict[str, Note] = field(default_factory=dict)

    def know(self, part: PartName, note: Note) -> None:
        self._known[str(part.chunk)] = note

    def of(self, part: PartName) -> Note:
        """The note of a part's chunk. What is on record is read from the store."""
        chunk = str(part.chunk)
        if chunk not in self._known:
            found = read_note(self.store, chunk)
            if found is None:
                raise BadSetting(
                    f"{note_path(chunk)} is gone, which is on record as a part of the snapshot; bring it back, or "
                    "start anew on an empty prefix"
                )
            self._known[chunk] = found
        return self._known[chunk]

    def part(self, part: PartName) -> PartNote:
        return self.of(part).emitted[part.part]

    def after(self, progress: Progress, part: PartName) -> Progress:
        """How far the snapshot is behind this part."""
        return progress.emitted(part.chunk.table_id, part.chunk.version, self.part(part).high)

    def describe(self, name: str, catalogue: Catalogue) -> Extra:
        """A part arrives at its place in the log; the catalogue is that of this place."""
        part = PartName.of(name)
        table_id = part.chunk.table_id
        found = next(iter(catalogue.waiting(table_id - 1, 1)), None)
        if found is not None and found.table_id == table_id:
            self.tables[name] = found
        # A part before the offset only comes again because another table is behind: it may be durable and gone.
        known = str(part.chunk) in self._known or read_note(self.store, str(part.chunk)) is not None
        return Extra(chunk=name, table_id=table_id, size_bytes=self.part(part).value_bytes if known else 0)

    def forget(self, name: str) -> None:
        """A part is durable: nobody asks for it again."""
        part = PartName.of(name)
        note = self.of(part)
        for each in note.parts if note.whole else (note.parts[part.part],):
            if each.path:
                self.store.delete(each.path)
        if part.part == len(note.emitted) - 1:
            self.store.delete(note_path(str(part.chunk)))
            self._known.pop(str(part.chunk), None)
        self.tables.pop(name, None)

    def sweep(self, recorded: set[str], run: str) -> None:
        """Deletes what other processes staged, except for these chunks: nobody will emit it."""
        for path, _ in list(self.store.list(FOLDER)):
            chunk = path.rpartition("/")[2].partition(".")[0]
            if chunk not in recorded and f"-{run}-" not in chunk:
                self.store.delete(path)
