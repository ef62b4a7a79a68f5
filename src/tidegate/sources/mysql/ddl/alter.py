"""ALTER TABLE: the definition of a table after it, and what kind of DDL it is.

The parts of an ALTER TABLE do not act one after the other. Names of columns that are changed, dropped or renamed are
those before it (`CHANGE a b int, CHANGE b a int` swaps two names), names behind AFTER are those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tidegate.errors import BadDdl
from tidegate.format.sql.words import Token, Words
from tidegate.sources.mysql.ddl.columns import Context, Declared, canonical
from tidegate.sources.mysql.ddl.defaults import server_default, take_default
from tidegate.sources.mysql.ddl.drafts import TableDraft, folded, is_key, qualified
from tidegate.sources.mysql.ddl.options import Options, read_options
from tidegate.sources.mysql.definition import Definition, ServerColumn
from tidegate.sources.mysql.log.charsets import char_bytes

_HIDDEN_KEY = "my_row_id"
FIRST = ""  # the place of a column that comes first; else the name of the one before it

_PARTITION_VERBS = {
    ("add", "partition"): "add partition",
    ("drop", "partition"): "drop partition",
    ("truncate", "partition"): "truncate partition",
    ("coalesce", "partition"): "reorganize partition",
    ("reorganize", "partition"): "reorganize partition",
    ("remove", "partitioning"): "remove partitioning",
    ("exchange", "partition"): "exchange partition",
    ("convert", "partition"): "convert partition",
    ("convert", "table"): "convert table",
}
_NO_EFFECT = {(verb, "partition") for verb in ("rebuild", "optimize", "analyze", "check", "repair")}
_TEXT_STEPS = ("tinytext", "text", "mediumtext", "longtext")
_TEXT_BYTES = dict(zip(_TEXT_STEPS, ((1 << bits) - 1 for bits in (8, 16, 24, 32)), strict=True))
_OPTION_ACTIONS = {"auto_increment": "rebase auto id", "comment": "table comment", "charset": "table charset"}


@dataclass
class Altered:
    """What an ALTER TABLE does. `actions` are names of `ACTIONS`, one for each part that has one.

    `partition` is what happens to partitions, `other` the table that takes part in it. `emptied` and `filled` say that
    rows go or come without the log.
    """

    definition: Definition
    actions: list[str] = field(default_factory=list)
    rename_to: tuple[str, str] | None = None
    partition: str = ""
    other: tuple[str, str] | None = None
    emptied: bool = False
    filled: bool = False


def alter(
    definition: Definition, words: Words, context: Context, names: tuple[str, str], database: str, default_charset: str
) -> Altered:
    """`names` are the table's, `database` is the statement's, `default_charset` of the table's database."""
    work = _Alter(TableDraft.of(definition, context, names[1], database), default_charset)
    partition, tokens = _cut_partition_clause(words.rest())
    specs = _specs(Words(words.text, tokens=tokens))
    options = [spec for spec in specs if _is_option(spec)]
    work.options(read_options([token for spec in options for token in spec.rest()] + partition, context.server))
    if partition and partition[0].lower == "remove":
        specs.append(Words(words.text, tokens=partition))
    # What is dropped is looked for in the table before the statement, so it goes first.
    goes = [spec for spec in specs if spec.ahead().lower in ("drop", "rename")]
    for spec in goes:
        work.read(spec)
    work.old_keys = len(work.draft.keys)
    for spec in specs:
        if spec and spec not in goes:
            work.read(spec)
    work.place_columns()
    work.altered.definition = work.draft.definition()
    return work.altered


def _is_option(spec: Words) -> bool:
    return spec.ahead().lower not in _READERS and not _takes_commas(spec)


