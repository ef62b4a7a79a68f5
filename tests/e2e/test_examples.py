"""The examples run as they are, each in a process of its own, and so does the Python example of the README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python(*arguments: str, cwd: Path, **environment: str) -> str:
    environment["XDG_STATE_HOME"] = str(cwd / "state")  # where the spool is by default
    answer = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | environment,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_a_dataframe_of_ones_own_lands_and_is_read_back_without_tidegate(tmp_path: Path) -> None:
    landed = python(str(ROOT / "examples" / "dataframe.py"), cwd=tmp_path)
    assert "1010 rows landed" in landed
    assert re.search(r"out/shop/orders/\d+/\d{4}-\d\d-\d\d/CDC00000000000000000001\.csv", landed)
    read = python("-I", str(ROOT / "examples" / "read_back.py"), cwd=tmp_path)
    assert "shop.orders: 990 rows" in read


def test_the_notebook_runs_as_a_whole(tmp_path: Path) -> None:
    said = python(str(ROOT / "examples" / "notebook.py"), cwd=tmp_path, TIDEGATE_EXAMPLE=str(tmp_path))
    rows = int(re.findall(r"(\d+) rows are durable up to checkpoint-ts [1-9]", said)[0])
    assert rows > 0
    landed = [line for path in (tmp_path / "out" / "clock").rglob("CDC*.csv") for line in path.read_text().splitlines()]
    assert len(landed) == rows


def test_the_python_example_of_the_readme_runs_as_printed(tmp_path: Path) -> None:
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "example.py").write_text(block)
    assert "1000 rows landed" in python("example.py", cwd=tmp_path)
    assert list((tmp_path / "landed" / "shop" / "notes").rglob("CDC*.csv"))
