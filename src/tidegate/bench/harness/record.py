"""What is known of all runs of a changefeed that is killed again and again, kept in a file so that it can go on."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tidegate.bench.harness.figures import Figures, percentile
from tidegate.bench.harness.points import RANDOM
from tidegate.bench.harness.sightings import Tally
from tidegate.errors import BadSetting

_NAME = "record.json"


@dataclass
class Life:
    """What is known of one run of the process; `point` is "" if it was stopped in order."""

    point: str
    kills: int = 0
    worker_kills: int = 0
    where: str = ""
    missed: bool = False
    seconds: float = 0.0
    first_landing_s: float | None = None
    begins: bool = False  # on an empty sink, so that it is no restart


@dataclass
class Record:
    """The sum over all runs, those of earlier processes of the benchmark included."""

    source: str
    target: int  # kills that are wanted
    lives: list[Life] = field(default_factory=list)
    worst: Tally = field(default_factory=Tally)
    verify_s: float = 0.0
    verify_faults: int = 0
    rows: int = 0
    large_files: int = 0

    @property
    def kills(self) -> int:
        return sum(life.kills for life in self.lives)

    @property
    def killed(self) -> list[Life]:
        return [life for life in self.lives if life.point]

    @property
    def is_right(self) -> bool:
        return not self.worst and not self.verify_faults

    def hit(self) -> Counter[str]:
        """How often each point killed."""
        return Counter(life.point for life in self.killed if not life.missed)

    def save(self, home: Path) -> None:
        """Replaces the file at once: a benchmark that is killed leaves the old one or the new one."""
        fresh = home / f"{_NAME}.new"
        fresh.write_text(json.dumps(asdict(self)), encoding="utf-8")
        os.replace(fresh, home / _NAME)

    @staticmethod
    def load(home: Path) -> Record | None:
        try:
            found = json.loads((home / _NAME).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        lives = [Life(**life) for life in found.pop("lives")]
        return Record(**found | {"lives": lives, "worst": Tally(**found["worst"])})

    @staticmethod
    def resumed(home: Path, source: str, kills: int) -> Record:
        """What an earlier process left. One that was interrupted gets `kills` in all, one that ended so many more."""
        found = Record.load(home)
        if found is None:
            return Record(source, kills)
        if found.source != source:
            raise BadSetting(
                f"{home} has a run of {found.source}, which is another workload; "
                "give the same parameters, or remove that directory"
            )
        found.target = kills if found.kills < found.target else found.kills + kills
        return found

    def figures(self) -> Figures:
        landings = [life.first_landing_s for life in self.lives if life.first_landing_s and not life.begins]
        return {
            "kills": self.kills,
            "lost": self.worst.lost,
            "doubled": self.worst.doubled,
            "reordered": self.worst.reordered,
            "altered": self.worst.altered,
            "schema_after_data": self.worst.schema_after_data,
            "broken_indexes": self.worst.broken_indexes,
            "verify_faults": self.verify_faults,
            "restart_p50_s": percentile(landings, 50),
            "restart_max_s": max(landings, default=0.0),
            "kill_p50_s": percentile([life.seconds for life in self.killed], 50),
            "worker_kills": sum(life.worker_kills for life in self.lives),
            "points_hit": len(self.hit().keys() - {RANDOM}),
            "points_missed": sum(life.missed for life in self.lives),
            "verify_s": self.verify_s,
            "rows": self.rows,
            "large_files": self.large_files,
        }
