"""`check_control_plane`: known bugs are found and told apart from mended managers; doors."""

import asyncio
import importlib.util
import re
import subprocess
import sys
import time
from typing import Any

import pytest

from asyncjax.__main__ import main
from asyncjax.rollouts import check_control_plane
from asyncjax.rollouts.control_plane import World
from asyncjax.rollouts.control_world import Setting, replay
from tests.rollouts import control_planes
from tests.rollouts.check_control_page import PAGE, printed
from tests.rollouts.control_planes import EACH, PAIRS, RIGHT, Areal, Discard, Skyrl

check: Any = check_control_plane  # wrong arguments, and findings that must be there


def run_written(text, folder, name, make):
    """Runs the test of a finding on a manager, as a file of its own."""
    path = folder / f"{name}.py"
    assert text.count("asyncjax") == 1  # in the sentence that says who wrote it
    path.write_text(re.sub(r"^from .*$", "make = None", text, flags=re.M), encoding="utf-8")
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module: Any = importlib.util.module_from_spec(spec)
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
    report = check(buggy, **settings)
    finding = report.finding
    assert finding is not None
    assert finding.invariant == invariant
    assert len(finding.events) <= 15
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
    report = check(make, **numbers, examples=15, **settings)
    report.raise_if_wrong()
    assert report.examples == 15


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("numbers", [(1, 2, 0), (3, 8, 2), (4, 3, 1)])
def test_a_right_manager_passes_at_other_sizes(name, numbers):
    make, settings = RIGHT[name]
    names: dict[str, Any] = dict(zip(("batch", "slots", "bound"), numbers, strict=True))
    resized = type(make.__name__, (make,), names)
    sizes = dict(zip(("batch", "slots", "max_staleness"), numbers, strict=True))
    check(resized, **sizes, examples=60, **settings).raise_if_wrong()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_known_bugs_are_found_whatever_the_seed(seed):
    for kind, (buggy, _, invariant, settings) in PAIRS.items():
        finding = check(buggy, **settings, seed=seed).finding
        assert finding is not None, kind
        assert finding.invariant == invariant
        assert len(finding.events) <= 15, kind


@pytest.mark.slow
def test_it_needs_no_jax():
    code = (
        "import sys; from asyncjax.rollouts import check_control_plane; print('jax' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


NUMBERS = {"batch": 2, "slots": 4, "max_staleness": 1}


@pytest.mark.slow
def test_all_three_statements_about_ages_are_told():
    report = check(Areal, **NUMBERS, examples=60)
    assert report.right
    assert report.ages["age_aggregate"] is None
    for statement in ("age_each", "age_batch"):
        assert len(report.ages[statement].events) <= 20
    text = str(report)
    assert "age_each      not asked, does not: " in text
    assert "age_aggregate asked, holds in all of them" in text
    assert "why age_each is no promise of this manager:" in text


@pytest.mark.slow
def test_rare_states_are_counted():
    first = check(Discard, **NUMBERS, invariants=EACH, examples=150).sometimes
    second = check(Areal, **NUMBERS, examples=30).sometimes
    assert all(first[state] + second[state] for state in first), (first, second)


@pytest.mark.slow
def test_the_same_seed_is_the_same_report():
    first, second = (check(Areal, **NUMBERS, examples=20, seed=3) for _ in range(2))
    assert first.sometimes == second.sometimes
    assert first.ages == second.ages


@pytest.mark.slow
def test_a_finding_is_saved_and_runs_first(tmp_path):
    buggy, mended, _, settings = PAIRS["burst after resume"]
    first = check(buggy, **settings, folder=tmp_path)
    assert first.file.parent == tmp_path
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".py"]
    again = check(buggy, **settings, folder=tmp_path)
    assert again.examples == 0
    assert again.finding.events == first.finding.events
    assert check(mended, **settings, folder=tmp_path, examples=20).right
    event = '{"invariant": "age_aggregate", "events": [["close", 0, "", 0.0]]}'
    for content in ("[]", "{", event):
        (tmp_path / "other.json").write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=r"findings .* got 'other.json'"):
            check(mended, **settings, folder=tmp_path)


def test_endless_faults_ask_for_safety_alone():
    buggy, _, _, settings = PAIRS["failed lose capacity"]
    settings = settings | {"invariants": ("progress", "age_aggregate")}
    report = check(buggy, **settings, world=World(endless=True), examples=30)
    assert report.right
    assert report.asked == ("age_aggregate",)


@pytest.mark.slow
def test_throughput_is_compared_with_a_run_that_nothing_bounds():
    world = World(throughput=0.9, training_time=1.0)
    asked = NUMBERS | {"invariants": ("throughput",), "examples": 150}
    report = check(control_planes.Synchronous, **asked, world=world)
    assert report.finding.invariant == "throughput"
    assert "a share of 0." in report.finding.sentence
    world = World(throughput=0.1, lengths=[1.0])
    assert check(Areal, **asked, world=world).right


def test_recorded_lengths_and_groups():
    world = World(lengths=[10.0, 10.0, 900.0], group=3, engines=1)
    report = check(Areal, **NUMBERS, world=world, examples=20)
    assert report.right


class Sleeps(Areal):
    def finished(self, rollout, outcome):
        time.sleep(0.005)
        super().finished(rollout, outcome)


class SleepsInVirtualTime(Skyrl):
    async def finished(self, rollout, outcome):
        await asyncio.sleep(100.0)
        await super().finished(rollout, outcome)


class Capacity(Areal):
    def may_start(self):
        return 3


class Coroutine(Areal):
    def may_start(self):
        return asyncio.sleep(0)


class Few(Discard):
    def select(self, waiting):
        return waiting[:1]


