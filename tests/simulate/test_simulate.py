"""Simulation tests: many seeds pass, and what is broken on purpose is found."""

import subprocess
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import jax
import pytest

from asyncjax import traces
from tests.registries.traces import REGISTRY
from tests.simulate import campaign
from tests.simulate.campaign import run_seed, run_seeds
from tests.simulate.faults import COMPILED, FAULTS
from tests.simulate.rules import RULES
from tests.simulate.training import forget

ROOT = Path(__file__).parents[2]


def passes(seeds, level):
    report = run_seeds(seeds, level)
    assert not report.failed, [(one.seed, one.message, one.drawn) for one in report.failed]
    assert report.counts["refused"] < 0.2 * len(seeds)
    assert report.counts["fine"] > 0.7 * len(seeds)


@pytest.mark.slow
def test_forty_servers():
    passes(range(40), "quick")


@pytest.mark.slow
def test_five_hundred_servers_on_all_kinds_of_clocks():
    passes(range(1_000, 1_500), "traces")


@pytest.mark.slow
def test_twenty_four_runs():
    passes(range(2_000, 2_024), "only runs")


@pytest.mark.parametrize("level", ["quick", "traces"])
def test_a_seed_alone_is_what_it_is_in_a_batch(level):
    outcomes = {}
    run_seeds(range(5, 8), level, lambda outcome: outcomes.update({outcome.seed: outcome}))
    assert outcomes[7] == run_seed(7, level)


def test_every_rule_of_the_registry_is_drawn():
    rules = [rule for rule in REGISTRY.values() if isinstance(rule, traces.Rule)]
    collected = [rule.collect for rule in rules if rule.collect != traces.Rule().collect]
    # Those that also step by the clock are drawn in tests/traces/test_timed.py, buckets have a twin
    # of their own in tests/traces/test_buckets.py.
    named = {rule.name for rule in collected if rule.start(4).timer is None}
    first_words = {name.split(",")[0].rstrip("0123456789. ") for name in named}
    drawn = {name.replace("_", " ") for name in RULES}
    assert first_words <= {*drawn, "ringmaster quantile", "every of 3 buckets"}


@contextmanager
def anew():
    """Everything is compiled in it, and nothing of that is used later."""
    forget()
    jax.clear_caches()
    yield
    forget()
    jax.clear_caches()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_within_two_hundred_seeds(name):
    plant, level = FAULTS[name]
    with anew() if name in COMPILED else nullcontext(), plant():
        report = run_seeds(range(COMPILED.get(name, 0), 200), level, most=1)
    assert report.failed, "no seed found it"
    print(name, sum(report.counts.values()), report.failed[0].message)


@pytest.mark.slow
def test_the_command_tells_seeds_that_fail_and_goes_on(tmp_path):
    program = (
        "import sys, runpy\n"
        "from tests.simulate import faults\n"
        "sys.argv = ['tests.simulate', '--quick', '--seeds', '40']\n"
        "with faults.FAULTS['weights of one'][0]():\n"
        "    runpy.run_module('tests.simulate', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    repeats = [line.strip() for line in lines if "--seed " in line]
    assert repeats[0].startswith("python -m tests.simulate --quick --seed ")
    assert len(repeats) > 1
    assert f"{len(repeats)} failed" in lines[-1]
    assert lines[-1].startswith("40 seeds in ")


def test_what_is_thrown_is_a_failure_and_a_plain_refusal_is_counted(monkeypatch):
    def broken(*_):
        raise KeyError("broken")

    monkeypatch.setattr(campaign, "check_traces", broken)
    outcome = run_seed(0, "quick")
    assert outcome.kind == "failed"
    assert "KeyError" in outcome.message
    assert "clock=" in outcome.drawn
