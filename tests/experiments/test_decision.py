"""The tree of the decision page on made-up rows of which the right tree is known."""

import itertools

import numpy as np
import pandas as pd
import pytest

from asyncjax import storage
from asyncjax.study.methods import DEFAULTS
from asyncjax.study.result import Result
from asyncjax.study.scenes import COLUMNS, COMPARED, FACTORS
from asyncjax.whatif import advising
from experiments import part
from experiments.matrix import decision
from experiments.matrix.decision import decided
from experiments.matrix.tree import (
    CALLS,
    Fork,
    Leaf,
    Question,
    followed,
    law_of,
    leaves,
    outline,
    scenes_of,
    tree_of,
)

LAWS = {"even": {"busy": 1.0, "lasting": False}, "spread": {"busy": 0.62, "lasting": True}}
INSTANCES, HORIZON = 10, 400.0
SETTINGS = {"instances": INSTANCES, "n_workers": 8, "problems": ["made up"], "laws": LAWS}


def truth(uneven, skew, noise, link):
    """The mean time of every method in a scene: this is what a tree should find."""
    even, skewed, expensive = uneven == "even", skew != "alike", link == "expensive"
    rounds = 100.0 if even else 300.0
    pure = np.inf if skewed and not even else 100.0
    return {
        "synchronous": rounds,
        "pure": pure * (1.02 if even else 1.0),
        "Rescaled": 150.0 if skewed and not even else 130.0,
        "table": 600.0,
        "local SGD": rounds / 2.5 if expensive and even else 2 * rounds,
    }


def result_of(truth=truth, seed=0, spread=0.1, unevens=tuple(LAWS), horizon=HORIZON, letters="AB"):
    """All sets, with times that vary from instance to instance."""
    generator, parts = np.random.default_rng(seed), []
    some = [(name, scene) for name, scene in FACTORS.items() if scene.uneven in unevens]
    for letter, (name, scene) in itertools.product(letters, some):
        alike = generator.normal(size=INSTANCES)  # what an instance is to all methods
        for method, mean in truth(*scene).items():
            times = mean * np.exp(spread * (alike + generator.normal(size=INSTANCES)))
            cut = np.where(times > horizon, np.inf, times)
            head = {"scene": name, "set": letter, "instance": range(INSTANCES), "method": method}
            head |= {**scene._asdict(), **dict.fromkeys(COLUMNS.values(), cut)}
            head |= {COLUMNS[0.5]: cut / 3, "step": 0.5 if scene.noise == "high" else 2.0}
            head |= {"trials": 12, "tuning_gradients": 100, "at_edge": False}
            parts.append(pd.DataFrame(head | {"horizon": horizon}))
    return Result(pd.concat(parts, ignore_index=True), COMPARED, SETTINGS)


def tree_for(truth, **options):
    return tree_of(scenes_of(result_of(truth, **options), "A"))


@pytest.fixture(scope="module")
def result():
    return result_of()


@pytest.fixture(scope="module")
def found(result):
    return decided(result)


def test_the_tree_is_the_one_that_is_known(result, found):
    answers, follow = scenes_of(result, "A").answers, followed(found.tree)
    for at, scene in enumerate(answers.itertuples()):
        even = "local SGD" if scene.link else "synchronous"
        uneven = "Rescaled" if scene.skew else "pure"
        assert follow[at] == (even if scene.busy > 0.9 else uneven), scene.Index
    assert len(leaves(found.tree)) == 4
    assert found.tree.question == Question("busy", 0.79, (0.62, 1.0))


def test_a_question_that_is_not_told_to_gain_goes():
    """Half of a per mille of a gain, which goes, and a large one, which stays."""

    def asked(*pure):
        return tree_for(lambda _, skew, *__: {"synchronous": 100.0, "pure": pure[skew == "alike"]})

    assert tree_for(lambda *_: dict.fromkeys(("synchronous", "pure", "table"), 100.0))[0] == (
        "synchronous"
    )
    assert isinstance(asked(100.05, 99.95), Leaf)
    sure = asked(120.0, 80.0)
    assert isinstance(sure, Fork)
    assert sure.question.what == "skew"
    assert asked(90.0, 90.0)[0] == "pure"


@pytest.mark.slow
def test_where_noise_makes_a_question_other_sets_do_not_confirm_it():
    """Instances that vary by a factor of four, and nothing that matters: some trees have questions.

    So many groups are tried that a sure interval in one of them is no proof; held out it is gone.
    """
    same = {"synchronous": 100.0, "pure": 100.0}
    found = [decided(result_of(lambda *_: same, seed, spread=1.0)) for seed in range(24)]
    asked = [saved for one in found for _, saved in one.asked[:1]]
    assert len(asked) <= 24 // 3
    assert sum(saved.low > 1 for saved in asked) <= 1


