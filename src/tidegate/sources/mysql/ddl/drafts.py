"""A table while a statement builds or changes it: columns, keys and foreign keys, by the rules of the servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from unicodedata import combining, normalize

from tidegate.errors import BadDdl
from tidegate.format.sql.words import Words
from tidegate.sources.mysql.ddl.columns import Context, Declared, read_declared
from tidegate.sources.mysql.definition import INDEX, PRIMARY, UNIQUE, Definition, ForeignKey, Key, ServerColumn

_CLAUSES = ("primary", "unique", "key", "index", "fulltext", "spatial", "foreign", "check", "constraint")
_PRIMARY_NAME = "PRIMARY"
_ACTIONS = {"cascade": "CASCADE", "set null": "SET NULL", "set default": "SET DEFAULT"}


@cache
def folded(name: str) -> str:
    """How servers compare names of columns and keys: `Größe` is `GROSSE` but for the ß; accents do not count."""
    return "".join(each for each in normalize("NFD", name.lower()) if not combining(each))


def is_clause(words: Words) -> bool:
    """Whether an item of a table's body is a key, a check or a period, and no column."""
    first, second = words.ahead(), words.ahead(1).lower
    if first.kind != "word":
        return False
    return first.lower in _CLAUSES or (first.lower, second) in (("period", "for"), ("vector", "index"))


def is_key(words: Words) -> bool:
    """Whether an item is a key, a check or a constraint: these words can be no names unless they are quoted."""
    return words.ahead().kind == "word" and words.ahead().lower in _CLAUSES


