"""Streaming DiLoCo: the plain loop to rounding, DiLoCo to the bit, one compilation, bytes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.simulation.streaming import _fragments_of
from tests.oracles import streaming
from tests.oracles.worker_states import Moments
from tests.simulation.shared import assert_same, network
from tests.simulation.test_compilations import compiled  # noqa: F401

N, D, RATE, OUTER, MOMENTUM = 4, 7, 0.05, 0.5, 0.75


class AdamW:
    """The oracle's AdamW with its rate."""

    def __init__(self):
        self.moments = Moments(D)

    def step(self, model, gradient):
        return self.moments.step(model, gradient, RATE)


def gradient(x, worker, step, xp=np):
    """Of a quadratic with a minimum of its own for each worker, and a wave that knows the step."""
    entries = xp.arange(float(D))
    return (1 + entries / D) * (x - worker + entries / 3) + 0.1 * xp.sin(step + entries)


def quadratic(shape=None):
    """The same as a problem: a vector, or leaves of several shapes."""
    start = {"b": jnp.ones(1), "w": jnp.ones((3, 2))} if shape is None else jnp.ones(shape)
    unravel = ravel_pytree(start)[1]

    def graded(params, worker, job, key):
        x = ravel_pytree(params)[0]
        return jnp.sum(x**2), unravel(gradient(x, worker, job, jnp))

    return problems.from_gradient(start, graded, n_workers=N)


def stream(problem, **knobs):
    options: dict[str, Any] = {
        "inner": optax.adamw(RATE),
        "outer": optax.sgd(OUTER, MOMENTUM, nesterov=True),
    }
    return simulation.streaming_diloco(problem, **options | knobs)


def rounds(streaming, n_updates, clock=None):
    clock = clocks.constant(np.arange(1.0, N + 1)) if clock is None else clock
    return traces.synchronous(clock, k=N, n_updates=n_updates, load=streaming.load)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


HALVES = np.repeat([0, 1], [4, 3])
BY_LEAF, BY_ROW = np.repeat([1, 0], [1, 6]), np.array([0, 2, 2, 1, 1, 0, 0])


def by_leaf(path):
    return 1 if path[0].key == "b" else 0


def by_row(path):
    return 0 if path[0].key == "b" else [2, 1, 0]


CASES = {
    "one fragment, late": (1, np.zeros(D, int), 4, 3, 0.5),
    "one fragment, a whole round late": (1, np.zeros(D, int), 4, 4, 1.0),
    "two, at once": (2, HALVES, 6, 0, 1.0),
    "two, within a job": (2, HALVES, 6, 2, 0.5),
    "two, with the next message": (2, HALVES, 6, 3, 0.25),
    "two, behind the next message": (2, HALVES, 6, 5, 0.5),
    "two, as late as can be": (2, HALVES, 6, 6, 0.5),
    "by leaf": (by_leaf, BY_LEAF, 4, 1, 0.5),
    "by row of a leaf": (by_row, BY_ROW, 6, 3, 0.75),
    "as many as parameters": (D, np.arange(D), D, 3, 0.5),
}


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_plain_loop(case):
    fragments, labels, n_steps, overlap, adopt = CASES[case]
    problem, n_sent = quadratic(), 2 * (labels.max() + 1) + 3
    knobs = {"n_steps": n_steps, "overlap": overlap, "adopt": adopt}
    streamed = stream(problem, fragments=fragments, **knobs)
    versions, workers = streaming.train(
        np.ones(D), gradient, [AdamW() for _ in range(N)], labels,
        n_sent=n_sent, rate=OUTER, momentum=MOMENTUM, **knobs,
    )  # fmt: skip
    for waves in (True, False):
        trace = rounds(streamed, n_sent)
        run = simulation.replay(streamed.problem, trace, streamed.optimizer, waves=waves)
        np.testing.assert_allclose(flat(run.params), versions[-1], rtol=1e-12, atol=1e-12)
        models = np.array([flat(one) for one in unstacked(run.worker_states.model)])
        if overlap:  # without one, the last fragment is applied where the next job begins
            np.testing.assert_allclose(models, workers, rtol=1e-12, atol=1e-12)
    assert np.abs(np.diff(versions, axis=0)).max(0).min() > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("case", ["two, within a job", "by row of a leaf"])
def test_error_feedback_remembers_by_fragment(case):
    """Each fragment has a residual of its own; one residual for all of them makes the model NaN."""
    fragments, labels, n_steps, overlap, adopt = CASES[case]
    count = labels.max() + 1
    n_sent = 4 * count + 1
    knobs = {"n_steps": n_steps, "overlap": overlap, "adopt": adopt}
    streamed = stream(quadratic(), fragments=fragments, **knobs)
    versions, _ = streaming.train(
        np.ones(D), gradient, [AdamW() for _ in range(N)], labels,
        n_sent=n_sent, rate=OUTER, momentum=MOMENTUM, sender=streaming.LargestWithFeedback, **knobs,
    )  # fmt: skip

    def trained(waves, **given):
        transform = steps.compressed(steps.ef14(steps.top_k(1)), N, **given)
        update = simulation.Update(streamed.optimizer, gradient_transform=transform)
        run = simulation.replay(streamed.problem, rounds(streamed, n_sent), update, waves=waves)
        return flat(run.params)

    for waves in (True, False):
        np.testing.assert_allclose(trained(waves, fragments=int(count)), versions[-1], rtol=1e-12)
    assert np.isnan(trained(True)).all()


