"""Every server rule of the library keeps the contract; broken ones are told in a sentence."""

from dataclasses import replace

import numpy as np
import pytest

from asyncjax import testing, traces
from asyncjax.traces.collection import Collection, Collector, Verdict
from asyncjax.traces.dispatch import Dispatch
from tests.registries.traces import REGISTRY

RULES = {name: rule for name, rule in REGISTRY.items() if isinstance(rule, traces.Rule)}


def check(*, n_workers=4, n_updates=40, **fields):
    """Checks the rule that has these fields."""
    testing.check_rule(traces.Rule(**fields), n_workers=n_workers, n_updates=n_updates)


@pytest.mark.parametrize("name", RULES)
def test_rules_of_the_library_keep_the_contract(name):
    testing.check_rule(RULES[name])


def test_all_rules_but_synchronous_rounds_are_checked():
    assert set(REGISTRY) - set(RULES) == {"synchronous 4"}


@pytest.mark.parametrize("bound", [0, 1, 2.5, float("inf")])
@pytest.mark.parametrize("read", ["assignment", "start"])
def test_gates_keep_the_contract(bound, read):
    check(gate=traces.lead_at_most(bound), read=read)
    check(gate=traces.lead_at_most(bound), dispatch=traces.shuffled(), read=read)


@pytest.mark.slow
def test_other_rules_of_the_library_keep_the_contract():
    check(dispatch=traces.given([3, 2, 1, 0] * 100))
    check(collect=traces.wait_for(4), n_workers=7, n_updates=25)
    shares = traces.fastest_quotas([1.0, 1.0, 2.0, 3.0], 3)
    check(dispatch=traces.quotas(shares), collect=traces.wait_for(3))


def ones(arrivals):
    return arrivals.used.astype(float)


def collection(receive, weigh=ones, **fields):
    """A rule whose runs are each a fresh `receive()`."""
    return Collection("mine", lambda n_workers: Collector(receive()), weigh, **fields)


def every(count, remembered=None):
    """Steps with every `count`-th arrival; counts in `remembered`, or in a list of the run."""

    def start(n_workers):
        seen = [] if remembered is None else remembered

        def receive(worker, delay):
            seen.append(worker)
            return Verdict.KEEP if len(seen) % count else Verdict.STEP

        return Collector(receive)

    return start


def own(count, **fields):
    return Collection("mine", every(count), lambda a: a.used / count, **fields)


def test_good_rules_of_ones_own_pass():
    check(collect=own(3))
    check(collect=own(3, period=3))
    check(collect=own(2, holds_back=True))
    check(dispatch=Dispatch("back", lambda n, key: lambda who: [*who]))

    def observing(n_workers, key):
        longest = [0.0]

        def answer(deliverers):
            return [int(longest[0]) % n_workers for _ in deliverers]

        def observe(worker, duration):
            longest[0] = max(longest[0], duration)

        answer.observe = observe
        return answer

    check(dispatch=Dispatch("by the longest", observing))


def warming_up(seen):
    """Throws the first five gradients away, of all runs together."""

    def receive(worker, delay):
        seen.append(worker)
        return Verdict.DROP if len(seen) <= 5 else Verdict.STEP

    return Collection("mine", lambda n_workers: Collector(receive), ones)


def remembering_dispatch():
    turn = [0]

    def start(n_workers, key):
        def answer(deliverers):
            turn[0] += 1
            return [turn[0] % n_workers for _ in deliverers]

        return answer

    return Dispatch("in turn", start)


def random_dispatch(is_random):
    def start(n_workers, key):
        return traces.uniformly().start(n_workers, key)

    return Dispatch("drawn", start, is_random=is_random)


def of_numpy():
    generator = np.random.default_rng(0)
    return Dispatch(
        "drawn", lambda n, key: lambda who: generator.integers(n, size=len(who)).tolist()
    )


def foreseeing(arrivals):
    return arrivals.used / len(arrivals.used)


def reset_by_start():
    """The same list for all runs, emptied by each: right as long as one run is open at a time."""
    seen = []

    def start(n_workers):
        seen.clear()
        return every(3, seen)(n_workers)

    return Collection("mine", start, ones)


