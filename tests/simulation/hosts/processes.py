"""Starts several processes of JAX on this machine, bounded in time, and leaves none behind."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
DEVICES = 8  # of all processes together


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    output: str
    seconds: float  # after all were started


def free_port():
    """A port of this machine that nobody listens on."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(address, n_processes):
    """Variables of a process with its part of the devices, which listens on this machine alone."""
    flags = os.environ.get("XLA_FLAGS", "")
    share = DEVICES // n_processes
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={share}",
        "JAX_COORDINATOR_BIND_ADDRESS": address,
    }


def together(n_processes, folder, *tasks, seconds=200):
    """Runs the program in so many processes; how each of them ended."""
    address = f"127.0.0.1:{free_port()}"
    program = [sys.executable, "-m", "tests.simulation.hosts.program", address, str(n_processes)]
    commands = [[*program, str(process), str(folder), *tasks] for process in range(n_processes)]
    return ended(commands, environment(address, n_processes), ROOT, folder, seconds)


def ended(commands, variables, place, folder, seconds):
    """Runs commands side by side, and says how each ended; in time, or it is killed.

    Their output goes to files in `folder`: a pipe that nobody reads would stop them.
    """
    began = time.monotonic()

    def run(number, command):
        output, code = Path(folder) / f"output.{number}", -9
        with open(output, "wb") as file, contextlib.suppress(subprocess.TimeoutExpired):
            settings = {"env": variables, "cwd": place, "stdout": file, "stderr": file}
            code = subprocess.run(command, timeout=seconds, check=False, **settings).returncode
        return Ended(code, output.read_text(errors="replace"), time.monotonic() - began)

    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(run, range(len(commands)), commands))
