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


def eight_devices(as_users):
    """An environment in which jax sees eight devices, and compiles as for a user or as in tests."""
    env, flags = dict(os.environ), os.environ.get("XLA_FLAGS", "")
    if as_users:
        env, flags = {name: env[name] for name in env if not name.startswith("JAX_DISABLE")}, ""
    return env | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=8",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }


class Process:
    """The process that finds facts; it is started when the first is asked for."""

    def __init__(self, folder, environment):
        self.folder, self.errors, self.running = folder, folder / "stderr", None
        self.environment = environment

    def start(self):
        with self.errors.open("w") as file:
            self.running = subprocess.Popen(
                [sys.executable, "-m", "tests.simulation.mesh.facts", str(self.folder)],
                cwd=ROOT,
                env=self.environment,
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
    """A fact of a program, found once; the test that asks for one that fails is told why.

    The facts of sweeps are bits, so they are compiled as for a user. Those of the others hold to
    rounding, or are read from the program before the compiler makes code of it: quickly.
    """
    processes = {
        as_users: Process(tmp_path_factory.mktemp("mesh"), eight_devices(as_users))
        for as_users in (True, False)
    }
    known = {}

    def look(program, name):
        if (program, name) not in known:
            known[program, name] = processes[program == "sweeps"].ask(program, name)
        answer = known[program, name]
        assert "failure" not in answer, answer["failure"]
        return answer["fact"]

    yield look
    for process in processes.values():
        process.end()
