"""The story on many workloads: verdicts turn with the numbers, and a stopped run goes on."""

from functools import partial

import numpy as np
import pytest

from asyncjax.study import protocol
from experiments.story import training, workloads
from experiments.story.training import FITTING, PLAIN
from experiments.story.workloads import FITTING_CLAIM, Played, Settings


def fallen(log, power, story, one, task, arm, steps):
    """Losses that fall as a power of those of all plain; the third that are made are stopped."""
    del story, task
    begun = [*(log.read_text().splitlines() if log.exists() else ()), f"{one.instance}{arm}{steps}"]
    log.write_text("\n".join(begun))
    if len(begun) == 3:
        raise KeyboardInterrupt
    noise = 1 + 0.02 * np.random.default_rng(one.instance.noise()).normal()
    rates = [(1.0 if arm == PLAIN.name else power) * min(step, 0.2 / step) for step in steps]
    shares = np.linspace(0.0, 1.0, 20)
    loss = noise * np.exp(-9 * np.outer(rates, shares))
    return {"loss": loss, "time": shares * one.site.budget, "first": np.array(1.0)}


@pytest.mark.slow
@pytest.mark.parametrize(("power", "verdict"), [(2.0, "holds"), (0.5, "does not hold")])
def test_a_small_run_goes_on_where_it_was_and_its_verdict_turns(
    tmp_path, monkeypatch, power, verdict
):
    from tests.experiments.test_story import CREWS, by_hand

    site = by_hand(CREWS, 4.0)

    def played(settings, role, count):
        return [Played(one, 0, site) for one in protocol.seeds_of(settings.seed, role, count)]

    monkeypatch.setattr(workloads, "played", played)
    monkeypatch.setattr(workloads, "_losses", partial(fallen, tmp_path / "log", power))
    monkeypatch.setattr(workloads, "ARMS", {PLAIN.name: PLAIN, FITTING.name: FITTING})
    story = training.Settings(trained=("logistic regression",))
    settings = Settings(tmp_path, instances=3, tuning_instances=1, story=story)
    with pytest.raises(KeyboardInterrupt):
        workloads.study_of(settings)
    result = workloads.study_of(settings)
    begun = (tmp_path / "log").read_text().splitlines()
    assert len(begun) == 1 + len({*begun}) > 7  # none twice but those that were stopped
    assert result.rows["trials"].nunique() == 1
    assert not result.rows["at_edge"].any()
    assert result.verdicts(workloads.CLAIMS) == {FITTING_CLAIM: {"A": verdict, "B": verdict}}
