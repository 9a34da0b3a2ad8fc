"""Final models of the golden rows: Quadratic(6, 3) from ones, plain SGD with step 0.05, six decimals."""

import numpy as np
import optax
import pytest

from asyncjax import problems, simulation
from tests.oracles.problems import quadratic_data
from tests.traces.test_golden import ROWS, make

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
    "fresh 3": (-0.643763, -0.094908, 0.682515),
    "per worker 1.2": (0.275366, 0.122553, 0.277179),
    "fresher than 5": (-0.446697, -0.126980, 0.561520),
    "fresher than 5, cancel": (-0.446697, -0.126980, 0.561520),
}


@pytest.mark.parametrize("name", FINAL)
def test_the_final_model_is_the_golden_one(name, float64):
    arguments, n_updates, *_ = ROWS[name]
    problem = problems.quadratic(*quadratic_data(6, 3))
    run = simulation.replay(problem, make(n_updates, **arguments), optax.sgd(0.05))
    np.testing.assert_allclose(run.params, FINAL[name], rtol=0, atol=6e-7)
