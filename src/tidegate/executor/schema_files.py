"""Putting schema files: before the first data file of a version, and for DDLs.

Promises: a schema file is never replaced by one with other columns. If one with the same columns exists under another
version, nothing is written and `Elsewhere` is raised: TiCDC would go on in that version's directory, and so do we.
"""

from __future__ import annotations

import time
from functools import lru_cache

from tidegate.errors import BadEvents, StoreConflict
from tidegate.executor.index import last_existing_number, last_number
from tidegate.executor.jobs import LandJob
from tidegate.executor.rows import FilePlan, Receipt
from tidegate.format import layout, tables
from tidegate.format.ddl.files import SchemaFile
from tidegate.storage.store import Beat, Store


class Elsewhere(Exception):
    """The files of this lane go on in the directory of this version, after this number. The driver plans them again."""

    def __init__(self, version: int, number: int) -> None:
        super().__init__()
        self.version, self.number = version, number


@lru_cache(maxsize=256)
def parsed_layout(text: str) -> tables.Layout:
    """A million tables of one shape share one."""
    return tables.Layout.from_json(text)


def put_schema(plan: FilePlan, receipt: Receipt, store: Store, job: LandJob, beat: Beat) -> None:
    """The schema file of this plan's version, unless it exists; may raise `Elsewhere`."""
    path, checksum, text = _schema_file(plan, job)
    if plan.schema == tables.NEW:
        _create_schema(path, text, receipt, store, beat)
        return
    started = time.monotonic()
    beat(0)
    found = [name for name, _ in store.list(path.rpartition("/")[0])]
    existing, every = layout.schema_versions(found, checksum), layout.schema_versions(found)
    receipt.schema_check_s = time.monotonic() - started
    receipt.requests += 1
    if not job.foreign:
        _refuse_other_columns(plan, existing, every)
        if job.options.paths.by_name:
            _refuse_newer_table(plan, every)
    if plan.version not in existing:
        if existing and plan.schema != tables.WRITE:
            other = _same_columns(existing, plan.version, path, text, store)
            # Where a version with other columns came in between, its rows would be read after ours.
            if other is not None and (job.foreign or not any(other < each < plan.version for each in every)):
                raise Elsewhere(other, _last_number(plan, other, receipt, store, job))
        _create_schema(path, text, receipt, store, beat)
    _refuse_unknown_files(plan, receipt, store, job)


def _create_schema(path: str, text: str, receipt: Receipt, store: Store, beat: Beat) -> None:
    """One that exists under this name has this version and these columns, so it is as good."""
    started = time.monotonic()
    beat(0)
    store.create_bytes(path, text.encode())
    receipt.schema_write_s = time.monotonic() - started
    receipt.requests += 1


def _schema_file(plan: FilePlan, job: LandJob) -> tuple[str, int, str]:
    """Its path, checksum and text."""
    columns = tables.listing(job.layouts[plan.layout], job.options.output_column_id)
    names = plan.schema_name, plan.table_name
    checksum, text = tables.listed_file(*names, plan.version, columns)
    return layout.schema_path(*names, plan.version, checksum, job.options.paths, plan.table_id), checksum, text


def _refuse_other_columns(plan: FilePlan, existing: set[int], every: set[int]) -> None:
    """A reader knows one schema file for each version, and would read our rows by the other one's columns."""
    if plan.version in every and plan.version not in existing:
        raise BadEvents(
            f"table {plan.table_id} lands under {plan.schema_name}.{plan.table_name} with version {plan.version}, but "
            "another table has a schema file of this version with other columns there; give it another table_version, "
            "or another target"
        )


def _refuse_newer_table(plan: FilePlan, every: set[int]) -> None:
    """Who must look, because another table was on the plain path before, does not go in front of its newer versions.

    A reader that begins anew reads by version. It would meet our rows before those, and drop those as too old.
    """
    newest = max(every, default=0)
    if plan.schema == tables.LOOK and not plan.own_directory and newest > plan.version:
        raise Elsewhere(newest, 0)


def _refuse_unknown_files(plan: FilePlan, receipt: Receipt, store: Store, job: LandJob) -> None:
    """Where files may exist that the driver does not know, nothing lands before the driver has recorded a free number.

    Otherwise a start after a crash could take a file of another writer, with the planned name and size, for its own.
    """
    if plan.schema == tables.LOOK or (plan.schema == tables.CHECK and job.foreign):
        raise Elsewhere(plan.version, _last_number(plan, plan.version, receipt, store, job))


def _same_columns(existing: set[int], version: int, path: str, text: str, store: Store) -> int | None:
    """The version whose directory TiCDC would use for these columns, or a newer one for which it would drop the rows.

    The checksum does not depend on the order of the columns, but rows do. So the files are compared.
    """
    newer = max((other for other in existing if other > version), default=None)
    older = max((other for other in existing if other < version), default=None)
    for other in (newer, older):
        if other is not None:
            found = store.get(path.replace(f"/schema_{version}_", f"/schema_{other}_"))
            if found is not None and tables.columns_text(found.decode(errors="replace")) == tables.columns_text(text):
                return other
    return None


def _last_number(plan: FilePlan, version: int, receipt: Receipt, store: Store, job: LandJob) -> int:
    """How far the data files go in the directory of this version."""
    find = last_existing_number if job.foreign else last_number
    number, requests = find(store, plan.key._replace(version=version), job.options.paths)
    receipt.requests += requests
    return number


def put_ddl_schema(file: SchemaFile, receipt: Receipt, store: Store) -> None:
    """A schema file of a DDL. One that exists may lack the query, if data came before the DDL: it is replaced then."""
    path, text = file
    receipt.path = path
    receipt.requests += 1
    if store.create_bytes(path, text.encode()):
        return
    found = (store.get(path) or b"").decode(errors="replace")
    receipt.requests += 1
    if found == text:
        return
    if tables.columns_text(found) != tables.columns_text(text):
        raise StoreConflict(f"{path} exists and lists other columns; another writer uses this sink")
    store.put(path, text.encode())
    receipt.requests += 1