def test_gains_of_a_leaf_are_on_all_instances(result, found):
    shown = scenes_of(result)
    assert shown.places.tolist() == INSTANCES * [0] + INSTANCES * [1]
    for leaf, gain in zip(leaves(found.tree), found.gains, strict=True):
        scores, over = shown.scores(leaf.scenes), gain.over_synchronous
        by_hand = np.exp(np.mean(scores["synchronous"] - scores[leaf.method]))
        assert over.value == pytest.approx(by_hand)
        assert over.low <= by_hand <= over.high
        assert gain.method not in (*gain.level_with, *gain.faster)
        assert gain.held_out == pytest.approx(over)  # each set alone names the same methods
    gains = {gain.method: gain for gain in found.gains}
    rescaled, rounds = gains["Rescaled"], gains["synchronous"]
    assert rescaled.over_synchronous.value == pytest.approx(2.0, rel=0.1)
    assert rescaled.over["pure"].value == pytest.approx(HORIZON / 150, rel=0.1)  # never there
    assert (rescaled.arrived, rescaled.knobs) == (1.0, "step 0.5 or 2")
    assert rounds.over_synchronous == (1.0, 1.0, 1.0)
    assert rounds.over["local SGD"].value == pytest.approx(2.0, rel=0.1)
    assert "pure" in rounds.level_with


def lucky(letters):
    """A method that is luckily fast in set A alone."""
    result = result_of(letters=letters)
    is_lucky = (result.rows["set"] == "A") & (result.rows["method"] == "table")
    result.rows.loc[is_lucky, COMPARED] = 5.0
    return result


def test_an_advantage_of_one_set_alone_is_not_a_gain_where_it_chose_nothing():
    """It flatters where it is chosen; held out, set B follows what A says, and A what B says."""
    result = lucky("AB")
    found = decided(result)
    (gain,) = found.gains
    assert gain.method == "table"
    assert gain.over_synchronous.value > 3
    assert found.chosen_on == pytest.approx(gain.over_synchronous)
    data, worth = scenes_of(result), found.over["synchronous everywhere"]
    by_a, by_b = (tree_of(scenes_of(result, letter)) for letter in "AB")
    assert by_a == Leaf("table", tuple(range(16)))
    logs = [data.logs["table"][at, INSTANCES:].mean() for at in range(16)]
    logs += [data.logs[method][at, :INSTANCES].mean() for at, method in followed(by_b).items()]
    expected = np.exp(data.logs["synchronous"].mean() - np.mean(logs))
    assert worth.value == pytest.approx(expected)
    assert worth.value < gain.over_synchronous.value / 3
    assert gain.held_out == pytest.approx(worth)
    assert found.agreeing == (0, 16)


def test_of_four_sets_a_lucky_one_does_not_choose():
    found = decided(lucky("ABCD"))
    assert "table" not in {leaf.method for leaf in leaves(found.tree)}
    assert found.instances == 4 * INSTANCES
    assert found.agreeing == (16, 16)
    assert decision.advice_of(lucky("ABCD"))["about"]["instances"] == 4 * INSTANCES


def test_the_whole_tree_is_compared_with_one_method_everywhere(found):
    assert found.over["synchronous everywhere"].low > 1.3
    assert found.over["synchronous everywhere"] == pytest.approx(found.chosen_on)
    assert found.agreeing == (16, 16)
    assert len(followed(found.tree)) == 16
    assert [question.what for question, _ in found.asked] == ["busy", "skew", "link"]
    assert all(saved.low > 1.05 for _, saved in found.asked)  # every question matters
    assert found.over["the tree without effort"] == (1.0, 1.0, 1.0)


def test_the_page_and_what_whatif_reads_are_one_tree(result, found):
    said, advice = decision.facts_of(result), decision.advice_of(result)
    assert said["outline"] == outline(found.tree)
    table = {row[1]: row[2] for row in decision.leaf_table(result).rows}
    known = {"busy": 0.5, "lasting": True}
    for skew, link in itertools.product((True, False), repeat=2):
        (hint,) = advising._walk(advice["tree"], known | {"skew": skew, "link": link})
        assert hint.method == ("Rescaled" if skew else "pure asynchronous")
        assert table[hint.method.split()[0]] == decision.Ratio(*hint.over_synchronous).text
        assert hint.sentence
    (hint,) = advising._walk(advice["tree"], {"busy": 0.9, "lasting": True, "link": False})
    assert hint.method == "synchronous"


def test_every_method_can_be_had_and_has_its_place_in_simplicity():
    assert set(DEFAULTS) <= set(CALLS)


def test_how_uneven_workers_are_is_what_their_clocks_say():
    laws = part.committed("matrix").facts["laws"]
    assert law_of("recorded") == laws["recorded"]
    lasting = {name for name, law in laws.items() if law["lasting"]}
    assert lasting == {"spread", "straggler", "recorded"}


@pytest.mark.slow
def test_whatif_says_what_the_committed_rows_give():
    assert storage.load_json(decision.FILE) == decision.advice_of(part.committed("matrix"))
