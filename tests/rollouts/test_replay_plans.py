"""Plans of rollouts: who is drawn by whom, in which slot, until when."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax.rollouts import admission
from asyncjax.rollouts.rollout_runs import plan_rollouts, rounded
from tests.oracles.rollout_runs import policy_of_token
from tests.rollouts.chain import trace_of

RULES = (
    admission.synchronous(),
    admission.budget(1),
    admission.budget(3),
    admission.ready_first(),
    admission.discard(1),
    admission.withhold(2),
)


def planned(trace, longest, width=None):
    return plan_rollouts(trace, longest, np.array([trace.n_steps]), width)


def played(trace, longest, width):
    """Plays a plan by hand: who drew each token of each trained sample."""
    (program, draft_slots), holder = planned(trace, longest, width), {}
    assert width in (None, program.lanes.begin.shape[1])
    drawn = {int(i): [] for i in program.steps.members.ravel()}
    for version, members in enumerate(program.steps.members):
        first, last = program.first_chunk[version : version + 2]
        for chunk in range(first, last):
            seen = set()
            for slot, sample, begin, end in zip(*(c[chunk] for c in program.lanes), strict=True):
                if begin == end:
                    assert slot == draft_slots, "an idle lane has no slot"
                    continue
                assert slot not in seen, "two lanes write to one slot"
                seen.add(slot)
                if begin == 0:
                    assert holder.get(slot) is None, "the slot is not free"
                    holder[slot] = sample
                assert holder[slot] == sample
                assert len(drawn[sample]) == begin, "a token is left out, or drawn twice"
                drawn[sample] += [version] * (end - begin)
        for sample, slot in zip(members, program.slots[version], strict=True):
            assert holder.pop(slot) == sample
            assert len(drawn[sample]) == longest
    assert not holder, "what no step trains is not drawn"
    return drawn


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    rule=st.sampled_from(RULES),
    in_flight=st.booleans(),
    group=st.sampled_from([1, 1, 2]),
    width=st.sampled_from([None, 1, 3, 50]),
    longest=st.sampled_from([1, 2, 5, 16]),
    pause=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 10**6),
)
def test_every_token_is_drawn_by_the_version_that_the_trace_says(
    rule, in_flight, group, width, longest, pause, seed
):
    trace = trace_of(
        rule, in_flight=in_flight, group=group, pause=pause, seed=seed, n_steps=20, slots=12
    )
    drawn = played(trace, longest, width)
    assert sorted(drawn) == np.sort(trace.members.ravel()).tolist()
    for sample, versions in drawn.items():
        assert versions == [policy_of_token(trace, sample, t, longest) for t in range(longest)]


def test_slots_are_as_many_as_samples_that_wait_at_once():
    trace = trace_of(admission.ready_first(), n_steps=60, slots=20)
    program, draft_slots = planned(trace, 5)
    samples = trace.members.ravel()
    turns = np.arange(60)[:, None]
    alive = (trace.start_version[samples] <= turns) & (turns <= trace.step[samples])
    most = int(alive.sum(1).max())
    assert np.unique(program.slots).size == most
    assert most <= draft_slots == rounded(most) <= 1.25 * most


def test_chunks_are_narrower_where_versions_begin_uneven_numbers():
    even = trace_of(admission.synchronous(), batch=8, n_steps=20)
    assert planned(even, 1)[0].lanes.begin.shape[1] == 8
    trace = trace_of(admission.ready_first(), batch=32, n_steps=100, slots=64)
    program, _ = planned(trace, 1)
    assert program.lanes.begin.shape[1] == 16
    lanes = int((program.lanes.end > 0).sum())
    assert lanes == 3200 > 0.8 * int(program.first_chunk[-1]) * 16
