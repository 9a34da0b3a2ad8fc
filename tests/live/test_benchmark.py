"""The benchmark of real workers runs, in its short form, and measures something in every cell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_short_form_runs():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.live", "--quick"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr == ""
    titles = re.findall(r"^\*\*(\w+)\*\* \(load", done.stdout, re.MULTILINE)
    assert titles == ["server", "transport", "throughput"]
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    names = [row[0].strip("| ") for row in rows]
    assert names[:3] == ["model", "64-32-10", "10 MB"]
    assert names[3:8] == ["model", "64-32-10", "64-32-10", "10 MB", "10 MB"]
    assert names[8:] == ["workers", "2"]
    assert "nan" not in done.stdout