@dataclass
class TableDraft:
    """`database` is of the statement: foreign keys may name a table without one."""

    context: Context
    table: str
    database: str
    columns: list[ServerColumn] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    foreign_keys: list[ForeignKey] = field(default_factory=list)
    charset: str = "utf8mb4"
    engine: str = "InnoDB"
    partitioned: bool = False
    versioned: bool = False
    last_id: int = 0
    references: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # new foreign keys: name, columns
    periods: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of times that users name: begin and end
    bare_timestamps: dict[str, bool] = field(default_factory=dict)  # folded name: whether it has no default

    @staticmethod
    def of(definition: Definition, context: Context, table: str, database: str) -> TableDraft:
        return TableDraft(
            context,
            table,
            database,
            list(definition.columns),
            list(definition.keys),
            list(definition.foreign_keys),
            definition.charset,
            definition.engine,
            definition.partitioned,
            definition.versioned,
            definition.last_id,
        )

    def definition(self) -> Definition:
        """The table as the server stores it. A column of the primary key is NOT NULL, also after the key is gone."""
        self._settle_timestamps()
        self._index_references()
        self._drop_generated()
        primary = {folded(name) for key in self.keys if key.kind == PRIMARY for name in key.columns}
        columns = []
        for each in self.columns:
            column = replace(each.column, nullable=False) if folded(each.name) in primary else each.column
            if column.id is None:
                self.last_id += 1
                column = replace(column, id=self.last_id)
            columns.append(replace(each, column=column))
        return Definition(
            columns=tuple(columns),
            keys=tuple(self._spelled(key) for key in self.keys),
            foreign_keys=tuple(self.foreign_keys),
            charset=self.charset,
            engine=self.engine,
            partitioned=self.partitioned,
            versioned=self.versioned,
            last_id=self.last_id,
        )

    def _spelled(self, key: Key) -> Key:
        names = {folded(each.name): each.name for each in self.columns}
        if missing := [name for name in key.columns if folded(name) not in names]:
            raise BadDdl(f"the key {key.name!r} has the column {missing[0]!r}, which {self.table} does not have")
        return replace(key, columns=tuple(names[folded(name)] for name in key.columns))

    # Columns ----------------------------------------------------------------------------------------------------------

    def place_of(self, name: str) -> int:
        """Where the column of this name is; -1 without one."""
        exact = name.lower()
        for at, each in enumerate(self.columns):
            if each.name.lower() == exact:
                return at
        wanted = folded(name)
        return next((at for at, each in enumerate(self.columns) if folded(each.name) == wanted), -1)

    def need(self, name: str) -> int:
        at = self.place_of(name)
        if at < 0:
            raise BadDdl(f"{self.table} has no column {name!r}")
        return at

    def declare(self, words: Words) -> Declared:
        """Read a column definition, and take in its keys and its reference. The column itself is not placed."""
        declared = read_declared(words, self.context, self.charset)
        name = declared.column.name
        if declared.primary:
            self.keys.append(Key(_PRIMARY_NAME, PRIMARY, (name,)))
        if declared.unique:
            self.keys.append(Key(self.free_name(name), UNIQUE, (name,)))
        if declared.references is not None:
            self._reference("", "", (name,), declared.references)
        if declared.is_timestamp or declared.column.column.type == "timestamp":
            self._note_timestamp(declared)
        return declared

    def _note_timestamp(self, declared: Declared) -> None:
        if self.context.explicit_timestamps:
            return
        self.bare_timestamps[folded(declared.column.name)] = declared.is_timestamp or declared.has_default

    def _settle_timestamps(self) -> None:
        """Without `explicit_defaults_for_timestamp` columns are NOT NULL, the first has the time as its default."""
        if self.context.explicit_timestamps:
            return
        first = True
        for at, each in enumerate(self.columns):
            if each.column.type == "timestamp":
                self.columns[at] = self._old_timestamp(each, first)
                first = False

    def _old_timestamp(self, each: ServerColumn, first: bool) -> ServerColumn:
        column = each.column
        is_new = folded(each.name) in self.bare_timestamps
        if is_new and self.bare_timestamps[folded(each.name)]:
            column = replace(column, nullable=False)
        if is_new and not column.nullable and column.default is None and not each.generated:
            digits = "." + "0" * column.decimals if column.decimals else ""
            zero = f"0000-00-00 00:00:00{digits}"
            column = replace(column, default="CURRENT_TIMESTAMP" if first else zero)
        return replace(each, column=column)

    # Keys -------------------------------------------------------------------------------------------------------------

    def free_name(self, name: str) -> str:
        """The name of a key that nobody named: of its first column, with a number if it is taken."""
        taken = {folded(key.name) for key in self.keys}
        if folded(name) not in taken and folded(name) != folded(_PRIMARY_NAME):
            return name
        return next(f"{name}_{number}" for number in range(2, 10_000) if folded(f"{name}_{number}") not in taken)

    def has_key(self, name: str) -> bool:
        return any(folded(key.name) == folded(name) for key in self.keys)

    def drop_key(self, name: str) -> None:
        if not self.has_key(name):
            raise BadDdl(f"{self.table} has no key {name!r}")
        self.keys = [key for key in self.keys if folded(key.name) != folded(name)]

    def rename_key(self, old: str, new: str) -> None:
        self.keys = [replace(key, name=new) if folded(key.name) == folded(old) else key for key in self.keys]

    def add_clause(self, words: Words) -> str:
        """Take in a key, a foreign key, a check or a period. Returns what it is: `unique`, `foreign`, `check`, ..."""
        name, if_new = "", False
        if words.skip("constraint"):
            if_new = words.skip("if", "not", "exists")
            name = "" if is_key(words) else words.take().value
        kind = words.take().lower
        match kind:
            case "primary":
                self._add_primary(words)
            case "unique" | "key" | "index" | "fulltext" | "spatial" | "vector":
                self._add_key(kind, name, words)
            case "foreign":
                self._add_foreign(name, if_new, words)
            case "period":
                self._add_period(words)
            case "check":
                pass
            case _:
                raise words.refuse(f"has the unknown word {kind!r}")
        return kind

    def _add_primary(self, words: Words) -> None:
        words.skip("key")
        if_new = words.skip("if", "not", "exists")
        while words and not words.peek("("):
            words.take()  # a name that is not used, and a kind of index
        columns, _ = _parts(words.items())
        if if_new and self.has_key(_PRIMARY_NAME):
            return
        self.keys.append(Key(_PRIMARY_NAME, PRIMARY, columns))

    def _add_key(self, kind: str, name: str, words: Words) -> None:
        if kind not in ("key", "index"):
            words.skip_one("key", "index")
        if_new = words.skip("if", "not", "exists")
        if words and not words.peek("(") and not words.peek("using") and not words.peek("type"):
            name = words.take().value
        while words and not words.peek("("):
            words.take()  # the kind of index
        columns, expressions = self._with_period(*_parts(items := words.items()), items)
        if if_new and name and self.has_key(name):
            return
        first = "functional_index" if not columns or (expressions and not name) else columns[0]
        kind = UNIQUE if kind == "unique" else INDEX
        self.keys.append(Key(name or self.free_name(first), kind, columns, expressions))

    def _with_period(
        self, columns: tuple[str, ...], others: bool, items: Sequence[Words]
    ) -> tuple[tuple[str, ...], bool]:
        """A key WITHOUT OVERLAPS of a period has the period's columns, the end before the begin."""
        named = [item.ahead().value for item in items if item.ahead(1).lower == "without"]
        if not named:
            return columns, others
        if folded(named[0]) not in self.periods:
            raise BadDdl(f"nothing is known of the period {named[0]!r}")
        return (*columns, *reversed(self.periods[folded(named[0])])), False

    def _add_foreign(self, name: str, if_new: bool, words: Words) -> None:
        words.skip("key")
        if_new = words.skip("if", "not", "exists") or if_new
        index = "" if words.peek("(") else words.take().value
        columns, _ = _parts(words.items())
        if if_new and any(folded(each.name) == folded(name or index) for each in self.foreign_keys):
            return
        if not words.skip("references"):
            raise words.refuse("is a foreign key without REFERENCES")
        self._reference(name, index, columns, words)

    def _reference(self, name: str, index: str, columns: tuple[str, ...], words: Words) -> None:
        database, table = qualified(words, self.database)
        words.items()
        actions = {"on delete": "RESTRICT", "on update": "RESTRICT"}
        while words:
            word = words.take().lower
            if word == "on":
                what = f"on {words.take().lower}"
                action = words.take().lower
                action += " " + words.take().lower if action in ("set", "no") else ""
                actions[what] = _ACTIONS.get(action, "RESTRICT")
        if self.context.server.mariadb:
            name = name or index
        generated = name or self._generated_name()
        self.foreign_keys.append(
            ForeignKey(generated, columns, database, table, actions["on delete"], actions["on update"])
        )
        self.references.append((name or index, columns))

    def _index_references(self) -> None:
        """Servers add an index for a foreign key, unless another one begins with its columns."""
        for name, columns in self.references:
            wanted = [folded(column) for column in columns]
            if not any([folded(column) for column in key.columns[: len(wanted)]] == wanted for key in self.keys):
                self.keys.append(Key(name or self.free_name(columns[0]), INDEX, columns, generated=True))
        self.references = []

    def _drop_generated(self) -> None:
        """A key that the server made for a foreign key goes as soon as another one serves."""
        kept = []
        for at, key in enumerate(self.keys):
            others = [other for place, other in enumerate(self.keys) if place != at and not other.generated]
            wanted = [folded(column) for column in key.columns]
            served = any([folded(column) for column in other.columns[: len(wanted)]] == wanted for other in others)
            if not (key.generated and served):
                kept.append(key)
        self.keys = kept

    def _generated_name(self) -> str:
        prefix = f"{self.table}_ibfk_"
        used = [each.name.removeprefix(prefix) for each in self.foreign_keys if each.name.startswith(prefix)]
        return prefix + str(max((int(number) for number in used if number.isdecimal()), default=0) + 1)

    def note_period(self, words: Words) -> None:
        words.skip("period", "for")
        name = folded(words.take().value)
        self.periods[name] = tuple(token.value for token in words.group())

    def _add_period(self, words: Words) -> None:
        """The columns of a period become NOT NULL, except those of system versioning, which are so by themselves."""
        words.skip("for")
        name = folded(words.take().value)
        if name == "system_time":
            return
        names = {folded(token.value) for token in words.group()}
        self.columns = [
            replace(each, column=replace(each.column, nullable=False)) if folded(each.name) in names else each
            for each in self.columns
        ]


def _parts(items: Sequence[Words]) -> tuple[tuple[str, ...], bool]:
    """The columns of a key, and whether it has other parts: expressions, `WITHOUT OVERLAPS` of a period."""
    names = [item.ahead() for item in items]
    columns = tuple(
        token.value
        for token, item in zip(names, items, strict=True)
        if token.is_name and item.ahead(1).lower != "without"
    )
    return columns, len(columns) < len(items)


def qualified(words: Words, database: str) -> tuple[str, str]:
    """The database and name of a table that comes next: ``shop . `orders` ``."""
    first = words.take()
    if words.skip("."):
        if first.lower == "" and not first.is_name:
            raise words.refuse("has a mark where the name of a table should be")
        return first.value, words.take().value
    if not first.is_name:
        raise words.refuse(f"has {first.value!r} where the name of a table should be")
    return database, first.value