BROKEN = {
    "no verdict": (
        {"collect": collection(lambda: lambda worker, delay: True)},
        r"got TypeError: receive of the rule 'mine' must answer with a Verdict, got True",
    ),
    "weights of what is dropped": (
        {
            "collect": replace(
                traces.ringmaster(2), name="mine", weigh=lambda a: np.ones(len(a.used))
            )
        },
        r"weigh of the rule 'mine' must give 0 to gradients that are not used, got 1",
    ),
    "weights that are NaN": (
        {
            "collect": collection(
                lambda: lambda w, d: Verdict.STEP, lambda a: np.full(len(a.delay), np.nan)
            )
        },
        r"got ValueError: weigh of the rule 'mine' must be .*, got nan",
    ),
    "a worker who is not there": (
        {"dispatch": Dispatch("next", lambda n, key: lambda who: [one + 1 for one in who])},
        r"the dispatch rule 'next' must answer .* workers of 0 \.\. 3, got \[4\]",
    ),
    "too few workers": (
        {"dispatch": Dispatch("none", lambda n, key: lambda who: [])},
        r"must answer 1 deliverers with as many workers of 0 \.\. 3, got \[\]",
    ),
    "a rule that fails": (
        {"dispatch": Dispatch("mine", lambda n, key: lambda who: [{}["speed"]])},
        r"dispatch 'mine', .* with equal workers, got KeyError: 'speed'",
    ),
    "a state that is kept": (
        {"collect": warming_up([])},
        r"'mine' must make the same trace twice .* `start` opens, got (used|steps) of arrival \d",
    ),
    "a state that runs share": (
        {"collect": reset_by_start()},
        r"collection 'mine' must keep what it remembers in the run .* two runs that are open",
    ),
    "a dispatch that goes on": (
        {"dispatch": remembering_dispatch()},
        r"dispatch 'in turn'.* (the same trace twice|what it remembers in the run)",
    ),
    "numbers that no key draws": (
        {"dispatch": of_numpy()},
        r"dispatch 'drawn', .* must make the same trace twice with exponential times",
    ),
    "a key that is not told of": (
        {"dispatch": random_dispatch(False)},
        r"dispatch 'drawn' must not look at the key, since it says it is not random, got",
    ),
    "weights that look ahead": (
        {"collect": Collection("mine", every(1), foreseeing)},
        r"must decide without what comes later: a trace of 20 updates .* got weight of arrival 0",
    ),
    "rows that look ahead": (
        {
            "collect": replace(
                traces.table(),
                name="mine",
                reuse=lambda a: (rows := traces.table().reuse(a))._replace(
                    weight=rows.weight / np.float32(len(a.used))
                ),
            )
        },
        r"'mine' must decide without what comes later.* got another weight of arrival",
    ),
    "another period": (
        {"collect": own(3, period=2)},
        r"what it answers one arrival at a time .*, got (steps|\d+ arrivals)",
    ),
    "another deliverer": (
        {
            "dispatch": Dispatch(
                "backwards",
                lambda n, key: lambda who: [n - 1 - one for one in who],
                answers_deliverer=True,
            ),
        },
        r"dispatch 'backwards'.* what it answers one arrival at a time",
    ),
    "another deliverer, never used": (
        {
            "dispatch": Dispatch("first", lambda n, key: lambda who: [0], answers_deliverer=True),
            "collect": traces.wait_for(1),
            "n_workers": 2,
        },
        r"the dispatch rule 'first' must hand each deliverer the next job, .* got \[0, 0\]",
    ),
    "never stuck": (
        {
            "collect": Collection(
                "mine",
                lambda n: every(2)(n)._replace(is_stuck_without=lambda workers: False),
                ones,
            )
        },
        r"is_stuck_without of the rule 'mine' must be True for all 4 workers, got False",
    ),
    "serves otherwise": (
        {"collect": replace(traces.table(), serves=lambda n: lambda w, d, v: [(0, 1.0)])},
        r"serves of the rule '.*' must give what reuse gives: in step \d+ with",
    ),
    "never a step": (
        {"collect": collection(lambda: lambda worker, delay: Verdict.DROP)},
        r"must make 40 updates with equal .* StalledError",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_told(name):
    fields, words = BROKEN[name]
    with pytest.raises(AssertionError, match=words):
        check(**fields)
