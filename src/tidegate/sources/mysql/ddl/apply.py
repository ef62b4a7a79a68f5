"""Applies a statement of the log to the catalogue.

Statements about tables, indexes and databases are read. All others are known by their first words and change nothing
that is followed: views, routines, triggers, users, temporary tables. A change of rows as a statement is refused if it
names a followed table, because nobody can tell which rows it changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tidegate.errors import BadDdl, BadEvents
from tidegate.format.ddl.events import ACTIONS
from tidegate.format.sql.words import Token, Words
from tidegate.sources.mysql.catalogue import Applied, Catalogue, TableEntry
from tidegate.sources.mysql.ddl.alter import Altered, alter
from tidegate.sources.mysql.ddl.columns import Context
from tidegate.sources.mysql.ddl.create import copied, created
from tidegate.sources.mysql.ddl.drafts import TableDraft, qualified
from tidegate.sources.mysql.ddl.effects import Effects, Names, Refuse, nothing_refused
from tidegate.sources.mysql.ddl.options import read_options
from tidegate.sources.mysql.definition import Definition
from tidegate.sources.mysql.log.control_events import Query

_SHOWN = 200  # letters of a statement that an error shows
_FIRST_WORD = re.compile(r"(?:\s|--\s[^\n]*\n|\#[^\n]*\n|/\*(?![!M]).*?\*/|/\*M?!\d*|\()*([A-Za-z]+)", re.DOTALL)
_ROW_CHANGES = frozenset(("insert", "update", "delete", "replace", "load", "merge", "with", "call", "select", "do"))
_READ = frozenset(("create", "drop", "alter", "rename", "truncate", "set"))
_IGNORED = frozenset(
    (
        *("begin", "commit", "rollback", "savepoint", "release", "start", "xa", "use", "lock", "unlock", "kill"),
        *("grant", "revoke", "flush", "analyze", "optimize", "repair", "check", "checksum", "reset", "purge", "cache"),
        *(
            "install",
            "uninstall",
            "change",
            "stop",
            "shutdown",
            "restart",
            "help",
            "show",
            "explain",
            "describe",
            "desc",
        ),
        *(
            "handler",
            "prepare",
            "execute",
            "deallocate",
            "backup",
            "binlog",
            "clone",
            "signal",
            "get",
            "values",
            "table",
        ),
        *("end", "if"),
    )
)
# What CREATE, ALTER or DROP may be about besides tables, indexes and databases.
_OBJECTS = frozenset(
    (
        *(
            "view",
            "function",
            "procedure",
            "trigger",
            "event",
            "user",
            "role",
            "server",
            "tablespace",
            "undo",
            "logfile",
        ),
        *(
            "resource",
            "package",
            "library",
            "instance",
            "spatial",
            "aggregate",
            "prepare",
            "mask",
            "property",
            "algorithm",
        ),
        *("definer", "sql", "temporary", "jsontable", "external", "materialized"),
    )
)


def apply(catalogue: Catalogue, query: Query, commit_ts: int, refuse: Refuse = nothing_refused) -> Applied:
    """What the statement does. BadDdl, with the statement, if that is not certain or cannot be followed.

    `refuse` is asked about each followed table that begins or changes, and raises BadDdl if it cannot be followed.
    """
    found = _FIRST_WORD.match(query.text)
    word = found[1].lower() if found else ""
    if word in _IGNORED or not query.text.strip():
        return Applied(catalogue)
    try:
        if word in _ROW_CHANGES:
            _refuse_row_changes(catalogue, query)
            return Applied(catalogue)
        if word not in _READ:
            raise BadDdl("it is no statement that is known")
        return _Statement.of(catalogue, query, commit_ts, refuse).applied()
    except BadEvents as exc:
        where = f" in the database {query.database!r}" if query.database else ""
        raise BadDdl(f"the statement {query.text[:_SHOWN]!r}{where} cannot be followed: {exc}") from exc


def _refuse_row_changes(catalogue: Catalogue, query: Query) -> None:
    """Any name of a followed table counts, also one that is only read. Rows belong into row events."""
    text = query.text if len(query.text) < 1 << 16 else query.text[: 1 << 12]
    try:
        tokens = Words(text, Context.of(query, catalogue.server).dialect).rest()
    except BadEvents:  # cut in the middle of a text
        tokens = [Token("word", word) for word in re.findall(r"[\w$.]+", text)]
    for at, token in enumerate(tokens):
        dotted = at >= 2 and tokens[at - 1].lower == "."
        database = tokens[at - 2].value if dotted else query.database
        if token.is_name and catalogue.followed(*_stored((database, token.value), catalogue)) is not None:
            raise BadDdl(
                f"it changes or names {database}.{token.value} as a statement, and the log does not say which rows: "
                "SET binlog_format = ROW in the session that wrote it, and begin with a new sink"
            )


def _stored(names: Names, catalogue: Catalogue) -> Names:
    """Names as the server stores them."""
    return (names[0].lower(), names[1].lower()) if catalogue.server.lower_case else names


@dataclass
class _Statement:
    words: Words
    text: str
    context: Context
    database: str
    query: Query
    effects: Effects

    @staticmethod
    def of(catalogue: Catalogue, query: Query, commit_ts: int, refuse: Refuse) -> _Statement:
        context = Context.of(query, catalogue.server)
        tokens = Words(query.text, context.dialect).rest()
        tokens = _without_settings(tokens)
        while tokens and tokens[-1].lower == ";":
            tokens.pop()
        if [token.lower for token in tokens[-2:]] == ["start", "transaction"]:  # MySQL: CREATE ... SELECT
            tokens = tokens[:-2]
        effects = Effects(catalogue, commit_ts, refuse)
        text = _text(query.text, tokens)
        return _Statement(Words(query.text, tokens=tokens), text, context, query.database, query, effects)

    def applied(self) -> Applied:
        words = self.words
        match words.take().lower if words else "":
            case "create":
                self._create()
            case "drop":
                self._drop()
            case "alter":
                self._alter()
            case "rename":
                if words.skip_one("table", "tables"):
                    self._rename()
            case "truncate":
                self._truncate()
        return self.effects.applied()

    @property
    def _catalogue(self) -> Catalogue:
        return self.effects.catalogue

    def _names(self, words: Words) -> Names:
        names = _stored(qualified(words, self.database), self._catalogue)
        if not names[0]:
            raise BadDdl(f"the table {names[1]!r} is in no database")
        return names

    # CREATE -----------------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        words = self.words
        replaces = words.skip("or", "replace")
        words.skip_one("online", "offline")
        if words.skip("table"):
            self._create_table(replaces)
        elif words.skip_one("database", "schema"):
            self._create_database(replaces)
        elif words.skip("sequence"):
            self._create_sequence(replaces)
        elif kind := self._index_kind():
            self._create_index(kind, replaces)
        else:
            self._ignore("CREATE")

    def _ignore(self, verb: str) -> None:
        if self.words.ahead().lower not in _OBJECTS:
            raise BadDdl(f"it is no {verb} that is known")

    def _create_table(self, replaces: bool) -> None:
        if_new = self.words.skip("if", "not", "exists")
        names = self._names(self.words)
        if not self._catalogue.knows(names[0]):
            return
        before = self.effects.find(names)
        if before is not None:
            if if_new:
                return
            if not replaces:
                raise BadDdl(f"{'.'.join(names)} exists already")
        like = self._like()
        definition = self._read_for(names, lambda: self._new_definition(names, like))
        if before is not None:
            self.effects.end(before)
        source = self.effects.find(like) if like is not None else None
        self.effects.begin(names, definition, self.text, source)

    def _like(self) -> Names | None:
        words = self.words
        if words.skip("like") or words.skip("(", "like"):
            return self._names(words)
        return None

    def _new_definition(self, names: Names, like: Names | None) -> Definition:
        database = self.effects.database(names[0])
        charset = database.charset if database is not None else self._catalogue.server.charset
        if like is None:
            return created(self.words, self.context, names, self.database, charset)
        source = self.effects.find(like)
        if source is None:
            raise BadDdl(f"nothing is known of {'.'.join(like)}, whose columns it copies")
        return copied(source.definition)

    def _read_for(self, names: Names, read: Callable[[], Definition]) -> Definition:
        """What cannot be read matters only if somebody follows the table, or will."""
        try:
            return read()
        except BadEvents as exc:
            if self._catalogue.filter.matches(*names):
                raise
            return Definition(unread=str(exc))

    def _create_sequence(self, replaces: bool) -> None:
        if_new = self.words.skip("if", "not", "exists")
        names = self._names(self.words)
        if self._catalogue.knows(names[0]):
            before = self.effects.find(names)
            if before is not None and replaces:
                self.effects.end(before)
            if before is None or not if_new:
                self.effects.begin(names, Definition(sequence=True), self.text)

    def _index_kind(self) -> str:
        """`unique`, `fulltext`, `index`, ... of a CREATE INDEX; "" of anything else."""
        words = self.words
        if words.skip("index"):
            return "index"
        if words.ahead(1).lower == "index":
            kind = words.skip_one("unique", "fulltext", "spatial", "vector")
            words.skip("index")
            return kind
        return ""

    def _create_index(self, kind: str, replaces: bool) -> None:
        words = self.words
        if_new = words.skip("if", "not", "exists")
        name = words.take()
        while words and not words.peek("on"):
            words.take()
        words.skip("on")
        names = self._names(words)
        entry = self.effects.find(names)
        if entry is None or entry.definition.unread:
            return
        draft = TableDraft.of(entry.definition, self.context, names[1], self.database)
        if draft.has_key(name.value):
            if if_new:
                return
            if replaces:
                draft.drop_key(name.value)
        clause = [Token("word", kind), *([Token("word", "index")] if kind != "index" else []), name, *words.rest()]
        draft.add_clause(Words(words.text, tokens=clause))
        action = ACTIONS["full-text index" if kind == "fulltext" else "add index"]
        self.effects.change(entry, draft.definition(), action, self.text)

    def _create_database(self, replaces: bool) -> None:
        if_new = self.words.skip("if", "not", "exists")
        name = self._database_name()
        if not self._catalogue.knows(name):
            return
        before = self.effects.database(name)
        if before is not None:
            if if_new or not replaces:
                return
            self.effects.end_database(before, f"DROP DATABASE `{name}`")
        options = read_options(self.words.rest(), self.context.server)
        self.effects.begin_database(name, options.charset or self.query.server_charset, self.text)

    def _database_name(self) -> str:
        name = self.words.take().value
        return _stored((name, ""), self._catalogue)[0]

    # DROP, TRUNCATE, RENAME -------------------------------------------------------------------------------------------

    def _drop(self) -> None:
        words = self.words
        words.skip_one("online", "offline")
        if words.skip("temporary"):
            return
        if words.skip_one("table", "tables", "sequence"):
            words.skip("if", "exists")
            for part in words.parts():
                entry = self.effects.find(self._names(part))
                if entry is not None:
                    self.effects.end(entry)
        elif words.skip_one("database", "schema"):
            words.skip("if", "exists")
            database = self.effects.database(self._database_name())
            if database is not None:
                self.effects.end_database(database, self.text)
        elif words.skip("index"):
            self._drop_index()
        else:
            self._ignore("DROP")

    def _drop_index(self) -> None:
        words = self.words
        if_there = words.skip("if", "exists")
        name = words.take().value
        words.skip("on")
        names = self._names(words)
        entry = self.effects.find(names)
        if entry is None or entry.definition.unread:
            return
        draft = TableDraft.of(entry.definition, self.context, names[1], self.database)
        if if_there and not draft.has_key(name):
            return
        draft.drop_key(name)
        action = ACTIONS["drop primary key" if name.lower() == "primary" else "drop index"]
        self.effects.change(entry, draft.definition(), action, self.text)

    def _truncate(self) -> None:
        self.words.skip("table")
        entry = self.effects.find(self._names(self.words))
        if entry is not None and not entry.definition.sequence:
            self.effects.truncate(entry, self.text)

    def _rename(self) -> None:
        self.words.skip("if", "exists")
        steps = []
        for part in self.words.parts():
            old = self._names(part)
            if part.skip("wait"):
                part.take()
            part.skip("nowait")
            if not part.skip("to"):
                raise BadDdl("it does not say TO what")
            steps.append((old, self._names(part)))
        self.effects.rename(steps)

    # ALTER ------------------------------------------------------------------------------------------------------------

    def _alter(self) -> None:
        words = self.words
        while words.skip_one("online", "offline", "ignore"):
            pass
        if words.skip("table"):
            self._alter_table()
        elif words.skip_one("database", "schema"):
            self._alter_database()
        elif not words.peek("sequence"):
            self._ignore("ALTER")

    def _alter_table(self) -> None:
        words = self.words
        words.skip("if", "exists")
        names = self._names(words)
        if words.skip("wait"):
            words.take()
        words.skip("nowait")
        entry = self.effects.find(names)
        if entry is None or entry.definition.unread or entry.definition.sequence:
            self._alter_unknown(names, entry)
            return
        try:
            altered = self._altered(entry)
        except BadEvents as exc:
            if entry.followed:
                raise
            altered = Altered(Definition(unread=str(exc)))
        self._change(entry, altered)

    def _altered(self, entry: TableEntry) -> Altered:
        database = self.effects.database(entry.database)
        charset = database.charset if database is not None else self._catalogue.server.charset
        altered = alter(entry.definition, self.words, self.context, entry.names, self.database, charset)
        if altered.rename_to is not None:
            altered.rename_to = _stored(altered.rename_to, self._catalogue)
        if altered.other is not None:
            altered.other = _stored(altered.other, self._catalogue)
        return altered

    def _alter_unknown(self, names: Names, entry: TableEntry | None) -> None:
        """Of a view, a sequence, or a table that cannot be read, only a new name counts."""
        for part in self.words.parts():
            if part.skip("rename") and not part.skip_one("column", "index", "key"):
                part.skip_one("to", "as", "=")
                self.effects.rename([(names, self._names(part))])
                return

    def _change(self, entry: TableEntry, altered: Altered) -> None:
        effects = self.effects
        if altered.emptied or altered.filled:
            effects.truncate(entry, f"TRUNCATE TABLE {'.'.join(f'`{name}`' for name in entry.names)}", altered.filled)
        elif altered.other is not None:
            self._with_other(entry, altered, altered.other)
        elif altered.definition != entry.definition or altered.actions or altered.partition:
            effects.change(entry, altered.definition, self._action(entry, altered), self.text)
        if altered.rename_to is not None and altered.rename_to != entry.names:
            effects.rename([(entry.names, altered.rename_to)])

    def _action(self, entry: TableEntry, altered: Altered) -> int | None:
        actions = altered.actions + ([altered.partition] if altered.partition else [])
        if len(actions) > 1:
            return ACTIONS["multi-schema change"]
        if actions:
            return ACTIONS[actions[0]]
        changed = altered.definition.layout != entry.layout
        return ACTIONS["modify column"] if changed else None

    def _with_other(self, entry: TableEntry, altered: Altered, names: Names) -> None:
        """Partitions that become tables, and tables that become partitions."""
        effects, other = self.effects, self.effects.find(names)
        match altered.partition:
            case "exchange partition":
                if other is None:
                    if entry.followed:
                        effects.truncate(entry, f"TRUNCATE TABLE `{entry.database}`.`{entry.name}`", filled=True)
                else:
                    effects.exchange(entry, other, self.text)
            case "convert partition":
                effects.change(entry, altered.definition, ACTIONS["reorganize partition"], self.text)
                if self._catalogue.knows(names[0]):
                    effects.begin_filled(names, replace(copied(altered.definition), partitioned=False))
            case "convert table":
                if other is not None:
                    effects.end(other)
                effects.truncate(entry, f"TRUNCATE TABLE `{entry.database}`.`{entry.name}`", filled=True)

    def _alter_database(self) -> None:
        words = self.words
        options = ("default", "character", "charset", "collate", "encryption", "read", "comment", "char")
        named = words.ahead().kind == "name" or words.ahead().lower not in options
        name = self._database_name() if named else self.database
        entry = self.effects.database(_stored((name, ""), self._catalogue)[0])
        found = read_options(words.rest(), self.context.server)
        if entry is not None and found.charset:
            self.effects.change_database(entry, found.charset, self.text)


def _without_settings(tokens: list[Token]) -> list[Token]:
    """MariaDB: SET STATEMENT max_statement_time = 10 FOR the statement itself."""
    if [token.lower for token in tokens[:2]] != ["set", "statement"]:
        return tokens
    at = next((at for at, token in enumerate(tokens) if token.lower == "for"), len(tokens) - 1)
    return tokens[at + 1 :]


def _text(text: str, tokens: list[Token]) -> str:
    """The statement without what surrounds it, and with names in backquotes wherever its session had other quotes."""
    if not tokens:
        return ""
    parts, at = [], tokens[0].start
    for token in tokens:
        if token.kind == "name" and text[token.start] == '"':
            parts += [text[at : token.start], "`", token.value.replace("`", "``"), "`"]
            at = token.end
    return "".join([*parts, text[at : tokens[-1].end]])
