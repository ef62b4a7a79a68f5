"""`recovery`: a changefeed that is killed again and again, and what a reader sees of it.

A workload with DDLs runs in a process of its own, with its own Spark, on a `file://` sink or (`--store s3`) on moto's
server. Two of its tables have one name. On the server, files above `one-put` are uploaded aside and copied. It is
killed with SIGKILL at named points (`points.POINTS`) and at random moments, and started again with the same source and
sink; how it wakes, orders and spools changes from run to run. After every kill, before the restart, and at the end a
reader that follows the index looks at the sink (`sightings`). At the end the changefeed stops in order, and `verify`
replays all.

    kills                  processes that were killed; `worker_kills` of them are workers, whose run had to go on
    lost, doubled, reordered, altered    lines, at the worst moment; a line is lost if it is not visible although the
                           checkpoint covers it or a later line of its table is visible
    schema_after_data      directories with visible data and no schema file, at the worst moment
    broken_indexes         indexes that name what is not there, at the worst moment
    restart_p50_s          from the start of a process to its first landing (so with the start of its JVM)
    kill_p50_s             from the start of a process to its end
    verify_faults          how often `verify` found a difference at the end
    points_missed          kills whose point did not come in time: the driver was killed there and then
    large_files            data files on the server that were too large for one put

An interrupted run (Ctrl-C) goes on with `--resume`, and the figures are sums over all its parts. With `--resume` the
sink also stays at the end, so that another `--resume` can add kills. If anything is wrong, a copy of the sink at that
moment is kept.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice
from pathlib import Path
from urllib.parse import quote, urlencode

from tidegate.bench.harness.crash import Run
from tidegate.bench.harness.feed import say
from tidegate.bench.harness.figures import Figures
from tidegate.bench.harness.object_server import FILE, S3, restore, s3_server, save
from tidegate.bench.harness.parameters import byte_rate, byte_size, count, flag, number, one_of, text
from tidegate.bench.harness.points import HOLDING, POINTS, RANDOM, WORKER, schedule
from tidegate.bench.harness.record import Life, Record
from tidegate.bench.harness.rehearsal import quick_start
from tidegate.bench.harness.sightings import Sightings
from tidegate.bench.harness.victim import TooLong, Victim
from tidegate.errors import BadSetting, TidegateError, VerifyError
from tidegate.sources.source import byte_count
from tidegate.storage.store import Store, open_store
from tidegate.tools.verify import verify

_START_S = 180.0  # a process that has accepted nothing by then has failed
_POINT_S = 20.0  # after the first acceptance: a point that does not come in so long is missed
_GO_ON_S = 90.0  # a run that has landed nothing so long after the death of a worker does not go on
_STOP_S = 120.0
_REHEARSE_FROM = 5  # kills: with fewer, a first run costs more than it saves
_ONE_OF = {
    "dml-wake-mode": ("enqueue", "enqueue", "flush"),
    "encoder-ordering": ("per-table", "global"),
    "spool.type": ("disk", "memory"),
}
_OPTIONS = {"flush-interval": "500ms", "file-size": "256KiB", "csv.include-commit-ts": "true"}


@dataclass(frozen=True)
class Parameters:
    kills: int = count(50, "processes that are killed")
    resume: bool = flag("go on with what an earlier run left, and leave it for a later one")
    store: str = one_of(FILE, "where the changefeed lands: a directory, or moto's S3 server", (FILE, S3))
    tables: int = count(12, "tables of the workload")
    shards: int = count(2, "so many of the tables have one name")
    rate: str = byte_rate("1MiB", "bytes per second of all tables together")
    batch: str = byte_size("8KiB", "bytes of one table in one step of the workload")
    one_put: str = byte_size("12KiB", "with --store s3: larger files are uploaded aside and copied")
    ddl: str = text("every:400ms;every:4s,kinds=alter-database|create-view|drop-view", "DDLs of the workload")
    seed: int = count(1, "seed of the workload and of the random moments")
    points: str = text("all", "named points and `random`, with commas between them; an unknown one lists the known")
    seconds: float = number(4.0, "seconds that the last run, which is not killed, goes on")

    def workload(self) -> str:
        query = {"tables": self.tables, "rows": 1_000, "rate": self.rate, "batch": self.batch, "seed": self.seed}
        query |= {"shards": self.shards, "mix": "20:60:20", "ddl": self.ddl}
        return f"workload://sysbench?{urlencode(query)}"

    @property
    def chosen(self) -> list[str]:
        known = [name for name, point in POINTS.items() if self.store == S3 or not point.is_remote] + [RANDOM]
        if self.points == "all":
            return known
        wanted = self.points.split(",")
        if unknown := set(wanted) - set(known):
            raise BadSetting(f"--points: unknown point {min(unknown)!r}; known: {', '.join(known)}")
        return wanted


class Harness:
    """Starts, kills and looks; adds up what it found."""

    def __init__(self, wanted: Parameters, home: Path, sink_uri: str, record: Record) -> None:
        self.wanted, self.home, self.record = wanted, home, record
        self._sink_uri, self._java_options, self.kept = sink_uri, "", Path()
        self._chance = random.Random(wanted.seed)
        self.settings = self._run("").settings
        self.store: Store = open_store(self.settings.sink_uri, self.settings.access)
        self.sightings = Sightings(record.source, self.settings, self.store)

    def _run(self, point: str) -> Run:
        options = {key: self._chance.choice(values) for key, values in _ONE_OF.items()}
        number = 1
        if point in POINTS:
            number = self._chance.randint(POINTS[point].first, POINTS[point].last)
        if point == HOLDING:
            options["dml-wake-mode"] = "enqueue"  # a wake that waits for the landing would leave the spool empty
        runs = self.home / "runs"
        control = next(runs / f"{n:03d}" for n in numbers(len(self.record.lives)) if not (runs / f"{n:03d}").exists())
        places = (self._sink_uri, str(self.home / "spool"), str(control))
        limit = byte_count(self.wanted.one_put) if self.wanted.store == S3 else None
        return Run(self.record.source, *places, {**_OPTIONS, **options}, point, number, limit)

    def go_on(self) -> None:
        """Kill until there are as many kills as wanted. The chances of a run depend on its number alone."""
        if self.record.target - self.record.kills >= _REHEARSE_FROM:
            aside = Run(self.record.source, f"file://{quote(str(self.home / 'first'))}", str(self.home / "first-spool"),
                        str(self.home / "runs" / "first"), _OPTIONS)  # fmt: skip
            self._java_options = quick_start(aside, self.home / "classes.jsa")
        done = self.record.killed
        if done:
            self._look(f"{self.record.kills} kills before", self.record.lives[-1])
        names = islice(schedule(self.wanted.chosen, random.Random(self.wanted.seed)), len(done), None)
        while self.record.kills < self.record.target:
            self._chance = random.Random(f"{self.wanted.seed}-{len(self.record.lives)}")
            self.kill(next(names))

    def kill(self, point: str) -> None:
        """One run that ends with a kill, and a look at what it left."""
        run, life = self._run(point), Life(point, begins=not self.sightings.visible_rows)
        with Victim(run, self._java_options) as process:
            if point in POINTS:
                self._to_the_point(process, life)
            if process.alive:  # a random moment, a point that was missed, or a run that went on without its worker
                self._kill_driver(process, life)
            life.seconds, life.first_landing_s = process.age(), process.first_landing_s()
        self.record.lives.append(life)
        options = "/".join(run.options[key] for key in _ONE_OF)
        self._look(f"kill {self.record.kills} of {self.record.target}: {life.where}; {options}", life)

    def _to_the_point(self, process: Victim, life: Life) -> None:
        process.wait(lambda: process.fired is not None or process.accepted > 0, _START_S, "accept anything")
        with contextlib.suppress(TooLong):
            process.wait(lambda: process.fired is not None, _POINT_S)
        if process.fired is None:
            life.missed = True
            return
        life.where = f"{life.point}, {process.fired}"
        life.kills += 1
        if POINTS[life.point].victim == WORKER:
            life.worker_kills += 1
            landed = process.landed
            process.wait(lambda: process.landed > landed, _GO_ON_S, "land anything after its worker was killed")
        else:
            process.wait(lambda: not process.alive, _START_S, "die")

    def _kill_driver(self, process: Victim, life: Life) -> None:
        if life.where:  # its worker has died before
            time.sleep(self._chance.uniform(0.2, 1.0))
        elif not life.missed:
            self._await_moment(process)
        before = "then " if life.where else f"{life.point} did not come, " if life.missed else ""
        life.where += f"{', ' if life.where else ''}{before}driver killed with {process.landed} rows landed"
        process.kill()
        life.kills += 1

    def _await_moment(self, process: Victim) -> None:
        """A third of the moments lie around the start of the changefeed, the others while it reads."""
        if self._chance.random() < 1 / 3:
            process.wait(lambda: process.said("session") is not None, _START_S, "start Spark")
            time.sleep(self._chance.uniform(0.0, 2.0))
        else:
            process.wait(lambda: process.landed > 0, _START_S, "land anything")
            time.sleep(self._chance.uniform(0.0, 4.0))

    def finish(self) -> None:
        """The last run, which stops in order; then `verify`."""
        run, life = self._run(""), Life("", where="the last run, stopped in order")
        with Victim(run, self._java_options) as process:
            process.wait(lambda: process.landed > 0, _START_S, "land anything")
            time.sleep(self.wanted.seconds)
            process.stop(_STOP_S)
            life.seconds, life.first_landing_s = process.age(), process.first_landing_s()
        self.record.lives.append(life)
        self._look("at the end", life)
        started = time.monotonic()
        try:
            report = verify(self.record.source, self.settings, self.store)
            say(f"verify: {report.rows} rows in {report.files} files are right")
        except VerifyError as exc:
            say(f"verify: {exc}")
            self.record.verify_faults += 1
            self._keep()
        self.record.verify_s += time.monotonic() - started
        self.record.save(self.home)

    def _look(self, when: str, life: Life) -> None:
        started = time.monotonic()
        found = self.sightings.look()
        seconds = time.monotonic() - started
        self.record.verify_s += seconds
        self.record.worst = self.record.worst.worst(found)
        self.record.rows = self.sightings.visible_rows
        if self.wanted.store == S3:
            self.record.large_files = sum(size > byte_count(self.wanted.one_put) for size in self.sightings.sizes)
        landing = f"first landing after {life.first_landing_s:.1f} s" if life.first_landing_s else "nothing landed"
        say(f"{when}; lived {life.seconds:.1f} s, {landing}")
        say(f"  a reader sees {self.sightings.visible_rows} rows: {found} ({seconds:.1f} s)")
        if found:
            self._keep()
        self.record.save(self.home)

    def _keep(self) -> None:
        """A copy of the sink as it is now. Only the first fault is kept: later ones may follow from it."""
        self.kept = self.home / "found"
        if not self.kept.exists():
            save(self.store, self.kept)


def run(data_dir: Path, wanted: Parameters) -> Figures:
    home = data_dir.resolve() / f"recovery-{wanted.store}"
    record = _opened(home, wanted)
    try:
        with _sink(home, wanted) as sink_uri:
            harness = Harness(wanted, home, sink_uri, record)
            say(f"{record.target} kills of a changefeed from {record.source}")
            harness.go_on()
            harness.finish()
    except BaseException:
        say(f"interrupted after {record.kills} kills; what was written is kept, and --resume goes on: {home}")
        raise
    say("killed at: " + ", ".join(f"{name} {times}" for name, times in sorted(record.hit().items())))
    if wanted.store == S3 and not record.large_files:
        raise TidegateError(f"no file was larger than {wanted.one_put}, so copies were not tried: lower --one-put")
    if not record.is_right:
        _say_where(home, record.source)
    elif not wanted.resume:
        shutil.rmtree(home)
    return record.figures()


def _opened(home: Path, wanted: Parameters) -> Record:
    source = wanted.workload()
    if wanted.resume:
        home.mkdir(parents=True, exist_ok=True)
        return Record.resumed(home, source, wanted.kills)
    if (left := Record.load(home)) is not None:
        raise BadSetting(
            f"{home} has an earlier run with {left.kills} kills: go on with --resume, or remove that directory"
        )
    home.mkdir(parents=True, exist_ok=True)
    record = Record(source, wanted.kills)
    record.save(home)
    return record


@contextlib.contextmanager
def _sink(home: Path, wanted: Parameters) -> Iterator[str]:
    """The URI where the runs land. A server has no disk: what it holds is in the same directory before and after."""
    place = home / "sink"
    if wanted.store == FILE:
        yield f"file://{quote(str(place))}"
        return
    with s3_server() as server:
        uri = server.uri("sink")
        settings = Run(wanted.workload(), uri, str(home), str(home)).settings
        store = open_store(settings.sink_uri, settings.access)
        restore(store, place)
        try:
            yield uri
        finally:
            shutil.rmtree(place, ignore_errors=True)
            save(store, place)


def _say_where(home: Path, source: str) -> None:
    options = " ".join(f"--option {key}={value}" for key, value in _OPTIONS.items())
    say(f"something is wrong: {home / 'found'} is the sink when it was first seen, {home / 'runs'} has what each run")
    say(f"said; look with: tidegate verify --source '{source}' \\")
    say(f"  --sink file://{quote(str(home / 'found'))} {options}")
