"""A Spark session that suits Tidegate, and the check of one that a user made."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tidegate.errors import BadSetting

log = logging.getLogger("spark")

_TASK_ATTEMPTS = 4
_JAVA_OPTIONS = "-XX:+UseParallelGC -XX:MaxNewSize=256m"  # unbounded it grows to a third of the heap, to no use
_WORKER_PYTHON = str(files("tidegate") / "worker-python")
_NO_NEWS = (b"WARNING: Using incubator modules",)


def local_session(slots: int | None = None, driver_memory: str = "2g") -> SparkSession:
    """A session on this machine whose JVM has a process group of its own, so that signals reach only the driver."""
    slots = slots or max(2, os.cpu_count() or 2)
    os.environ["PYSPARK_PYTHON"] = _worker_python()
    os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["TIDEGATE_PYTHON"] = sys.executable
    log4j = files("tidegate") / "log4j2.properties"
    conf = SparkConf()
    for key, value in {
        "spark.app.name": "tidegate",
        "spark.master": f"local[{slots},{_TASK_ATTEMPTS}]",
        "spark.driver.memory": driver_memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j} {_JAVA_OPTIONS}",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.shuffle.partitions": str(slots),
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": tempfile.gettempdir(),
    }.items():
        conf.set(key, value)
    gateway = launch_gateway(conf, popen_kwargs={"start_new_session": True, "stderr": subprocess.PIPE})
    threading.Thread(target=_forward, args=(gateway.proc.stderr,), daemon=True, name="spark-stderr").start()
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _worker_python() -> str:
    """This interpreter, by way of a script that spares its start a second; as it is where the script cannot run."""
    return _WORKER_PYTHON if os.access(_WORKER_PYTHON, os.X_OK) else sys.executable


def _forward(lines: Iterable[bytes]) -> None:
    """What the JVM and its workers say goes into the log, but for what every start says."""
    level = logging.WARNING
    for line in lines:
        if not line.startswith(_NO_NEWS):
            text = line.decode("utf-8", "replace").rstrip()
            if found := re.match(r"spark (WARN|ERROR|FATAL) ", text):  # the lines of a trace follow without a level
                level = logging.WARNING if found[1] == "WARN" else logging.ERROR
            log.log(level, "%s", text)


def has_stopped(spark: SparkSession) -> bool:
    """Whether somebody has stopped the session, or its JVM is gone."""
    try:
        context = spark.sparkContext._jsc
        return context is None or context.sc().isStopped()
    except (Py4JError, OSError):
        return True


def check_session(spark: SparkSession) -> tuple[int, list[str]]:
    """Slots of the session and what is worth a warning; refuses what would not work, naming the setting to change."""
    sc = spark.sparkContext
    slots = sc.defaultParallelism
    if slots < 2:
        raise BadSetting(
            f"master {sc.master} has {slots} slot but Tidegate needs two, one to ingest and one to land; "
            "use local[2,4] or more"
        )
    if not sc.master.startswith("local"):
        raise BadSetting(
            f"master {sc.master} runs tasks on other machines, which do not share the spool directory; "
            "use a local master such as local[2,4]"
        )
    _check_python(sc)
    return slots, [*_warn_retries(sc), *_warn_scheduler(sc)]


def _check_python(sc: Any) -> None:
    worker = shutil.which(sc.pythonExec) or sc.pythonExec
    if worker == _WORKER_PYTHON:
        worker = os.environ["TIDEGATE_PYTHON"]
    if os.path.realpath(worker) != os.path.realpath(sys.executable):
        raise BadSetting(
            f"Spark's workers run {worker} but the driver runs {sys.executable}; "
            f"set PYSPARK_PYTHON={sys.executable} before the session is made"
        )


def _warn_retries(sc: Any) -> list[str]:
    if sc.master.startswith("local") and "," not in sc.master:
        return [f"master {sc.master} does not retry tasks, so a lost Python worker ends the query; use local[N,4]"]
    return []


def _warn_scheduler(sc: Any) -> list[str]:
    if sc.getConf().get("spark.scheduler.mode", "FIFO") != "FAIR":
        return ["spark.scheduler.mode is FIFO, so landing may wait behind ingest; set it to FAIR"]
    return []
