"""Figures of PD-ORS, small, against known answers."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import cluster
from asyncjax.results import plots
from asyncjax.study.protocol import SET_A, seeds_of
from experiments.cluster import playing
from experiments.cluster.playing import PD_ORS
from experiments.papers import figure, pd_ors
from experiments.papers.figure import Options

SEEDS = seeds_of(3, SET_A, 2)


def test_the_mix_weights_and_links_of_a_preset_change_nothing() -> None:
    plain = playing.Point(30, 12, 5, preset="ranges")(SEEDS[0]).data.jobs
    weights = tuple(np.where(np.arange(12) % 2 == 0, 1.0, 2.0).tolist())
    size: dict[str, Any] = {"preset": "ranges", "weights": weights, "links": 10}
    same = pd_ors.Place(30, 12, 5, mix=pd_ors.FIRST, **size)(SEEDS[0]).data.jobs
    for one, other in zip(plain, same, strict=True):
        assert np.allclose(one, other, rtol=1e-12)
    other = pd_ors.Place(30, 12, 5, mix=pd_ors.SECOND, **size)(SEEDS[0]).data.jobs
    assert (other.utility[:, 1] == 0).sum() > (plain.utility[:, 1] == 0).sum()
    level = pd_ors.Place(30, 12, 5, preset="ranges", links=1)(SEEDS[0]).data.jobs
    assert np.array_equal(level.link_across, plain.link_inside)


def test_arrivals_follow_their_weights(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("slot,jobs\n0,0\n1,3\n2,1\n")
    weights = pd_ors.pattern(path)
    assert weights == (0, 3, 1)
    jobs = pd_ors.Place(2000, 3, 1, preset="ranges", weights=weights)(SEEDS[0]).data.jobs
    counts = np.bincount(jobs.arrival, minlength=3)
    assert counts[0] == 0
    assert counts[1] / 2000 == pytest.approx(0.75, abs=0.04)


def test_times_of_known_shares() -> None:
    assert pd_ors.slots_of([0.5, 0.5, 0.5, 1.0]) == (2.5, 1, 1)
    assert pd_ors.slots_of([0.0, 0.2, 0.2, 0.4]) == (3.6, 4, 2)


@pytest.mark.slow
def test_shares_done_give_the_mean_time_of_the_outcome() -> None:
    scene = pd_ors.Place(12, 8, 3, preset="balanced")(SEEDS[0])
    for name in ("drf", "fifo"):
        share = pd_ors.finished(pd_ors.RULES[name], scene)
        schedule = playing.scheduled(pd_ors.RULES[name], scene.data)
        outcome = cluster.outcome(schedule, *scene.data[:2])
        assert pd_ors.slots_of(share.tolist())[0] == pytest.approx(outcome.mean_slots_of_all)
        assert share[-1] == pytest.approx(outcome.completed / 12)


@pytest.mark.slow
def test_nobody_beats_the_optimum_and_one_job_alone_has_it() -> None:
    for n_jobs in (1, 5):
        scene = pd_ors.small(n_jobs, 6, SEEDS[1])
        best = scene.numbers["optimum"]
        every = {name: pd_ors.earned(rule, scene) for name, rule in pd_ors.RULES.items()}
        assert 0 < every[PD_ORS] <= best * (1 + 1e-6)
        assert max(every.values()) <= best * (1 + 1e-6)
        if n_jobs == 1:
            assert every[PD_ORS] > 0.6 * best


@pytest.mark.slow
@pytest.mark.parametrize("points", [0, 8])
def test_whole_units_are_feasible_at_gain_1_alone(points: int) -> None:
    """Two machines for two workers and one server each: what is relaxed is whole already."""
    problem = {
        "price": jnp.ones((2, 2)),
        "room": jnp.array([[2.0, 1.0], [2.0, 1.0]]),
        "unit": jnp.eye(2),
        "wanted": jnp.array([4.0, 2.0]),
        "ratio": jnp.array(2.0),
        "batch": jnp.array(10.0),
    }
    gains = jnp.array([0.5, 1.0, 1.5])
    found = pd_ors.feasible(jax.random.key(0), problem, gains, points)
    assert found.tolist() == [False, True, False]
    roomy = problem | {"room": jnp.array([[9.0, 9.0], [9.0, 9.0]])}
    found = pd_ors.feasible(jax.random.key(0), roomy, gains, 16 if points else 0)
    assert found[1:].all()


@pytest.mark.slow
@pytest.mark.parametrize("one", pd_ors.PAPER.figures, ids=lambda one: one.name)
def test_figures_are_measured_at_a_small_size(
    one: figure.Figure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = pd_ors.Place

    def small(*_: int, **how: Any) -> pd_ors.Place:
        how["preset"] = "balanced"  # some jobs finish
        return whole(8, 8, 4, **how)  # of one shape: compiled once

    monkeypatch.setattr(pd_ors, "Place", small)
    path = tmp_path / "jobs.csv"
    path.write_text("slot,jobs\n" + "0,1\n" * 30)
    numbers = one.measure(Options(quick=True, seed=1, data=path))
    words = one.found(numbers)
    assert words.near.startswith("in kind")
    assert "nan" not in words.ours + words.near
    assert plots.png_bytes(one.draw(numbers))
    for runs in numbers.get("runs", {}).values():
        assert np.min(runs[PD_ORS]["utility"]) >= 0
        assert np.max(runs[PD_ORS]["completed"]) <= 8
    if one.name == "arrivals":
        assert [*numbers["runs"]] == ["alternating", "burst", "jobs.csv"]
    if one.name == "optimum":
        every = [known["ratios"].values() for known in numbers["places"].values()]
        assert all(np.max(ratios) <= 1 + 1e-6 for known in every for ratios in known)


@pytest.mark.slow
def test_the_same_seeds_give_the_same_bits() -> None:
    scenes = [pd_ors.Place(8, 8, 4, preset="balanced")]
    rules = {PD_ORS: pd_ors.RULES[PD_ORS], "dorm": pd_ors.RULES["dorm"]}
    first, again = (pd_ors.swept(scenes, rules, SEEDS) for _ in range(2))
    assert first == again
    jobs, machines, n_slots, _ = scenes[0](SEEDS[1]).data
    schedule = cluster.pd_ors(jobs, machines, n_slots=n_slots)
    assert first[PD_ORS]["utility"][0][1] == cluster.total_utility(schedule, jobs)
