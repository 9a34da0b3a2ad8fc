"""Facts of the programs of this folder, each found once in a process that has eight devices."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LONGEST = 400  # seconds that one fact may take


def eight_devices():
    """An environment in which jax sees eight devices, and compiles as it does for a user."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_DISABLE")}
    return own | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }


class Process:
    """The process that finds facts; it is started when the first is asked for."""

    def __init__(self, folder):
        self.folder, self.errors, self.running = folder, folder / "stderr", None

    def start(self):
        with self.errors.open("w") as file:
            self.running = subprocess.Popen(
                [sys.executable, "-m", "tests.simulation.mesh.facts", str(self.folder)],
                cwd=ROOT,
                env=eight_devices(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def ask(self, program, name):
        """The answer, or the last words of a process that has ended."""
        if self.running is None or self.running.poll() is not None:
            self.start()
        said = self.errors.stat().st_size
        self.running.stdin.write(json.dumps([program, name]) + "\n")
        self.running.stdin.flush()
        if not select.select([self.running.stdout], [], [], LONGEST)[0]:
            self.running.kill()
        line = self.running.stdout.readline()
        if line:
            return json.loads(line)
        code, words = self.running.wait(), self.errors.read_text()[said:]
        return {"failure": f"the process ended with {code}: {words[-3000:]}"}

    def end(self):
        if self.running is not None:
            self.running.kill()
            self.running.communicate()


@pytest.fixture(scope="session")
def fact_of(tmp_path_factory):
    """A fact of a program, found once; the test that asks for one that fails is told why."""
    process, known = Process(tmp_path_factory.mktemp("mesh")), {}

    def look(program, name):
        if (program, name) not in known:
            known[program, name] = process.ask(program, name)
        answer = known[program, name]
        assert "failure" not in answer, answer["failure"]
        return answer["fact"]

    yield look
    process.end()