def _cut_partition_clause(tokens: list[Token]) -> tuple[list[Token], list[Token]]:
    """A PARTITION BY may follow other parts without a comma."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.lower == "(") - (token.lower == ")")
        follows = tokens[at + 1].lower if at + 1 < len(tokens) else ""
        if not depth and (token.lower, follows) in (("partition", "by"), ("remove", "partitioning")):
            return tokens[at:], tokens[:at]
    return [], tokens


def _specs(words: Words) -> list[Words]:
    """The parts of the statement. A list of partitions, or of columns behind ORDER BY, belongs to its part."""
    specs: list[Words] = []
    for part in words.parts():
        if specs and _takes_commas(specs[-1]):
            specs[-1] = Words(words.text, tokens=[*specs[-1].rest(), *part.rest()])
        elif part:
            specs.append(part)
    return specs


def _takes_commas(spec: Words) -> bool:
    verbs = (spec.ahead().lower, spec.ahead(1).lower)
    return verbs in _PARTITION_VERBS or verbs in _NO_EFFECT or verbs == ("order", "by")


@dataclass
class _Alter:
    draft: TableDraft
    default_charset: str
    altered: Altered = field(default_factory=lambda: Altered(Definition()))
    dropped: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)
    changed: dict[str, Declared] = field(default_factory=dict)
    defaults: dict[str, list[Token] | None] = field(default_factory=dict)
    placed: list[tuple[Declared, str | None, str | None]] = field(default_factory=list)  # column, its place, old name
    invisible: dict[str, bool] = field(default_factory=dict)
    old_keys: int = 0  # how many of the draft's keys, from the first on, were there before

    # Options ----------------------------------------------------------------------------------------------------------

    def options(self, options: Options) -> None:
        draft = self.draft
        draft.charset = options.charset or draft.charset
        draft.engine = options.engine or draft.engine
        draft.partitioned = draft.partitioned or options.partitioned
        if options.partitioned:
            self.altered.partition = "partition by"
        self.altered.actions += [action for name, action in _OPTION_ACTIONS.items() if name in options.named]
        if options.convert:
            draft.charset = self.default_charset if options.convert == "default" else options.convert
            draft.columns = [_converted(each, draft.charset, draft.context) for each in draft.columns]

    # Parts ------------------------------------------------------------------------------------------------------------

    def read(self, spec: Words) -> None:
        verbs = (spec.ahead().lower, spec.ahead(1).lower)
        if verbs in _NO_EFFECT:
            return
        if verbs in _PARTITION_VERBS:
            self._partition(_PARTITION_VERBS[verbs], spec)
            return
        reader = _READERS.get(verbs[0])
        if reader is not None:
            spec.take()
            reader(self, spec)

    def _partition(self, action: str, spec: Words) -> None:
        spec.take(), spec.take()
        self.altered.partition = action
        if action == "remove partitioning":
            self.draft.partitioned = False
        elif action == "exchange partition":
            spec.take()
            if not spec.skip("with", "table"):
                raise BadDdl("an EXCHANGE PARTITION names no table")
            self.altered.other = qualified(spec, self.draft.database)
        elif action == "convert partition":
            spec.take()
            if not spec.skip("to", "table"):
                raise BadDdl("a CONVERT PARTITION names no table")
            self.altered.other = qualified(spec, self.draft.database)
        elif action == "convert table":
            self.altered.other = qualified(spec, self.draft.database)

    def add(self, spec: Words) -> None:
        if spec.skip("system", "versioning"):
            self.draft.versioned = True
        elif is_key(spec) or spec.peek("period", "for") or spec.peek("vector", "index"):
            kind = self.draft.add_clause(spec)
            kinds = {"primary": "add primary key", "foreign": "add foreign key", "fulltext": "full-text index"}
            if kind not in ("check", "period"):
                self.altered.actions.append(kinds.get(kind, "add index"))
        else:
            spec.skip("column")
            if_new = spec.skip("if", "not", "exists")
            for item in spec.items() or [spec]:
                self._add_column(item, if_new)

    def _add_column(self, item: Words, if_new: bool) -> None:
        if is_key(item):
            self.draft.add_clause(item)
            return
        if if_new and self._exists(item.ahead().value):
            return
        item, place = _cut_place(item)
        self.placed.append((self.draft.declare(item), place, None))
        self.altered.actions.append("add column")

    def _exists(self, name: str) -> bool:
        added = any(folded(declared.column.name) == folded(name) for declared, _, _ in self.placed)
        return added or self.draft.place_of(name) >= 0

    def drop(self, spec: Words) -> None:
        if spec.skip("primary"):
            self.draft.drop_key("PRIMARY")
            self.altered.actions.append("drop primary key")
        elif spec.skip_one("key", "index"):
            self._drop_key(spec)
        elif spec.skip("foreign"):
            spec.skip("key")
            spec.skip("if", "exists")
            self._drop_foreign(spec.take().value)
        elif spec.skip("constraint"):
            self._drop_constraint(spec)
        elif spec.skip("system", "versioning"):
            self.draft.versioned = False
        elif not spec.skip("check") and not spec.skip("period", "for"):
            self._drop_column(spec)

    def _drop_key(self, spec: Words) -> None:
        if_there = spec.skip("if", "exists")
        name = spec.take().value
        if not if_there or self.draft.has_key(name):
            self.draft.drop_key(name)
            self.altered.actions.append("drop index")

    def _drop_foreign(self, name: str) -> None:
        keys = self.draft.foreign_keys
        self.draft.foreign_keys = [key for key in keys if folded(key.name) != folded(name)]
        self.altered.actions.append("drop foreign key")

    def _drop_constraint(self, spec: Words) -> None:
        """A constraint is a key, a foreign key, or a check that changes nothing here."""
        spec.skip("if", "exists")
        name = spec.take().value
        if self.draft.has_key(name) and not any(folded(key.name) == folded(name) for key in self.draft.foreign_keys):
            self.draft.drop_key(name)
            self.altered.actions.append("drop primary key" if folded(name) == "primary" else "drop index")
        else:
            self._drop_foreign(name)

    def _drop_column(self, spec: Words) -> None:
        spec.skip("column")
        if_there = spec.skip("if", "exists")
        name = spec.take().value
        at = self.draft.place_of(name)
        if if_there and at < 0:
            return
        self.dropped.add(folded(self.draft.columns[self.draft.need(name)].name))
        self.altered.actions.append("drop column")

    def modify(self, spec: Words) -> None:
        spec.skip("column")
        if_there = spec.skip("if", "exists")
        self._change(spec.ahead().value, spec, if_there)

    def change(self, spec: Words) -> None:
        spec.skip("column")
        if_there = spec.skip("if", "exists")
        self._change(spec.take().value, spec, if_there)

    def _change(self, old: str, spec: Words, if_there: bool) -> None:
        if if_there and self.draft.place_of(old) < 0:
            return
        spec, place = _cut_place(spec)
        before = self.draft.columns[self.draft.need(old)]
        declared = self.draft.declare(spec)
        column = replace(declared.column.column, id=before.column.id)
        declared = replace(declared, column=replace(declared.column, column=column))
        self.changed[folded(before.name)] = declared
        if folded(before.name) != folded(column.name) or before.name != column.name:
            self.renamed[folded(before.name)] = column.name
        if place is not None:
            self.placed.append((declared, place, before.name))
        self.altered.actions.append("modify column")

    def rename(self, spec: Words) -> None:
        if spec.skip("column"):
            if_there = spec.skip("if", "exists")
            old = spec.take().value
            spec.skip("to")
            if not if_there or self.draft.place_of(old) >= 0:
                before = self.draft.columns[self.draft.need(old)].name
                self.renamed[folded(before)] = spec.take().value
                self.altered.actions.append("modify column")
        elif spec.skip_one("index", "key"):
            if_there = spec.skip("if", "exists")
            old = spec.take().value
            spec.skip("to")
            if not if_there and not self.draft.has_key(old):
                raise BadDdl(f"{self.draft.table} has no key {old!r}")
            self.draft.rename_key(old, spec.take().value)
            self.altered.actions.append("rename index")
        else:
            spec.skip_one("to", "as", "=")
            self.altered.rename_to = qualified(spec, self.draft.database)

    def alter(self, spec: Words) -> None:
        if spec.skip_one("index", "key"):
            self.altered.actions.append("index visibility")
        elif spec.skip_one("check", "constraint"):
            return
        else:
            spec.skip("column")
            if_there = spec.skip("if", "exists")
            name = spec.take().value
            if not if_there or self.draft.place_of(name) >= 0:
                self._alter_default(self.draft.columns[self.draft.need(name)].name, spec)

    def _alter_default(self, name: str, spec: Words) -> None:
        if spec.skip("drop", "default"):
            self.defaults[folded(name)] = None
        elif spec.skip("set", "default"):
            self.defaults[folded(name)] = take_default(spec)
        else:
            spec.skip("set")
            self.invisible[folded(name)] = spec.take().lower == "invisible"
            return
        self.altered.actions.append("set default")

    def discard(self, spec: Words) -> None:
        self.altered.emptied = True

    def load(self, spec: Words) -> None:
        self.altered.filled = True

    # The columns after it ---------------------------------------------------------------------------------------------

    def place_columns(self) -> None:
        """A column that moves stays at its old place until its turn comes."""
        draft = self.draft
        draft.columns = [self._kept(each) for each in draft.columns if folded(each.name) not in self.dropped]
        for declared, place, old in self.placed:
            if old is not None:
                del draft.columns[draft.need(declared.column.name)]
            draft.columns.insert(self._place(place), declared.column)
        self._follow_in_keys()

    def _place(self, place: str | None) -> int:
        if place is None:
            return len(self.draft.columns)
        return self._front() if place == FIRST else self.draft.need(place) + 1

    def _front(self) -> int:
        """Before MySQL's own invisible primary key comes no column."""
        first = self.draft.columns[0] if self.draft.columns else None
        is_hidden_key = first is not None and first.invisible and folded(first.name) == _HIDDEN_KEY
        return int(is_hidden_key and not self.draft.context.server.mariadb)

    def _kept(self, each: ServerColumn) -> ServerColumn:
        name = folded(each.name)
        if name in self.changed:
            return self.changed[name].column
        column = each.column
        if name in self.renamed:
            column = replace(column, name=self.renamed[name])
        if name in self.defaults:
            tokens = self.defaults[name]
            value = None if tokens is None else server_default(column, tokens, self.draft.context.reading)
            column = replace(column, default=value)
        return replace(each, column=column, invisible=self.invisible.get(name, each.invisible))

    def _follow_in_keys(self) -> None:
        """Keys lose the columns that are dropped and follow those that get new names. New keys have the new names."""
        draft, kept = self.draft, []
        for key in draft.keys[: self.old_keys]:
            names = [name for name in key.columns if folded(name) not in self.dropped]
            if names or key.expressions:
                kept.append(replace(key, columns=self._new_names(names)))
        draft.keys = kept + draft.keys[self.old_keys :]
        draft.foreign_keys = [replace(key, columns=self._new_names(key.columns)) for key in draft.foreign_keys]

    def _new_names(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.renamed.get(folded(name), name) for name in names)


