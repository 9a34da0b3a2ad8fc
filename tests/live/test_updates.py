"""What a live server does with an update: views, treated and aggregated gradients, told rows."""

import jax
import numpy as np
import optax
import pytest

from asyncjax import live, simulation, steps, traces
from tests.live.shared import Killed, adam, assert_equal, begun, lived, quadratic, sgd, tree
from tests.live.test_training import RULES
from tests.simulation.loops.test_record_rows import assert_rows_of, assert_same as assert_same_tree

PLAIN, KEY = optax.chain(optax.sgd(0.05, 0.6), steps.remember_update()), jax.random.key(0)
VIEWS = simulation.Update(PLAIN, worker_params=steps.look_ahead(2.0))
MOMENTUM = optax.ema(0.5)
UPDATES = {
    "views": VIEWS,
    **{
        name: simulation.Update(adam(0.1), **treated)
        for name, treated in {
            "its delay": {"gradient_transform": steps.scale_by_staleness("polynomial")},
            "clipped": {"gradient_transform": optax.clip_by_global_norm(1.0)},
            "with a state": {"gradient_transform": steps.ca2fl(4)},
            "median": {"aggregator": steps.median()},
            "both": {"gradient_transform": MOMENTUM, "aggregator": steps.trimmed_mean(0.34)},
        }.items()
    },
}
COLLECT = {"buffered 3": traces.buffered(3), "grace": traces.grace_period(0.5, quorum=2)}


def assert_same(run, other, tolerance=0.0):
    left = [(each.params, each.arrival_state, each.records.loss) for each in (run, other)]
    for one, two in zip(*map(jax.tree.leaves, left), strict=True):
        np.testing.assert_allclose(one, two, rtol=tolerance or 1e-7, atol=tolerance)


def check(update, plain, collect, tolerance):
    """The run is its rerun and its replay, and not that of the plain optimizer."""
    run = lived(update=update, collect=collect)
    again = live.rerun(quadratic(), run.trace, update, key=KEY)
    np.testing.assert_array_equal(run.params, again.params)
    assert_same(run, again)
    replayed = simulation.replay(quadratic(), run.trace, update, key=KEY, waves=False)
    assert_same(run, replayed, tolerance)
    assert np.abs(run.params - lived(update=plain, collect=collect).params).max() > 1e-4


def test_views_are_those_of_a_replay_and_a_rerun():
    check(VIEWS, PLAIN, traces.buffered(2), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("rule", COLLECT)
@pytest.mark.parametrize("name", list(UPDATES)[1:])
def test_a_virtual_run_is_its_replay_and_its_rerun(name, rule):
    check(UPDATES[name], adam(0.1), COLLECT[rule], 1e-4)


def test_a_mean_of_all_is_the_plain_run():
    rest = {"collect": traces.buffered(3), "n_updates": 6}
    mean = simulation.Update(sgd(0.1), aggregator=steps.mean())
    run, plain = lived(update=mean, **rest), lived(update=sgd(0.1), **rest)
    np.testing.assert_allclose(run.params, plain.params, rtol=1e-5)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    "name",
    ["views", *(pytest.param(name, marks=pytest.mark.slow) for name in ("with a state", "both"))],
)
def test_a_killed_run_goes_on_with_what_had_arrived(tmp_path, monkeypatch, name):
    path, rest = tmp_path / "log", {"collect": traces.buffered(3)}
    begun(path, monkeypatch, update=UPDATES[name], **rest)
    run = lived(checkpoint=path, update=UPDATES[name], **rest)
    whole = lived(update=UPDATES[name], **rest)
    assert_equal(run.trace, whole.trace)
    np.testing.assert_array_equal(run.params, whole.params)
    assert_same(run, whole)
    begun(path, monkeypatch, update=UPDATES[name], **rest)
    with pytest.raises(ValueError, match="checkpoint"):
        lived(checkpoint=path, update=PLAIN if name == "views" else None, **rest)


def test_tables_are_refused():
    with pytest.raises(ValueError, match="gradient_transform and aggregator must be None where"):
        lived(collect=traces.table(), update=simulation.Update(sgd(0.1), aggregator=steps.median()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "name"), [*((quadratic, name) for name in RULES), (tree, "pure"), (tree, "ringleader")]
)
def test_rows_are_those_of_the_run_and_change_no_bit(name, make):
    """On a virtual clock, where a run is the same each time."""
    seen = []
    given = {"problem": make(), "update": adam(0.05), "n_updates": 12, **RULES[name]}
    run = lived(execution=simulation.Execution(on_record=seen.append), **given)
    records = run.records
    if "ringleader" in name:  # some wait for a later update, and count in the records all the same
        used = np.array([row.used for row in seen])
        assert (used <= records.used).all()
        records = records._replace(used=used)
    assert_rows_of(records, seen)
    plain = lived(**given)
    for field in ("params", "opt_state", "records"):
        assert_same_tree(getattr(run, field), getattr(plain, field))


def test_rows_come_while_real_workers_work():
    """A model is judged when it is made: the run ends with the error of the function."""
    seen = []

    def tell(row):
        seen.append(row.version)
        if row.version == 4:
            raise Killed

    how = simulation.Execution(on_record=tell)
    with live.threads(2) as workers, pytest.raises(Killed):
        live.train(quadratic(), workers, sgd(0.1), n_updates=10**6, record_every=2, execution=how)
    assert seen == [2, 4]


@pytest.mark.slow
@pytest.mark.usefixtures("often")
def test_a_resumed_run_tells_the_rows_after_its_place(tmp_path):
    first, rest, path = [], [], tmp_path / "run.npz"

    def kill(row):
        first.append(row)
        if len(first) == 4:
            raise Killed

    given = {"update": sgd(0.1), "n_updates": 12, "record_every": 2}
    with pytest.raises(Killed):
        lived(execution=simulation.Execution(on_record=kill, checkpoint=path), **given)
    run = lived(execution=simulation.Execution(on_record=rest.append, checkpoint=path), **given)
    assert_rows_of(run.records, first[:3] + rest)
