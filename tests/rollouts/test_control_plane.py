"""`check_control_plane`: known bugs are found and told apart from mended managers; doors."""

import importlib.util
import json
import subprocess
import sys
import time

import pytest

from asyncjax.rollouts import check_control_plane
from asyncjax.rollouts.control_plane import World
from asyncjax.rollouts.control_world import Setting, replay
from tests.rollouts import control_planes
from tests.rollouts.control_planes import EACH, PAIRS, RIGHT, Areal, Discard, Skyrl


def run_written(text, folder, name, make):
    """Runs the test of a finding on a manager, as a file of its own."""
    path = folder / f"{name}.py"
    lines = [line for line in text.splitlines() if not line.startswith("from ")]
    assert "asyncjax" not in "\n".join(lines[4:])
    path.write_text("make = None\n" + "\n".join(lines[4:]), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make = make
    try:
        next(value for key, value in vars(module).items() if key.startswith("test_"))()
    finally:
        if hasattr(module, "loop"):
            module.loop.close()


@pytest.mark.parametrize("kind", PAIRS)
def test_a_known_bug_is_found_and_its_schedule_is_short(kind, tmp_path):
    buggy, mended, invariant, settings = PAIRS[kind]
    report = check_control_plane(buggy, **settings)
    finding = report.finding
    assert finding is not None
    assert finding.invariant == invariant
    assert finding.n_events <= 15
    assert report.seconds < 60
    asked = frozenset({invariant})
    numbers = settings["batch"], settings["slots"], settings["max_staleness"]
    world = settings.get("world", World())
    for make, breaks in ((buggy, True), (mended, False)):
        broken, _ = replay(Setting(make, *numbers, asked, (), world), finding.events)
        assert (broken is not None) == breaks
    run_written(finding.test, tmp_path, "on_mended", mended)
    if invariant != "returns":
        with pytest.raises(AssertionError):
            run_written(finding.test, tmp_path, "on_buggy", buggy)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_manager_passes(name):
    make, settings = RIGHT[name]
    numbers = {"batch": make.batch, "slots": make.slots, "max_staleness": make.bound}
    report = check_control_plane(make, **numbers, examples=150, **settings)
    report.raise_if_wrong()
    assert report.examples == 150


if __name__ == "__main__":
    for each, (factory, given) in RIGHT.items():
        sizes = {"batch": factory.batch, "slots": factory.slots, "max_staleness": factory.bound}
        began = time.perf_counter()
        told = check_control_plane(factory, **sizes, examples=int(sys.argv[1]), **given)
        each_second = told.examples / (time.perf_counter() - began)
        print(
            f"{each}: right {told.right}, {told.examples:,} examples, {60 * each_second:,.0f}/min"
        )