def _cut_place(spec: Words) -> tuple[Words, str | None]:
    """The definition without FIRST or AFTER at its end, and the place that they say."""
    tokens = spec.rest()
    if tokens and tokens[-1].lower == "first":
        return Words(spec.text, tokens=tokens[:-1]), FIRST
    if len(tokens) > 2 and tokens[-2].lower == "after":
        return Words(spec.text, tokens=tokens[:-2]), tokens[-1].value
    return Words(spec.text, tokens=tokens), None


def _converted(each: ServerColumn, charset: str, context: Context) -> ServerColumn:
    """The column after CONVERT TO CHARACTER SET: a text becomes a larger kind where its letters need more bytes."""
    column = each.column
    if not each.charset or each.charset == "binary":
        return each
    if column.type in _TEXT_BYTES:
        letters = _TEXT_BYTES[column.type] // char_bytes(each.charset)
        if letters * char_bytes(charset) > _TEXT_BYTES[column.type] and column.type != _TEXT_STEPS[-1]:
            column = replace(column, type=_TEXT_STEPS[_TEXT_STEPS.index(column.type) + 1])
    if charset == "binary" and column.type not in ("enum", "set"):
        column = replace(column, binary=True)
    return replace(each, column=canonical(column, charset, context.server), charset=charset)


_READERS: dict[str, Callable[[_Alter, Words], None]] = {
    "add": _Alter.add,
    "drop": _Alter.drop,
    "modify": _Alter.modify,
    "change": _Alter.change,
    "rename": _Alter.rename,
    "alter": _Alter.alter,
    "discard": _Alter.discard,
    "import": _Alter.load,
}