class OtherCounts(Areal):
    def counts(self):
        return {"flying": 0}


class Nothing:
    def __init__(self):
        raise OSError("no such file")


class NoTaken:
    may_start = started = finished = published = lambda self, *given: True


class FewArguments(Areal):
    finished: Any = lambda self, rollout: None


class NoCheckpoint(Areal):
    save: Any = None


class Unsteady(Areal):
    made_so_far = 0

    def __init__(self):
        super().__init__()
        Unsteady.made_so_far += 1
        self.odd = Unsteady.made_so_far % 2

    def may_start(self):
        return super().may_start() and not self.odd


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (Sleeps, {}, "finished() of the adapter must not wait in real time"),
        (Capacity, {}, "may_start() of the adapter must return True or False, got 3"),
        (Coroutine, {}, "may_start() of the adapter must return True or False, got <coroutine"),
        (Few, {"invariants": EACH}, "select() of the adapter must return None or a list of 2"),
        (OtherCounts, {}, "counts() of the adapter may hold running, waiting"),
        (Nothing, {}, "make must return an adapter when it is called, raised OSError"),
        (NoTaken, {}, "the adapter that make returns must have taken(), got"),
        (
            FewArguments,
            {},
            "finished() of the adapter must take 2 arguments, got finished(rollout)",
        ),
        (NoCheckpoint, {"faults": ["resume"]}, "must have save() for the fault 'resume'"),
        (Unsteady, {}, "make must return a manager that does the same under the same calls"),
    ],
)
def test_what_is_no_adapter_is_told_in_a_sentence(make, settings, words):
    with pytest.raises(TypeError) as told:
        check(make, **NUMBERS, **settings)
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_an_exception_is_a_finding_with_its_call():
    report = check(control_planes.Forgets, **NUMBERS)
    assert report.finding.sentence.startswith("finished(0, 'accepted') raised KeyError: 0")
    with pytest.raises(AssertionError, match="returns: finished"):
        report.raise_if_wrong()


@pytest.mark.slow
def test_a_call_that_polls_for_ever_is_told():
    report = check(control_planes.PollsForEver, **NUMBERS, faults=["failures"])
    words = "finished(0, 'failed') waits for something that never comes"
    assert (report.finding.invariant, report.finding.sentence) == ("returns", words)


@pytest.mark.slow
def test_sleeping_in_virtual_time_takes_none():
    began = time.perf_counter()
    check(SleepsInVirtualTime, **NUMBERS, examples=5).raise_if_wrong()
    assert time.perf_counter() - began < 5.0


FILE = """
class Manager:
    running = 0

    def may_start(self):
        return self.running < 4

    def started(self, rollout):
        self.running += 1

    def finished(self, rollout, outcome):
        self.running -= outcome != "failed"

    def taken(self, rollouts):
        pass

    def published(self, version):
        pass

make = Manager
"""


@pytest.mark.slow
def test_the_command_tells_by_its_status(tmp_path, capsys):
    file = tmp_path / "my_manager.py"
    file.write_text(FILE, encoding="utf-8")
    asked = ["check-control", str(file), "--batch", "2", "--slots", "4", "--max-staleness", "1"]
    folder = tmp_path / "findings"
    options = ["--folder", str(folder), "--invariants", "progress"]
    assert main([*asked, *options]) == 1
    said = capsys.readouterr().out
    assert "WRONG: progress" in said
    assert "from my_manager import Manager as make" in said
    assert len(list(folder.iterdir())) == 2
    (tmp_path / "lengths.csv").write_text("10\n20\n900\n", encoding="utf-8")
    options = ["--lengths", str(tmp_path / "lengths.csv"), "--faults", "filtered", "--steps", "4"]
    assert main([*asked, *options, "--invariants", "progress", "--examples", "20"]) == 0
    assert capsys.readouterr().out.startswith("20 schedules in ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--batch", "0"], "--batch must be an integer of at least 1, got 0"),
        (["--max-staleness", "-1"], "--max-staleness must be at least 0"),
        (["--faults", "fire"], "--faults must be of failures, filtered,"),
        (["--patience", "0"], "--patience must be an integer of at least 1, got 0"),
    ],
)
def test_the_command_speaks_of_its_options(options, words, tmp_path, capsys):
    file = tmp_path / "my_manager.py"
    file.write_text(FILE, encoding="utf-8")
    given = ["--batch", "2", "--slots", "4", "--max-staleness", "1", *options]
    assert main(["check-control", str(file), *given]) == 2
    assert capsys.readouterr().err.startswith(f"asyncjax.check-control: {words}")
    file.write_text("1 / 0", encoding="utf-8")
    assert main(["check-control", str(file), *given]) == 2
    assert "raised ZeroDivisionError: division by zero" in capsys.readouterr().err
    file.write_text("", encoding="utf-8")
    assert main(["check-control", str(file), *given]) == 2
    assert "--file" not in capsys.readouterr().err


@pytest.mark.slow
def test_the_page_shows_what_its_blocks_print():
    for block, out in printed(PAGE.read_text(encoding="utf-8")):
        assert block[2] is None or block[2] == out


if __name__ == "__main__":
    for each, (factory, given) in [(k, RIGHT[k]) for k in sys.argv[2:] or RIGHT]:
        sizes = {"batch": factory.batch, "slots": factory.slots, "max_staleness": factory.bound}
        began = time.perf_counter()
        told = check(factory, **sizes, examples=int(sys.argv[1]), **given)
        each_second = told.examples / (time.perf_counter() - began)
        print(
            f"{each}: right {told.right}, {told.examples:,} examples, {60 * each_second:,.0f}/min"
        )
