"""CREATE TABLE: the definition of the new table."""

from __future__ import annotations

from dataclasses import replace

from tidegate.errors import BadDdl
from tidegate.format.sql.words import Words
from tidegate.sources.mysql.ddl.columns import Context
from tidegate.sources.mysql.ddl.drafts import TableDraft, is_clause
from tidegate.sources.mysql.ddl.options import read_options
from tidegate.sources.mysql.definition import Definition


def created(words: Words, context: Context, names: tuple[str, str], database: str, charset: str) -> Definition:
    """The definition that follows the name in the statement. `charset` is the default of the table's database."""
    items = words.items()
    options = read_options(words.rest(), context.server)
    if options.select or not items or items[0].peek("select"):
        raise BadDdl("its columns come from a SELECT: SET binlog_format = ROW in the session that wrote it")
    draft = TableDraft(context, names[1], database)
    draft.charset = options.charset or charset
    draft.engine = options.engine or context.server.engine
    draft.partitioned, draft.versioned = options.partitioned, options.versioned
    periods = [item for item in items if item.peek("period", "for")]
    for period in periods:
        draft.note_period(period.copy())
    for item in items:
        if is_clause(item):
            if not item.peek("period", "for"):
                draft.add_clause(item)
        else:
            draft.columns.append(draft.declare(item).column)
    for period in periods:
        draft.add_clause(period)
    definition = draft.definition()
    return replace(definition, sequence=options.sequence)


def copied(definition: Definition) -> Definition:
    """The definition of CREATE TABLE ... LIKE: foreign keys are not copied."""
    return replace(definition, foreign_keys=())
