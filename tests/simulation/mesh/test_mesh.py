"""Runs over eight devices are those of one: their bits, their memory, and what travels between."""

import math
import re
from itertools import product

import pytest

pytestmark = pytest.mark.slow


def entries(shape):
    """Entries of an array, from its type in a program: f32[8,24]."""
    return math.prod(int(length) for length in re.findall(r"\d+", shape.partition("[")[2]))


class TestSweep:
    def test_64_runs_have_the_bits_of_one_device(self, fact_of):
        facts = fact_of("sweeps", "equal bits")
        assert len(facts) == 7
        assert all(facts.values()), facts

    def test_nothing_travels_between_even_parts(self, fact_of):
        facts = fact_of("sweeps", "network")
        assert facts["loops"] > 0
        assert facts["collectives"] == []
        assert facts["runs of each device"] == [8] * 8

    def test_a_network_is_equal_to_rounding_and_its_parts_are_sweeps_of_their_own(self, fact_of):
        """A product over fewer runs may be summed in another order by the compiler.

        What each device has is, bit for bit, a sweep over those seeds and step sizes alone.
        """
        facts = fact_of("sweeps", "network")
        assert facts["apart"] <= 2e-6
        assert facts["parts have the bits of sweeps of their own"] == [True] * 8

    def test_what_does_not_divide_is_padded_and_dropped(self, fact_of):
        for name, (shape, apart) in fact_of("sweeps", "uneven").items():
            assert shape == [int(length) for length in name.split()[0].split("x")]
            assert apart <= 1e-6, name

    def test_traces_of_unequal_length(self, fact_of):
        facts = fact_of("sweeps", "unequal")
        assert facts["equal bits"]
        assert facts["3x5"] <= 1e-6

    def test_arguments_may_lie_on_devices_already(self, fact_of):
        assert fact_of("sweeps", "placed") == {"equal": True, "devices": 8}

    @pytest.mark.parametrize("way", ["8 to 1", "1 to 8", "8 to 4"])
    def test_a_checkpoint_resumes_on_other_devices_to_the_same_bits(self, fact_of, way):
        assert fact_of("sweeps", "resumed")[way] == [True, True, True]

    def test_memory_is_limited_on_each_device(self, fact_of):
        one, too_much, enough = fact_of("sweeps", "limited")
        assert "64 run(s)" in one
        assert "8 run(s)" in too_much
        assert enough == "nothing was refused"


KINDS = ["immediate", "buffered", "reused"]
WAYS = ["lanes", "whole models", "split models"]


class TestReplay:
    @pytest.mark.parametrize(
        ("kind", "way", "bits", "tolerance"),
        [(*each, 64, 1e-12) for each in product(KINDS, WAYS)]
        + [("buffered", way, 32, 1e-6) for way in WAYS],
    )
    def test_it_is_the_replay_of_one_device(self, fact_of, kind, way, bits, tolerance):
        assert fact_of("replays", f"{kind}, {way}, {bits} bits") <= tolerance

    def test_gradients_are_gathered_once_a_wave(self, fact_of):
        facts = fact_of("replays", "lanes")
        assert facts["travels"] == [["all-gather", [f"f32[{facts['width']},24]"]]]

    def test_every_buffer_is_split_and_its_rows_are_not(self, fact_of):
        """Params, versions, directions, records, moments; only the last bias, of 10, is whole."""
        facts = fact_of("replays", "buffers")
        parts = facts["parts"]
        assert [part for _, part in parts] == [8.0, 8.0, 1.0, 8.0] * 5, parts
        assert facts["largest array"] == max(entries(shape) for shape, _ in parts) / 8

    def test_no_buffer_is_gathered(self, fact_of):
        """What is put together in a wave is less than the smallest split buffer is in all.

        Beside it, after the waves, one model at a time is, to be judged: its three split leaves.
        """
        facts = fact_of("replays", "buffers")
        gathered = [
            shape for kind, shapes in facts["travels"] for shape in shapes if kind == "all-gather"
        ]
        of_one_model = [shape for shape in gathered if shape.startswith("f32[1,128")]
        assert sorted(of_one_model) == ["f32[1,128,10]", "f32[1,128,128]", "f32[1,128]"]
        others = [entries(shape) for shape in gathered if shape not in of_one_model]
        assert others
        assert max(others) <= 80  # the gradients of a bias that is not split, of all lanes
        kinds = {kind for kind, _ in facts["travels"]}
        assert kinds <= {"all-gather", "all-to-all", "all-reduce"}

    def test_models_and_gradients_of_a_wave_are_exchanged_once(self, fact_of):
        """Three split leaves, there and back."""
        kinds = [kind for kind, _ in fact_of("replays", "buffers")["travels"]]
        assert kinds.count("all-to-all") == 6

    def test_a_checkpoint_resumes_on_other_devices(self, fact_of):
        facts = fact_of("replays", "resumed")
        assert len(facts) == 3
        for went_on, gone, apart in facts.values():
            assert went_on
            assert gone
            assert apart <= 1e-6

    def test_memory_is_stated_for_each_device(self, fact_of):
        facts = fact_of("replays", "limited")
        assert "MemoryError" in facts["one"]
        assert facts["split"] == "nothing was refused"
        assert "MemoryError" in facts["split, less"]

    @pytest.mark.parametrize("way", WAYS)
    def test_a_problem_may_be_traced(self, fact_of, way):
        assert fact_of("replays", "traced")[way] is True

    def test_specs_that_do_not_divide_are_told(self, fact_of):
        told = fact_of("replays", "refused")["uneven"]
        assert told.startswith("IndivisibleError")  # of JAX


EPOCHS = [
    "coordinated",
    "in blocks",
    "several units",
    "prefixes",
    "uneven",
    "no gradients",
    "a network",
    "projected",
]


class TestEpochs:
    @pytest.mark.parametrize("name", EPOCHS)
    def test_they_are_those_of_one_device(self, fact_of, name):
        facts = fact_of("epochs", name)
        assert facts["apart"] <= 2e-6
        assert facts["same orders"]
        assert all(facts["same orders"])

    @pytest.mark.parametrize("name", ["coordinated", "in blocks", "several units", "prefixes"])
    def test_the_balance_is_split_along_d(self, fact_of, name):
        assert fact_of("epochs", name)["parts of the balance"] == 8

    def test_vectors_are_exchanged_and_inner_products_summed(self, fact_of):
        """One exchange of 64 entries a worker; each pair sums one number over the devices."""
        travels = fact_of("epochs", "coordinated")["travels"]
        assert [kind for kind, _ in travels].count("all-to-all") == 1
        assert not [kind for kind, _ in travels if kind == "all-gather"]
        sums = sorted(shapes for kind, shapes in travels if kind == "all-reduce")
        assert sums == [["f32[64]", "f32[]"], ["f32[]"], ["s32[]"]]  # gradient and loss; pair; 0/1

    def test_a_checkpoint_resumes_on_one_device(self, fact_of):
        went_on, gone, apart = fact_of("epochs", "resumed")
        assert went_on
        assert gone
        assert apart <= 2e-6
