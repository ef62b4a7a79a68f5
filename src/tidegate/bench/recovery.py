"""`recovery`: a changefeed that is killed again and again, and what a reader sees of it.

A workload with DDLs runs in a process of its own, with its own Spark, on a `file://` sink. It is killed with SIGKILL at
named points (`crash.POINTS`) and at random moments, and started again with the same source and sink; how it wakes,
orders and spools changes from run to run. After every kill, before the restart, and at the end a reader that follows
the index looks at the sink (`sightings`). At the end the changefeed stops in order, and `verify` replays all.

    kills                  processes that were killed; `worker_kills` of them are workers, whose run had to go on
    lost, doubled, reordered, altered    lines, at the worst moment; a line is lost if it is not visible although the
                           checkpoint covers it or a later line of its table is visible
    schema_after_data      directories with visible data and no schema file, at the worst moment
    broken_indexes         indexes that name what is not there, at the worst moment
    restart_p50_s          from the start of a process to its first landing (so with the start of its JVM)
    verify_faults          1 if `verify` finds a difference at the end
    points_missed          kills whose point did not come in time: the driver was killed there and then

If anything is wrong, a copy of the sink at that moment is kept.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from tidegate.bench.harness.crash import HOLDING, POINTS, WORKER, Run
from tidegate.bench.harness.feed import say
from tidegate.bench.harness.figures import Figures, percentile
from tidegate.bench.harness.parameters import byte_rate, byte_size, count, number, text
from tidegate.bench.harness.sightings import Sightings, Tally
from tidegate.bench.harness.victim import TooLong, Victim
from tidegate.errors import BadSetting, VerifyError
from tidegate.storage.store import open_store
from tidegate.tools.verify import verify

RANDOM = "random"
_START_S = 180.0  # a process that has accepted nothing by then has failed
_POINT_S = 20.0  # after the first acceptance: a point that does not come in so long is missed
_GO_ON_S = 90.0  # a run that has landed nothing so long after the death of a worker does not go on
_STOP_S = 120.0
_ONE_OF = {
    "dml-wake-mode": ("enqueue", "enqueue", "flush"),
    "encoder-ordering": ("per-table", "global"),
    "spool.type": ("disk", "memory"),
}
_OPTIONS = {"flush-interval": "500ms", "file-size": "256KiB", "csv.include-commit-ts": "true"}


@dataclass(frozen=True)
class Parameters:
    kills: int = count(50, "processes that are killed")
    tables: int = count(12, "tables of the workload")
    rate: str = byte_rate("1MiB", "bytes per second of all tables together")
    batch: str = byte_size("8KiB", "bytes of one table in one step of the workload")
    ddl: str = text("every:400ms;every:4s,kinds=alter-database|create-view|drop-view", "DDLs of the workload")
    seed: int = count(1, "seed of the workload and of the random moments")
    points: str = text("all", "named points and `random`, with commas between them; an unknown one lists the known")
    seconds: float = number(4.0, "seconds that the last run, which is not killed, goes on")

    def workload(self) -> str:
        query = {"tables": self.tables, "rows": 1_000, "rate": self.rate, "batch": self.batch, "seed": self.seed}
        return f"workload://sysbench?{urlencode({**query, 'mix': '20:60:20', 'ddl': self.ddl})}"

    @property
    def chosen(self) -> list[str]:
        known = [*POINTS, RANDOM]
        if self.points == "all":
            return known
        wanted = self.points.split(",")
        if unknown := set(wanted) - set(known):
            raise BadSetting(f"--points: unknown point {min(unknown)!r}; known: {', '.join(known)}")
        return wanted


def schedule(names: list[str], chance: random.Random) -> Iterator[str]:
    """Points without end: all of them before any comes again, in another order each time."""
    while True:
        units = _units(names)
        chance.shuffle(units)
        yield from (name for unit in units for name in unit)


def _units(names: list[str]) -> list[tuple[str, ...]]:
    """The points, random moments twice; what a crash leaves to be adopted is there when the next point needs it."""
    pairs = [(name, then) for name, then in _FOLLOWS.items() if name in names and then in names]
    rest = [name for name in names if not any(name in pair for pair in pairs)]
    return [*pairs, *((name,) for name in rest), *(((RANDOM,),) if RANDOM in names else ())]


_FOLLOWS = {"data-before-index": "adoption", "index-before-confirm": "takeover"}


@dataclass
class Life:
    """What is known of one run of the process."""

    run: Run
    kills: int = 0
    worker_kills: int = 0
    where: str = ""
    missed: bool = False
    seconds: float = 0.0
    first_landing_s: float | None = None


@dataclass
class Harness:
    """Starts, kills and looks; adds up what it found."""

    wanted: Parameters
    home: Path
    chance: random.Random
    lives: list[Life] = field(default_factory=list)
    hit: Counter[str] = field(default_factory=Counter)
    worst: Tally = field(default_factory=Tally)
    verify_s: float = 0.0
    kept: Path | None = None

    def __post_init__(self) -> None:
        self.source = self.wanted.workload()
        self.settings = self._run("").settings
        self.store = open_store(self.settings.sink_uri)
        self.sightings = Sightings(self.source, self.settings, self.store)

    @property
    def kills(self) -> int:
        return sum(life.kills for life in self.lives)

    def _run(self, point: str) -> Run:
        options = {key: self.chance.choice(values) for key, values in _ONE_OF.items()}
        number = 1
        if point in POINTS:
            number = self.chance.randint(POINTS[point].first, POINTS[point].last)
        if point == HOLDING:
            options["dml-wake-mode"] = "enqueue"  # a wake that waits for the landing would leave the spool empty
        control = self.home / "runs" / f"{len(self.lives):03d}"
        places = (str(self.home / "sink"), str(self.home / "spool"), str(control))
        return Run(self.wanted.workload(), *places, {**_OPTIONS, **options}, point, number)

    def kill(self, point: str) -> None:
        """One run that ends with a kill, and a look at what it left."""
        life = Life(self._run(point))
        self.lives.append(life)
        with Victim(life.run) as process:
            if point in POINTS:
                self._to_the_point(process, life)
            if process.alive:  # a random moment, a point that was missed, or a run that went on without its worker
                self._kill_driver(process, life)
            life.seconds, life.first_landing_s = process.age(), process.first_landing_s()
        self.hit[point if not life.missed else RANDOM] += 1
        self._look(f"kill {self.kills} of {self.wanted.kills}: {life.where}", life)

    def _to_the_point(self, process: Victim, life: Life) -> None:
        process.wait(lambda: process.fired is not None or process.accepted > 0, _START_S, "accept anything")
        with contextlib.suppress(TooLong):
            process.wait(lambda: process.fired is not None, _POINT_S)
        if process.fired is None:
            life.missed = True
            return
        life.where = f"{life.run.point}, {process.fired}"
        life.kills += 1
        if POINTS[life.run.point].victim == WORKER:
            life.worker_kills += 1
            landed = process.landed
            process.wait(lambda: process.landed > landed, _GO_ON_S, "land anything after its worker was killed")
        else:
            process.wait(lambda: not process.alive, _START_S, "die")

    def _kill_driver(self, process: Victim, life: Life) -> None:
        if life.where:  # its worker has died before
            time.sleep(self.chance.uniform(0.2, 1.0))
        elif not life.missed:
            self._await_moment(process)
        before = "then " if life.where else f"{life.run.point} did not come, " if life.missed else ""
        life.where += f"{', ' if life.where else ''}{before}driver killed with {process.landed} rows landed"
        process.kill()
        life.kills += 1

    def _await_moment(self, process: Victim) -> None:
        """A third of the moments lie around the start of the changefeed, the others while it reads."""
        if self.chance.random() < 1 / 3:
            process.wait(lambda: process.said("session") is not None, _START_S, "start Spark")
            time.sleep(self.chance.uniform(0.0, 2.0))
        else:
            process.wait(lambda: process.landed > 0, _START_S, "land anything")
            time.sleep(self.chance.uniform(0.0, 4.0))

    def finish(self) -> int:
        """The last run, which stops in order; then `verify`. Returns 1 if that finds a difference."""
        life = Life(self._run(""), where="the last run, stopped in order")
        self.lives.append(life)
        with Victim(life.run) as process:
            process.wait(lambda: process.landed > 0, _START_S, "land anything")
            time.sleep(self.wanted.seconds)
            Path(life.run.control, "stop").touch()
            process.wait(lambda: process.said("ended") is not None, _STOP_S, "stop in order")
            life.seconds, life.first_landing_s = process.age(), process.first_landing_s()
        self._look("at the end", life)
        started = time.monotonic()
        try:
            report = verify(self.source, self.settings, self.store)
        except VerifyError as exc:
            say(f"verify: {exc}")
            self._keep()
            return 1
        finally:
            self.verify_s += time.monotonic() - started
        say(f"verify: {report.rows} rows in {report.files} files are right")
        return 0

    def _look(self, when: str, life: Life) -> None:
        started = time.monotonic()
        found = self.sightings.look()
        seconds = time.monotonic() - started
        self.verify_s += seconds
        self.worst = self.worst.worst(found)
        landing = f"first landing after {life.first_landing_s:.1f} s" if life.first_landing_s else "nothing landed"
        options = "/".join(life.run.options[key] for key in _ONE_OF)
        say(f"{when}; {options}; lived {life.seconds:.1f} s, {landing}")
        say(f"  a reader sees {self.sightings.visible_rows} rows: {found} ({seconds:.1f} s)")
        if found:
            self._keep()

    def _keep(self) -> None:
        """A copy of the sink as it is now. Only the first fault is kept: later ones may follow from it."""
        if self.kept is None:
            self.kept = self.home / f"found-after-{self.kills}-kills"
            shutil.copytree(self.home / "sink", self.kept)

    def figures(self, verify_faults: int) -> Figures:
        landings = [life.first_landing_s for life in self.lives[1:] if life.first_landing_s is not None]
        return {
            "kills": self.kills,
            "lost": self.worst.lost,
            "doubled": self.worst.doubled,
            "reordered": self.worst.reordered,
            "altered": self.worst.altered,
            "schema_after_data": self.worst.schema_after_data,
            "broken_indexes": self.worst.broken_indexes,
            "verify_faults": verify_faults,
            "restart_p50_s": percentile(landings, 50),
            "restart_max_s": max(landings, default=0.0),
            "worker_kills": sum(life.worker_kills for life in self.lives),
            "points_hit": sum(name != RANDOM for name in self.hit),
            "points_missed": sum(life.missed for life in self.lives),
            "verify_s": self.verify_s,
            "rows": self.sightings.visible_rows,
        }


def run(data_dir: Path, wanted: Parameters) -> Figures:
    names, chance = wanted.chosen, random.Random(wanted.seed)
    data_dir.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="recovery-", dir=data_dir.resolve()))  # what an earlier one kept stays
    harness = Harness(wanted, home, chance)
    say(f"{wanted.kills} kills of a changefeed from {harness.source}")
    try:
        for point in schedule(names, chance):
            harness.kill(point)
            if harness.kills >= wanted.kills:
                break
        found = harness.figures(harness.finish())
    except BaseException:
        say(f"what was written is kept: {home}")
        raise
    say("killed at: " + ", ".join(f"{name} {times}" for name, times in sorted(harness.hit.items())))
    if harness.kept is None:
        shutil.rmtree(home)
    else:
        say(f"something is wrong: {harness.kept} is the sink when it was first seen, {home / 'runs'} has what each run")
        say(f"said; look with: tidegate verify --source '{harness.source}' \\")
        say(f"  --sink file://{harness.kept} " + " ".join(f"--option {key}={value}" for key, value in _OPTIONS.items()))
    return found
