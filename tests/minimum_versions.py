"""Whether the library works with the oldest versions that pyproject.toml allows.

`python -m tests.minimum_versions` (or `make test-minimum`) reads the lower bounds, makes an
environment in a temporary folder, installs exactly these versions there, imports every room, runs
a small training and prints what was installed. Names of extras are arguments; none: those of
`EXTRAS`. Run it with the oldest Python that is allowed: a newer one may have no such old wheels.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("plots", "data", "experiments")
SMOKE = """
import importlib, sys
import jax, numpy as np, optax
import asyncjax
from asyncjax import clocks, problems, results, simulation, testing, traces

for room in sorted(asyncjax._ROOMS):
    importlib.import_module(f"asyncjax.{room}")
data = problems.digits() if "data" in sys.argv else None
rows = np.eye(16) if data is None else data.train_features[:128]
labels = np.arange(16) % 2 if data is None else data.train_labels[:128]
network = problems.MLP((4,), classes=10)
options = {"n_workers": 4, "batch": problems.uniform(2), "key": jax.random.key(0)}
problem = problems.classification(network, rows, labels, **options)
clock = clocks.exponential([1.0, 2.0, 3.0, 4.0])
trace = traces.asynchronous(clock, n_updates=40, key=options["key"])
records = simulation.replay(problem, trace, optax.adam(0.01), key=options["key"]).records
testing.check_transform(optax.adam(0.1))
assert records.loss[-1] < records.loss[0], records.loss
if "plots" in sys.argv:
    from asyncjax.results import plots
    series = results.Series("pure", records.time, *[records.loss] * 3)
    plots.curves([series], x_label="time", y_label="loss").savefig("curves.png")
"""


def bounds(project: dict, extras: tuple[str, ...] = ()) -> dict[str, str]:
    """The lowest version of each requirement, by name; without a bound it is not there.

    Args:
        project: The table `project` of pyproject.toml.
        extras: Names of extras; what they take from each other is followed.

    Raises:
        KeyError: There is no such extra.
    """
    optional = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
    found: dict[str, str] = {}
    for line in lines:
        name, inner, rest = re.fullmatch(r"([\w-]+)(?:\[(.*?)\])?(.*)", line).groups()
        if name == project["name"]:
            found |= bounds(project, tuple(inner.split(",")))
        elif least := re.search(r">=([\d.]+)", rest):
            found[name] = least[1]
    return found


def main(extras: tuple[str, ...]) -> None:
    """Installs and runs; an error of either is the exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [f"{name}=={least}" for name, least in sorted(bounds(project, extras).items())]
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "environment/bin/python"
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", *pins], check=True)
        settings = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        subprocess.run([python, "-c", SMOKE, *extras], check=True, cwd=folder, env=settings)
        if "experiments" in extras:
            command = [python, "-m", "experiments.compare", "--help"]
            quiet = {"stdout": subprocess.DEVNULL}
            subprocess.run(command, check=True, cwd=folder, env=settings, **quiet)
    print(f"Python {sys.version.split()[0]}: every room works with {', '.join(pins)}")


if __name__ == "__main__":
    try:
        main(tuple(sys.argv[1:]) or EXTRAS)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
