"""`tidegate run` and `verify` on an S3 server, and that the secret of the sink URI goes nowhere."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WORKLOAD = "workload://sysbench?tables=3&rows=2000&seed=3&batch=64KiB&rate=1MiB"
SECRET = "hunter2hunter2/+hunter2"


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        parents.setdefault(parent, []).append(int(stat.parent.name))
    found = list(parents.get(pid, []))
    for child in found:
        found += parents.get(child, [])
    return found


def told(pid: int) -> bytes:
    """The command line and the environment of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def test_a_run_on_s3_verifies_and_tells_nobody_the_secret(s3_server: Any, tmp_path: Path) -> None:
    store = s3_server.store("e2e")
    sink = s3_server.uri("e2e", secret_access_key=SECRET)
    ends = [
        "--source",
        WORKLOAD,
        "--sink",
        sink,
        "--spool-dir",
        str(tmp_path / "spool"),
        "--option",
        "flush-interval=1s",
    ]
    command = [sys.executable, "-m", "tidegate.cli"]
    report = tmp_path / "report.json"
    run = [*command, "run", *ends, "--report", str(report)]
    T0=time.monotonic()
    children: dict[int, bytes] = {}
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            until = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < until and not store.size("metadata"):
                children |= {pid: told(pid) for pid in descendants(process.pid)}
                time.sleep(0.2)
            print('metadata', time.monotonic()-T0, file=sys.stderr)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    print('ended', time.monotonic()-T0, output[-1500:], file=sys.stderr)
    assert process.returncode == 0, output
    verified = subprocess.run([*command, "verify", *ends], capture_output=True, text=True, timeout=120)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    print('verified', time.monotonic()-T0, file=sys.stderr)
    assert len(children) >= 2, "the JVM and its Python workers were seen"
    assert not [pid for pid, text in children.items() if b"hunter2" in text]
    assert "hunter2" not in output + report.read_text() + verified.stdout + verified.stderr
    assert "secret-access-key=***" in output, "the next commands are shown without it"
    assert not [path for path, _ in store.list("") if b"hunter2" in (store.get(path) or b"")]
