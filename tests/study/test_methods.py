"""The built-in methods: unique names, spaces that fit, one tiny cell of each."""

import numpy as np
import pytest

from asyncjax import traces
from asyncjax.study.methods import (
    DEFAULTS,
    METHODS,
    POLICIES,
    REFERENCE,
    SERVERS,
    SPACE,
    STEP_RULES,
)
from asyncjax.study.programs import records_of_cell
from asyncjax.study.protocol import TUNING, Seeds
from asyncjax.study.scenes import SCENES, TO_TARGET

SCENE = "spread, slow hold labels, high noise, free links"
SEEDS = Seeds(0, TUNING, 0)


def settings_of(name):
    return METHODS[name].settings(SPACE)


def test_names_are_unique_and_the_defaults_span_all_kinds():
    assert len(METHODS) == len(SERVERS) + len(STEP_RULES) + len(POLICIES) == 44
    assert set(DEFAULTS) <= set(METHODS)
    assert DEFAULTS[0] == REFERENCE
    for kind in (SERVERS, STEP_RULES, POLICIES):
        assert set(kind) & set(DEFAULTS)
    for name, method in METHODS.items():
        assert method.text, name
        assert len({**SPACE, **method.space}) <= 4


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_rule_of_its_settings(name):
    known = SCENES[SCENE](SEEDS).known(settings_of(name))
    rule = METHODS[name].rule_of(known)
    assert isinstance(rule, traces.Rule | traces.Synchronous)
    assert (name in POLICIES) == (isinstance(rule, traces.Synchronous) and rule.k is not None
                                  and not isinstance(rule.k, int))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_method_runs_to_the_horizon(name):
    scene = SCENES[SCENE](SEEDS)
    (records,) = records_of_cell(METHODS[name], settings_of(name), [scene], [SEEDS])
    times = np.asarray(records["time"])
    assert (np.diff(times) >= 0).all()
    assert times[-1] > 0.9 * scene.horizon
    assert TO_TARGET.of(records, scene)["left"] > 0