def unstacked(rows):
    return [jax.tree.map(lambda leaf, at=i: leaf[at], rows) for i in range(N)]


@pytest.mark.slow
@pytest.mark.parametrize("waves", [True, False])
def test_one_fragment_at_once_is_diloco_to_the_bit(waves):
    inner, adamw, outer = network(8, n_workers=N), optax.adamw(0.01), optax.sgd(0.7, 0.9, True)
    diloco = problems.local_steps(inner, n_steps=4, optimizer=adamw, keep_state=True)
    streamed = stream(inner, n_steps=4, inner=adamw, outer=outer)
    trace = rounds(streamed, 6)
    assert streamed.load == 4
    one = simulation.replay(diloco, trace, outer, waves=waves, record_every=1)
    other = simulation.replay(
        streamed.problem, trace, streamed.optimizer, waves=waves, record_every=1
    )
    assert_same(one.params, other.params)
    assert_same(one.opt_state, other.opt_state)
    assert_same(one.records.loss, other.records.loss)
    assert_same(one.worker_states, other.worker_states.opt_state)


@pytest.mark.slow
def test_steps_overlap_and_share_compile_once_for_a_number_of_fragments(compiled):  # noqa: F811
    problem, clock = quadratic((D,)), clocks.constant(np.ones(N))

    def sweep(fragments, *settings):
        streamed = [
            stream(problem, fragments=fragments, n_steps=h * fragments, overlap=v, adopt=a)
            for h, v, a in settings
        ]
        runs = [
            simulation.replay(one.problem, rounds(one, 6, clock), one.optimizer, record_every=6)
            for one in streamed
        ]
        return np.array([np.asarray(run.params) for run in runs])

    settings = [(h, v, a) for h in (1, 2, 5) for v in range(h + 1) for a in (0.5, 1.0)]
    for fragments in (1, 2, 3):
        sweep(fragments, (4, 2, 0.75))
        before = len(compiled)
        last = sweep(fragments, *settings)
        assert len(compiled) == before
        assert len(np.unique(last.round(6), axis=0)) >= len(settings) - 6  # v = 1 = h and so on


@pytest.mark.slow
def test_single_arrivals_of_uneven_workers_converge():
    problem = problems.quadratic(np.ones((N, D)), np.arange(N)[:, None] * np.ones((N, D)))
    streamed = stream(problem, inner=optax.sgd(0.1), outer=optax.sgd(0.2), n_steps=4, fragments=2)
    clock = clocks.constant([1.0, 1.1, 1.3, 1.2])
    trace = traces.asynchronous(clock, n_updates=400, load=streamed.load)
    run = simulation.replay(streamed.problem, trace, streamed.optimizer)
    assert np.abs(np.asarray(run.params) - 1.5).max() < 0.3


@pytest.mark.parametrize(
    ("fragments", "nbytes"), [(1, (28,)), (2, (16, 12)), (by_leaf, (24, 4)), (by_row, (12, 8, 8))]
)
def test_bytes_are_those_of_the_fragments(fragments, nbytes):
    streamed = stream(quadratic(), fragments=fragments, n_steps=6)
    assert streamed.nbytes == nbytes
    trace = rounds(streamed, 5)
    sent = [N * nbytes[r % len(nbytes)] for r in range(5)]
    assert streamed.sent_bytes(trace).tolist() == np.cumsum(sent).tolist()


@pytest.mark.slow
def test_masks_part_the_model():
    scalar = {"b": jnp.float32(1.0), "w": jnp.ones((2, 3))}
    for fragments in (1, 2, 3, D, by_leaf, by_row):
        model = scalar if fragments is by_leaf else quadratic().params
        cut = _fragments_of(fragments, model)
        masks = [cut.mask(model, jnp.int32(p)) for p in range(cut.count)]
        total = jax.tree.map(lambda leaf, *of: sum(leaf * mask for mask in of), model, *masks)
        assert flat(total).tolist() == [1.0] * D


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_two_levels_are_a_problem_whose_workers_are_regions():
    """All-reduce in regions of two, DiLoCo between: one step, adopted, is a step of all four."""
    inner = problems.quadratic(np.eye(N) + 1, np.arange(N * N).reshape(N, N))

    def of_region(params, region, job, key):
        members = 2 * region + jnp.arange(2)
        of_members = jax.vmap(lambda one: inner.gradient(params, one, job, key))(members)
        return jax.tree.map(lambda rows: jnp.mean(rows, axis=0), of_members)

    regions = problems.from_gradient(inner.params, of_region, n_workers=2)
    two = stream(regions, n_steps=1, inner=optax.sgd(0.1), outer=optax.sgd(1.0))
    clock = clocks.constant(np.ones(N))
    plain = traces.synchronous(clock, k=N, n_updates=9)
    nested = traces.synchronous(clocks.constant(np.ones(2)), k=2, n_updates=9)
    one = simulation.replay(inner, plain, optax.sgd(0.1))
    other = simulation.replay(two.problem, nested, two.optimizer)
    np.testing.assert_allclose(one.params, other.params, rtol=1e-12)
