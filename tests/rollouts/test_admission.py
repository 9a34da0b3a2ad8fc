"""Rollouts equal a slow loop from the definitions; what each rule promises; what it does not."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks, rollouts, traces
from asyncjax.rollouts import admission
from asyncjax.rollouts.engine import Fate, GenerationLoop
from tests.oracles import rollouts as twin


def backlog(p):
    """How many may wait: any number, or from 3 on."""
    return None if p == 2 else 3 + p


RULES = {
    "synchronous": (lambda p: admission.synchronous(), lambda p: None),
    "one step off": (lambda p: admission.one_step_off(), lambda p: None),
    "budget": (lambda p: admission.budget(p), lambda p: p),
    "first finished": (lambda p: admission.first_finished(p), lambda p: p),
    "in order": (lambda p: admission.in_order(p), lambda p: p),
    "windowed": (lambda p: admission.windowed(p, 2 * p + 1), lambda p: (p, 2 * p + 1)),
    "ready first": (lambda p: admission.ready_first(backlog(p)), lambda p: backlog(p)),
    "discard": (lambda p: admission.discard(p, backlog(p)), lambda p: (p, backlog(p))),
    "withhold": (lambda p: admission.withhold(p), lambda p: p),
}
BUDGETED = ("synchronous", "one step off", "budget", "first finished", "in order", "windowed")
LAW = clocks.lognormal([10.0], sigma=1.0)


def made(rule, *, slots=12, batch=4, n_steps=60, seed=0, lengths=LAW, **rest):
    engine = rollouts.Engine(slots, **{"training_time": 5.0, **rest})
    key = jax.random.key(seed)
    return rollouts.trace(lengths, engine, rule, batch=batch, n_steps=n_steps, key=key)


def compare(trace, samples, steps):
    assert len(trace.start) == len(samples)
    assert trace.n_steps == len(steps)
    columns = {"start": "start", "end": "end", "slot": "slot", "step": "step", "length": "length"}
    columns |= {"start_version": "version", "end_version": "end_version"}
    for name, field in columns.items():
        wanted = np.array([s[field] for s in samples])
        np.testing.assert_allclose(getattr(trace, name), wanted, rtol=1e-12, err_msg=name)
    assert [Fate(f).name.lower() for f in trace.fate] == [s["fate"] for s in samples]
    for name, field in (("step_begin", 0), ("step_end", 1), ("published", 3)):
        wanted = np.array([s[field] for s in steps])
        np.testing.assert_allclose(getattr(trace, name), wanted, rtol=1e-12, err_msg=name)
    assert trace.members.tolist() == [s[2] for s in steps]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(sorted(RULES)),
    parameter=st.integers(0, 3),
    slots=st.integers(1, 7),
    batch=st.integers(1, 4),
    transfer=st.sampled_from([0.0, 0.0, 1.0, 2.5]),
    pause=st.sampled_from([0.0, 0.0, 0.5, 3.0]),
    in_flight=st.booleans(),
    group=st.sampled_from([1, 1, 2]),
    whole=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_traces_equal_the_slow_loop(
    name, parameter, slots, batch, transfer, pause, in_flight, group, whole, seed
):
    rng = np.random.default_rng(seed)
    lengths = rng.exponential(5.0, 2000) + 0.1
    lengths = np.ceil(lengths) if whole else lengths  # ties
    speed = rng.choice([1.0, 2.0], slots)
    rule, plain = RULES[name]
    extra = {"in_flight": in_flight, "group": group, "pause": pause}

    def duration(tokens, slot):
        return 0.5 + tokens * speed[slot]

    def training(tokens):
        return 1.0 + 0.125 * tokens

    times, sizes = (lambda i: lengths[i], duration, training), (slots, batch, 12)
    slow = twin.simulate(*times, *sizes, name, plain(parameter), transfer=transfer, **extra)
    extra |= {"token_time": speed, "overhead": 0.5, "transfer_time": transfer}
    engine = rollouts.Engine(slots, training, **extra)
    loop = GenerationLoop(engine, rule(parameter), batch, 12, lambda i, _: float(lengths[i]))
    if slow is None:
        with pytest.raises(traces.StalledError, match="the rollouts cannot go on"):
            loop.run()
        return
    compare(loop.run(), *slow)


def check_every_sample_has_one_fate(trace):
    """Trained once, waiting, running or thrown away; never younger than nothing."""
    times = np.bincount(trace.members.ravel(), minlength=len(trace.fate))
    assert times.max() == 1
    np.testing.assert_array_equal(times == 1, trace.step >= 0)
    np.testing.assert_array_equal(times == 1, trace.fate == Fate.TRAINED)
    assert np.bincount(trace.fate, minlength=4).sum() == len(trace.start)
    for number, members in enumerate(trace.members):
        assert (trace.step[members] == number).all()
    assert (np.isnan(trace.end) == (trace.fate == Fate.RUNNING)).all()
    assert trace.age.min() >= 0
    assert (trace.end_version >= trace.start_version).all()
    trained = trace.fate == Fate.TRAINED
    assert (trace.end[trained] <= trace.step_begin[trace.step[trained]]).all()


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(sorted(RULES)),
    parameter=st.integers(0, 4),
    slots=st.integers(4, 30),
    batch=st.integers(1, 5),
    times=st.tuples(*[st.sampled_from([0.0, 1.0, 7.0])] * 3),
    in_flight=st.booleans(),
    group=st.sampled_from([1, 1, 3]),
    seed=st.integers(0, 10**6),
)
def test_nothing_is_lost_trained_twice_or_made_anew_by_the_same_seed(
    name, parameter, slots, batch, times, in_flight, group, seed
):
    training, transfer, pause = times
    rest = {"training_time": training, "transfer_time": transfer, "pause": pause}
    rest |= {"in_flight": in_flight, "group": group, "seed": seed, "n_steps": 30}
    made_ = []
    for _ in range(2):
        try:
            trace = made(RULES[name][0](parameter), slots=slots, batch=batch, **rest)
        except traces.StalledError as stalled:
            made_.append(str(stalled))
            continue
        check_every_sample_has_one_fate(trace)
        if name in BUDGETED:
            ahead = {"synchronous": 0, "one step off": 1}.get(name, parameter)
            assert trace.age.mean() <= ahead  # whoever is selected
            if name == "windowed":
                window = 2 * parameter + 1
                assert trace.age.max() <= ((ahead + 1) * batch + window - 2) // batch
        made_.append([np.asarray(column).tobytes() for column in trace])
    assert made_[0] == made_[1]


def test_synchronous_by_hand():
    trace = made(admission.synchronous(), n_steps=200, transfer_time=0.5)
    assert trace.age.max() == 0
    rounds = trace.length[trace.members].max(axis=1) + 5.0 + 0.5
    np.testing.assert_allclose(trace.step_end, np.cumsum(rounds) - 0.5, rtol=1e-9)
    # 12 slots for batches of 4: eight of them never work
    assert set(trace.slot.tolist()) == {0, 1, 2, 3}


def test_without_a_budget_ahead_it_is_synchronous():
    """eta = 0: batches are made of one version each, whatever they are selected by."""
    plain = made(admission.synchronous())
    for rule in (
        admission.budget(0),
        admission.first_finished(0),
        admission.in_order(0),
        admission.windowed(0, 3),
        admission.withhold(0),
    ):
        trace = made(rule)
        np.testing.assert_array_equal(trace.step_end, plain.step_end)
        assert trace.age.max() == 0


@pytest.mark.parametrize("eta", [1, 3])
def test_strict_order_and_withholding_keep_the_bound(eta):
    for rule in (admission.in_order(eta), admission.withhold(eta)):
        assert made(rule, n_steps=300, slots=40).age.max() == eta
    assert made(admission.discard(eta), n_steps=300, slots=40).age.max() <= eta


def test_the_budget_bounds_what_is_ahead_and_not_the_age():
    """The inequality that is often believed, age <= eta, is false: a long sample is overtaken."""
    for rule in (admission.budget(2), admission.first_finished(2)):
        trace = made(rule, n_steps=400, slots=40)
        assert trace.age.mean() <= 2.0 < 10 < trace.age.max()  # what holds is of the mean
        # since so many were started by the time that version v is there
        ahead = np.searchsorted(trace.start, trace.published[:-1], side="left")
        assert (ahead <= (np.arange(len(ahead)) + 3) * 4).all()


def test_one_batch_ahead_and_one_long_sample_by_hand():
    """B = 1, eta = 1, two slots: sample 0 takes 10, all others 1, training takes none."""
    engine, length = rollouts.Engine(2, 0.0), lambda i, _: 1.0 if i else 10.0
    trace = GenerationLoop(engine, admission.budget(1), 1, 11, length).run()
    # samples 1 to 9 end and are trained at 1, ..., 9; at 10 sample 0 is the oldest that is there
    assert trace.members.ravel().tolist() == [*range(1, 10), 0, 10]
    assert trace.age.tolist() == [0, *[0] * 8, 9, 1]
    assert trace.age.mean() <= 1.0


def test_a_window_bounds_the_age_and_the_bound_is_reached():
    for window, oldest in ((1, 2), (2, 3), (5, 3), (6, 4), (10, 5)):
        trace = made(admission.windowed(2, window), n_steps=400, slots=40)
        assert trace.age.max() == oldest == (3 * 4 + window - 2) // 4, window


def test_weights_that_come_in_flight_make_segments():
    trace = made(admission.budget(2), in_flight=True, transfer_time=1.0)
    several = np.flatnonzero(trace.end_version > trace.start_version)
    assert len(several)
    for sample in several[:20].tolist():
        versions, begins = trace.versions_of(sample)
        assert versions[0] == trace.start_version[sample]
        assert begins[0] == trace.start[sample]
        assert (np.diff(begins) >= 0).all()
        assert not begins[-1] > trace.end[sample]
    plain = made(admission.budget(2), transfer_time=1.0)
    np.testing.assert_array_equal(plain.start, trace.start)
    np.testing.assert_array_equal(plain.end_version, plain.start_version)


def test_another_seed_is_another_run_and_more_steps_begin_alike():
    trace, other = made(admission.budget(2), seed=3), made(admission.budget(2), seed=4)
    assert not np.array_equal(trace.length[:50], other.length[:50])
    longer = made(admission.budget(2), seed=3, n_steps=80)
    np.testing.assert_array_equal(longer.members[:60], trace.members)


def test_recorded_lengths_are_drawn_as_they_occur():
    trace = made(admission.budget(2), lengths=[1.0, 1.0, 1.0, 9.0], n_steps=2000, token_time=0.5)
    assert set(trace.length.tolist()) == {1.0, 9.0}
    assert abs(np.mean(trace.length == 9.0) - 0.25) < 0.02  # 8,000 draws: four deviations
    done = trace.fate == Fate.TRAINED
    np.testing.assert_allclose((trace.end - trace.start)[done], 0.5 * trace.length[done], rtol=1e-9)


def test_figures_by_hand():
    # slots 2, batch 2, lengths 3 and 5 in turn by slot, training 1, synchronous: rounds of 6
    engine = rollouts.Engine(2, training_time=1.0, token_time=[3.0, 5.0])
    trace = rollouts.trace([1.0], engine, admission.synchronous(), batch=2, n_steps=10)
    figures = rollouts.summarize(trace)
    assert figures.time == 60.0
    assert figures.trainer_idle == pytest.approx(1 - 1 / 6)
    assert figures.generators_idle == pytest.approx(1 - 8 / 12)
    assert figures.concurrency == pytest.approx(80 / 60)
    assert figures.concurrency_needed == pytest.approx(2 / 1.0 * 4.0)
    assert figures.age_trained == (0.0, 0.0, 0)
    assert figures.long_share == pytest.approx(1.0)
    assert figures.age_of_parts == 0.0


def test_the_age_of_parts_is_that_of_their_segments():
    trace = made(admission.budget(3), in_flight=True, transfer_time=1.0)
    total = 0.0
    for number, members in enumerate(trace.members):
        for sample in members.tolist():
            versions, begins = trace.versions_of(sample)
            took = np.diff(np.append(begins, trace.end[sample]))
            total += float((took * (number - versions)).sum() / took.sum())
    figures = rollouts.summarize(trace)
    assert figures.age_of_parts == pytest.approx(total / trace.members.size)
    assert figures.age_of_parts < figures.age_trained.mean - 0.1
    plain = rollouts.summarize(made(admission.budget(3), transfer_time=1.0))
    assert plain.age_of_parts == plain.age_trained.mean


@pytest.mark.parametrize("name", RULES)
def test_figures_add_up(name):
    trace = made(RULES[name][0](2), n_steps=200, transfer_time=1.0)
    figures = rollouts.summarize(trace)
    assert figures.trained + figures.evicted + figures.waiting + figures.running == len(trace.start)
    assert figures.trained == 200 * 4
    assert figures.age_made.mean + figures.age_queued.mean == pytest.approx(
        figures.age_trained.mean
    )
    assert (figures.evicted > 0) == (name == "discard")
    assert figures.long_share < 0.9 if name == "discard" else figures.long_share > 0.9


def test_lengths_that_are_asked_for_are_asked_once_when_a_sample_begins():
    """With the steps that made its version."""
    asked = []

    def length(sample, loop):
        asked.append((sample, loop.queue.published, len(loop.steps)))
        return 1.0 if sample % 2 else 4.0

    engine = rollouts.Engine(6, training_time=2.0, transfer_time=0.5)
    trace = GenerationLoop(engine, admission.budget(1), 3, 12, length).run()
    samples, versions, steps = zip(*asked, strict=True)
    assert samples == tuple(range(len(trace.start)))
    assert versions == tuple(trace.start_version)
    assert all(version <= step for version, step in zip(versions, steps, strict=True))
    np.testing.assert_array_equal(trace.length, np.where(np.arange(len(asked)) % 2, 1.0, 4.0))
    np.testing.assert_array_equal((trace.end - trace.start)[:3], trace.length[:3])


def test_an_engine_is_a_value():
    engine = rollouts.Engine(2, 5, token_time=np.array([1, 2]), group=np.int64(3))
    assert engine == rollouts.Engine(2, training_time=5.0, token_time=[1.0, 2.0], group=3)
    assert len({engine, rollouts.Engine(2, 5.0), rollouts.Engine(2, 5.0, token_time=1)}) == 2


@pytest.mark.parametrize(
    ("select", "words"),
    [
        (lambda queue: None, "16000 samples ended since|16001 samples ended since"),
        (lambda queue: list(queue.waiting)[:3] or None, "must name 4 samples, each once, got "),
        (lambda queue: [99, 98, 97, 96], "must name samples that wait, got 99"),
    ],
)
def test_a_rule_of_ones_own_that_is_wrong_is_told(select, words):
    with pytest.raises(ValueError, match=words):
        made(admission.Rule("own", lambda queue: True, select))
