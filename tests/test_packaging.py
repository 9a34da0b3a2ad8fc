"""What is published: the wheel and the source archive, as built, opened, installed and run."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import jax
import pytest

import asyncjax
from asyncjax.__main__ import COMMANDS, main

ROOT = Path(__file__).parents[1]
LARGEST = 3_000_000  # bytes; today the wheel has 1.1 million and the source archive 0.8


def ran(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    """The environment of processes that can build, with the backend in a folder of its own."""
    folder = tmp_path_factory.mktemp("builder")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    done = subprocess.run([*command, "build"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"what builds packages cannot be installed here: {done.stderr.strip()[-200:]}")
    ran([*command, *project["build-system"]["requires"]])  # must be there where the other is
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def built(builder, tmp_path_factory):
    """The source archive, and the wheel that is made of it."""
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place), str(ROOT)]
    ran(command, env=builder)
    (archive,), (wheel,) = place.glob("*.tar.gz"), place.glob("*.whl")
    return archive, wheel


def library():
    """Files of the library in the checkout."""
    files = (path for path in (ROOT / "asyncjax").rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}


def metadata_of(wheel):
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(file.read(name).decode("utf-8"))


@pytest.mark.slow
def test_the_wheel_is_the_library_and_its_licences(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    packed = {name for name in names if name.startswith("asyncjax/")}
    assert packed == library()
    suffixes = {".py", ".npz", ".j2", ".html", ".mplstyle", ".json", ".gz", ".typed", ".bib"}
    assert {Path(name).suffix for name in packed} == suffixes
    recordings = {name for name in packed if name.startswith("asyncjax/clocks/data/")}
    assert {Path(name).stem for name in recordings} == set(asyncjax.clocks.RECORDINGS)
    info = f"asyncjax-{asyncjax.__version__}.dist-info"
    assert {f"{info}/licenses/{name}" for name in ("LICENSE", "NOTICE")} <= names
    assert all(name.startswith(("asyncjax/", f"{info}/")) for name in names)
    assert built[1].stat().st_size < LARGEST


@pytest.mark.slow
def test_the_source_archive_is_what_the_wheel_is_made_of(built):
    with tarfile.open(built[0]) as file:
        names = {name.split("/", 1)[1] for name in file.getnames()}
    folders = {name.split("/")[0] for name in names if "/" in name}
    assert folders == {"asyncjax"}, "no figures, output, tests or built pages"
    assert {name for name in names if name.startswith("asyncjax/")} == library()
    assert {"LICENSE", "NOTICE", "README.md", "CITATION.cff", "pyproject.toml"} <= names
    assert built[0].stat().st_size < LARGEST


@pytest.mark.slow
def test_a_wheel_of_the_checkout_is_that_of_the_archive(built, builder, tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    ran([*command, "--no-build-isolation", "-w", str(tmp_path), str(ROOT)], env=builder)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == built[1].name
    wanted = {one.filename: one.CRC for one in zipfile.ZipFile(built[1]).infolist()}
    assert {one.filename: one.CRC for one in zipfile.ZipFile(wheel).infolist()} == wanted


@pytest.mark.slow
def test_what_the_package_says_of_itself(built):
    told = metadata_of(built[1])
    assert told["Version"] == asyncjax.__version__
    assert told["Description-Content-Type"] == "text/markdown"
    text = told.get_payload()
    assert text.split("\n", 1)[1].startswith("# asyncjax"), "after the line that says what made it"
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all(re.match(r"https://|#", link) for link in links), "files are not beside that page"
    for path in re.findall(rf"/v{re.escape(asyncjax.__version__)}/([^)#]+)", text):
        assert (ROOT / path).exists()


RUN = """
import sys, jax, asyncjax
from asyncjax import clocks, traces
clock = clocks.recorded(list(clocks.recording("llm_slow_worker").durations))
trace = traces.asynchronous(clock, n_updates=50)
print(asyncjax.__file__, asyncjax.__version__, trace.n_updates)
"""


@pytest.mark.slow
def test_the_wheel_runs_in_an_environment_of_its_own(built, tmp_path):
    """Outside of the checkout; only packages that it needs are taken from this environment."""
    home = tmp_path / "fresh"
    ran([sys.executable, "-m", "venv", "--without-pip", str(home)])
    python = home / "bin/python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    ran([*command, "--no-deps", "--no-index", str(built[1])])
    (packages,) = home.glob("lib/python*/site-packages")
    assert (packages / "asyncjax/py.typed").exists()
    (packages / "others.pth").write_text(str(Path(jax.__file__).parents[1]) + "\n")
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    options = {"cwd": tmp_path, "env": clean | {"JAX_PLATFORMS": "cpu"}}
    place, version, n_updates = ran([str(python), "-c", RUN], **options).split()
    assert Path(place) == packages / "asyncjax/__init__.py"
    assert (version, n_updates) == (asyncjax.__version__, "50")
    command = str(home / "bin/asyncjax")
    assert ran([command, "--version"], **options) == f"asyncjax {version}\n"
    (tmp_path / "lengths.csv").write_text("1\n1\n1\n9\n")
    asked = [command, "rollouts", "lengths.csv", "--slots", "4", "--batch", "2"]
    said = ran([*asked, "--steps", "20", "--alone", "--report", ""], **options)
    assert "versions old at its training" in said


def test_the_door_lists_its_commands(capsys):
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in COMMANDS)
    assert main([]) == 2
    assert capsys.readouterr().err == said
    assert main(["compare"]) == 2
    said = capsys.readouterr().err
    assert said == f"asyncjax: there is no command 'compare'; commands are {', '.join(COMMANDS)}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_door_hands_on_what_it_is_given(name, capsys, tmp_path):
    wrong = str(tmp_path / "none.csv")
    assert main([name, wrong]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"asyncjax.{name}: ")
    assert "none.csv" in said


def test_a_version_is_told_without_loading_jax():
    code = (
        "import sys; from asyncjax.__main__ import main; main(['-V']); print('jax' in sys.modules)"
    )
    version, *modules = ran([sys.executable, "-c", code], cwd=ROOT).splitlines()
    assert version == f"asyncjax {asyncjax.__version__}"
    assert not {"jax", "numpy"} & set(modules[0].split())
