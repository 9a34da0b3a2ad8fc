"""Verdicts on orders flip with the numbers; committed numbers are those that pages show."""

from pathlib import Path

import numpy as np
import pytest

import experiments
from asyncjax import results
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART, OPEN
from experiments.common import numbers
from experiments.ordering import (
    epoch_costs,
    order_claims,
    ordered_networks_report,
)
from experiments.ordering.epoch_costs import MACHINE
from experiments.ordering.order_claims import (
    BYTES,
    CPU,
    EPOCHS,
    FLOPS,
    LOWER,
    SENT,
    TESTED,
    THAN_ALONE,
    sooner,
)

PAGE = Path(experiments.__file__).parent / "README.md"
COUNT = 6


def around(level: float, seed: int) -> list[float]:
    """Numbers within a few percent of a level."""
    return (level * np.random.default_rng(seed).uniform(0.97, 1.03, COUNT)).tolist()


def network(ratio: float, epochs: float, *, price: float = 2.0) -> dict:
    """A task on which CD-GraB ends at a ratio of D-RR's loss and arrives after some epochs."""

    def run(level: float, when: float, seed: int) -> dict:
        arrives = [around(when * share, seed) for share in (0.1, 0.2, 0.4, 1.0)]
        return {
            "loss": around(level, seed),
            "metric": around(level, seed),
            "epochs": arrives,
            "imbalance": around(1.0, seed),
        }

    sets = {
        which: {
            "D-RR": run(1.0, 18.0, seed),
            "independent": run(1.0, 18.0, seed + 1),
            "CD-GraB": run(ratio, epochs, seed + 2),
        }
        for which, seed in (("A", 1), ("B", 7))
    }
    trial = {"step": 0.1, "trials": 8, "gradients": 80, "searched": [0.05, 0.4], "edges": []}
    aims = {aim: {n: trial for n in sets["A"]} for aim in ("final loss", "arrival")}
    return {
        "sizes": {"epochs": 20, "metric": "test_loss", "parameters": 10, "data": "made", "units": 4}
        | {"batch": 2, "optimizer": "SGD", "instances": COUNT, "authors": ""},
        "prices": {"D-RR": [1.0] * 3, "independent": [price] * 3, "CD-GraB": [price] * 3},
        "tuning": aims,
        "sets": sets,
        "costs": {
            "ratio": {MACHINE: [1.05, 1.2], "one device": [1.1, 2.0]},
            "sent ratio": 1.25,
            "extra over expected": [1.0, 1.1],
        },
    }


def test_the_verdicts_on_networks_flip_by_epoch_and_by_every_price():
    def said(found: dict, claim: str) -> set[str]:
        made = order_claims.network_verdicts({"made": found})
        return {made[which][claim] for which in "AB"}

    ahead = network(0.9, 16.0)
    assert {said(ahead, claim).pop() for claim in (LOWER, THAN_ALONE, TESTED)} == {HOLDS}
    assert said(network(1.1, 16.0), LOWER) == {FAILS}
    assert said(network(1.0, 16.0), LOWER) == {OPEN}
    units = (EPOCHS, FLOPS, BYTES, SENT, CPU)

    def by_unit(**found: dict) -> list[str]:
        made = order_claims.network_conditions(found, "A")
        return [order_claims.verdict(made[sooner(unit, 1.0)]) for unit in units]

    assert by_unit(made=ahead) == [HOLDS, HOLDS, FAILS, FAILS, FAILS]
    assert by_unit(made=network(0.9, 8.0)) == [HOLDS] * 5
    assert by_unit(made=ahead, other=network(0.9, 19.5))[0] == IN_PART


def test_who_never_arrives_counts_as_there_after_twice_the_epochs():
    found = network(0.9, 18.0, price=2.0)
    found["sets"]["A"]["CD-GraB"]["epochs"][3] = [float("inf")] * COUNT
    found["sets"]["A"]["D-RR"]["epochs"][3] = [10.0] * COUNT
    assert np.exp(order_claims.arrival(found, "A", 3, EPOCHS).mean) == pytest.approx(4.0)
    assert np.exp(order_claims.arrival(found, "A", 3, CPU).mean) == pytest.approx(8.0)


def test_sets_that_disagree_are_named():
    found = network(0.9, 16.0)
    found["sets"]["B"]["CD-GraB"]["loss"] = around(1.2, 9)
    differing = order_claims.differing(order_claims.network_verdicts({"made": found}))
    assert differing[LOWER] == (HOLDS, FAILS)


def test_numbers_of_networks_have_what_pages_quote():
    made = ordered_networks_report.numbers({"made": network(0.9, 9.0)})
    own = made["summary"]["made"]
    assert own["ratio"]["A"]["CD-GraB"] == pytest.approx(0.9, rel=0.05)
    assert own["needs"]["B"][EPOCHS] == pytest.approx(0.5, rel=0.05)
    assert made["verdicts"]["A"][LOWER] == HOLDS
    (first, *_) = ordered_networks_report.loss_table(made["tasks"]).rows
    assert first[:2] == ("made", "D-RR")


def lines(table: results.Table) -> str:
    """The rows of a table as pages have it."""
    text = results.as_markdown(table).splitlines()
    return "\n".join(line for line in text if line.startswith("|"))


def test_the_page_shows_the_committed_numbers():
    page = PAGE.read_text()
    found = numbers.load("ordered_networks")
    kept, report = found["tasks"], ordered_networks_report
    main = report.main_claims(found["verdicts"])
    tables = [
        report.loss_table(kept),
        report.price_table(kept),
        report.time_table(kept),
        report.size_table(kept),
        report.verdict_table(main),
    ]
    tables.append(epoch_costs.tpu_table(numbers.load("tpu_costs")["tasks"]))
    for table in tables:
        assert lines(table) in page


def test_committed_verdicts_follow_from_committed_numbers():
    found = numbers.load("ordered_networks")
    assert order_claims.network_verdicts(found["tasks"]) == found["verdicts"]
    tuned = [own["tuning"] for own in found["tasks"].values()]
    for aims in tuned:
        for orders in aims.values():
            assert len({one["trials"] for one in orders.values()}) == 1
            assert not any(one["edges"] for one in orders.values())
