"""Final models of the golden rows.

Quadratic(6, 3) from ones, plain SGD with step 0.05, six decimals.
"""

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles.problems import logistic_data, quadratic_data
from tests.traces.test_golden import ROWS, RULES, SPEEDS, make, permutations

FINAL = {
    "pure": (-0.278606, -0.105502, 0.326105),
    "random": (-0.041834, -0.129295, 0.128455),
    "shuffled": (0.080972, -0.154070, 0.036726),
    "shuffled, read at start": (0.102604, -0.121372, 0.141741),
    "shuffled once": (0.053325, -0.155585, 0.170121),
    "one open job": (0.066458, -0.085253, 0.131839),
    "pure, wait 2": (-0.269875, -0.074583, 0.358561),
    "shuffled, wait 3": (0.076379, -0.093194, 0.095535),
    "buffered 3": (-0.273608, -0.070647, 0.355602),
    "rennala 3": (-0.643763, -0.094908, 0.682515),
    "malenia 1.2": (0.275366, 0.122553, 0.277179),
    "ringmaster 5": (-0.446697, -0.126980, 0.561520),
    "ringmaster 5, cancel": (-0.446697, -0.126980, 0.561520),
    "table": (0.038108, -0.154522, 0.071515),
}
UPDATES = {
    name: int(sizes.split()[0])
    for name, sizes, *_ in (row.split(";") for row in ROWS.strip().splitlines()[1:])
}
# 100 updates of pure asynchronous dispatch
STEP_RULES = {
    "DC-ASGD": (
        lambda: optax.chain(steps.compensate_delay(0.3), optax.sgd(0.05)),
        (-0.254958, -0.097116, 0.363787),
    ),
    "Koloskova": (  # min(step, 1 / (4 L delay)) = 1 / (8 delay) beyond a delay of 6
        lambda: optax.chain(
            steps.scale_by_concurrency_bound(0.05, concurrency=6, smoothness=2.0), optax.scale(-1.0)
        ),
        (-0.382516, -0.085065, 0.479428),
    ),
    "Mishchenko": (
        lambda: optax.chain(steps.scale_by_staleness("concurrency", n_workers=6), optax.sgd(0.05)),
        (-0.333960, -0.073338, 0.405467),
    ),
}


@pytest.mark.parametrize("name", FINAL)
def test_the_final_model_is_the_golden_one(name, float64):
    problem = problems.quadratic(*quadratic_data(6, 3))
    run = simulation.replay(problem, make(UPDATES[name], **RULES[name]), optax.sgd(0.05))
    np.testing.assert_allclose(run.params, FINAL[name], rtol=0, atol=6e-7)


@pytest.mark.parametrize("name", STEP_RULES)
def test_the_step_rules_lead_to_the_golden_models(name, float64):
    optimizer, final = STEP_RULES[name]
    run = simulation.replay(problems.quadratic(*quadratic_data(6, 3)), make(100), optimizer())
    np.testing.assert_allclose(run.params, final, rtol=0, atol=6e-7)


def test_local_steps_lead_to_the_golden_model(float64):
    problem = problems.quadratic(*quadratic_data(6, 3))
    local = problems.local_steps(problem, n_steps=4, step_size=0.01)
    run = simulation.replay(local, make(40, collect=traces.buffered(2)), optax.sgd(0.05))
    np.testing.assert_allclose(run.params, (-0.267241, -0.014652, 0.344005), rtol=0, atol=6e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "final", "loss"),
    [
        (None, (-0.042521, 0.074072, -0.034809, -0.187661, 0.114036), 0.684048),
        (problems.cyclic(2), (-0.033941, 0.000640, -0.232426, -0.221072, -0.090515), 0.701592),
    ],
    ids=["whole shards", "batches of 2"],
)
def test_shuffled_dispatch_leads_to_the_golden_logistic_model(batch, final, loss, float64):
    features, labels = logistic_data(6, 8, 5)
    problem = problems.logistic(
        features.reshape(-1, 5),
        labels.ravel(),
        n_workers=6,
        nonconvex=0.1,
        batch=batch,
        start=np.ones(5),
    )
    trace = traces.asynchronous(
        clocks.constant(SPEEDS), n_updates=120, dispatch=traces.given(permutations(200))
    )
    run = simulation.replay(problem, trace, optax.sgd(0.25))
    np.testing.assert_allclose(run.params, final, rtol=0, atol=6e-7)
    np.testing.assert_allclose(problem.objective(run.params), loss, rtol=0, atol=6e-7)
    if batch is None:
        norm = np.linalg.norm(jax.grad(problem.objective)(run.params))
        np.testing.assert_allclose(norm, 0.017072, rtol=0, atol=6e-7)
