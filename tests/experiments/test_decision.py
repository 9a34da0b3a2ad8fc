"""The tree of the decision page on made-up rows of which the right tree is known."""

import itertools

import numpy as np
import pandas as pd
import pytest

from asyncjax import storage
from asyncjax.study.methods import DEFAULTS
from asyncjax.study.result import Result
from asyncjax.study.scenes import COLUMNS, COMPARED
from asyncjax.whatif.advising import advise
from experiments import part
from experiments.matrix import decision
from experiments.matrix.decision import Fork, Leaf, Question, decided, scenes_of, tree_of

LAWS = {"even": {"busy": 1.0, "lasting": False}, "spread": {"busy": 0.62, "lasting": True}}
INSTANCES, HORIZON = 10, 400.0
SETTINGS = {"instances": INSTANCES, "n_workers": 8, "problems": ["made up"], "laws": LAWS}


def truth(uneven, skew, noise, link):
    """The mean time of every method in a scene: this is what a tree should find."""
    even, skewed, dear = uneven == "even", skew != "alike", link == "dear"
    rounds = 100.0 if even else 300.0
    pure = np.inf if skewed and not even else 100.0
    return {
        "synchronous": rounds,
        "pure": pure * (1.02 if even else 1.0),
        "Rescaled": 150.0 if skewed and not even else 130.0,
        "table": 600.0,
        "local SGD": rounds / 2.5 if dear and even else 2 * rounds,
    }


def result_of(truth=truth, seed=0, spread=0.1):
    """Both sets, with times that vary from instance to instance."""
    generator, rows = np.random.default_rng(seed), []
    names = "uneven", "skew", "noise", "link"
    levels = LAWS, ("alike", "slow hold labels"), ("low", "high"), ("free", "dear")
    for letter, *answers in itertools.product("AB", *levels):
        own = generator.normal(size=INSTANCES)  # what an instance is to all methods
        for method, mean in truth(*answers).items():
            times = mean * np.exp(spread * (own + generator.normal(size=INSTANCES)))
            cut = np.where(times > HORIZON, np.inf, times)
            looser = dict.fromkeys(COLUMNS.values(), cut) | {COLUMNS[0.5]: cut / 3}
            rows += [
                {
                    "scene": ", ".join(answers), "set": letter, "instance": at, "method": method,
                    **dict(zip(names, answers, strict=True)),
                    **{name: values[at] for name, values in looser.items()},
                    "horizon": HORIZON, "step": 0.5 if answers[2] == "high" else 2.0,
                }
                for at in range(INSTANCES)
            ]  # fmt: skip
    return Result(pd.DataFrame(rows), COMPARED, SETTINGS)


def tree_for(truth, **options):
    return tree_of(scenes_of(result_of(truth, **options), "A"))


@pytest.fixture(scope="module")
def result():
    return result_of()


@pytest.fixture(scope="module")
def found(result):
    return decided(result)


def test_the_tree_is_the_one_that_is_known(result, found):
    answers, follow = scenes_of(result, "A").answers, decision.followed(found.tree)
    for at, scene in enumerate(answers.itertuples()):
        if scene.busy > 0.9:
            right = "local SGD" if scene.link else "synchronous"
        else:
            right = "Rescaled" if scene.skew else "pure"
        assert follow[at] == right, scene.Index
    assert len(decision.leaves(found.tree)) == 4
    assert found.tree.question == Question("busy", 0.79, (0.62, 1.0))


def test_where_nothing_matters_there_is_no_question():
    same = {"synchronous": 100.0, "pure": 100.0, "table": 100.0}
    tree = tree_for(lambda *answers: same)
    assert isinstance(tree, Leaf)
    assert tree.method == "synchronous"


def test_a_question_that_is_not_told_to_gain_goes():
    """Half of a per mille of a gain, which goes, and a large one, which stays."""

    def little(uneven, skew, noise, link):
        return {"synchronous": 100.0, "pure": 99.95 if skew == "alike" else 100.05}

    def much(uneven, skew, noise, link):
        return {"synchronous": 100.0, "pure": 80.0 if skew == "alike" else 120.0}

    assert isinstance(tree_for(little), Leaf)
    sure = tree_for(much)
    assert isinstance(sure, Fork)
    assert sure.question.what == "skew"
    assert tree_for(lambda *answers: {"synchronous": 100.0, "pure": 90.0})[0] == "pure"


@pytest.mark.slow
def test_where_noise_makes_a_question_the_other_set_does_not_confirm_it():
    """Instances that vary by a factor of four, and nothing that matters: some trees have questions.

    So many groups are tried that a sure interval in one of them is no proof.
    """
    same, asked = {"synchronous": 100.0, "pure": 100.0}, []
    for seed in range(24):
        own = decided(result_of(lambda *answers: same, seed, spread=1.0))
        asked += [saved for _, saved in own.asked[:1]]
    assert len(asked) <= 24 // 3
    assert sum(saved.low > 1 for saved in asked) <= 1


def test_the_other_way_round_gives_the_other_tree(result):
    """Slow workers that hold labels are good for pure and bad for Rescaled: the leaves swap."""

    def swapped(uneven, skew, noise, link):
        own = truth(uneven, skew, noise, link)
        return {**own, "pure": own["Rescaled"], "Rescaled": own["pure"]}

    answers, follow = scenes_of(result, "A").answers, decision.followed(tree_for(swapped))
    slow = np.flatnonzero(answers["skew"] & (answers["busy"] < 0.9))
    assert {follow[at] for at in slow} == {"pure"}


def test_gains_are_those_of_the_set_that_chose_nothing(result, found):
    shown = scenes_of(result, "B")
    for leaf, gain in zip(decision.leaves(found.tree), found.gains, strict=True):
        own = shown.scores(leaf.scenes)
        by_hand = np.exp(np.mean(own["synchronous"] - own[leaf.method]))
        assert gain.over_synchronous.value == pytest.approx(by_hand)
        assert gain.over_synchronous.low <= by_hand <= gain.over_synchronous.high
        assert gain.over_synchronous != gain.chosen_on or gain.method == "synchronous"
        assert gain.method not in (*gain.level_with, *gain.faster)
    (rescaled,) = (gain for gain in found.gains if gain.method == "Rescaled")
    assert rescaled.over_synchronous.value == pytest.approx(2.0, rel=0.1)
    assert rescaled.arrived == 1.0
    assert rescaled.over["pure"].value == pytest.approx(HORIZON / 150, rel=0.1)  # never there
    assert rescaled.knobs == "step 0.5 or 2"
    (rounds,) = (gain for gain in found.gains if gain.method == "synchronous")
    assert rounds.over_synchronous == (1.0, 1.0, 1.0)
    assert rounds.over["local SGD"].value == pytest.approx(2.0, rel=0.1)
    assert "pure" in rounds.level_with


def test_an_advantage_of_set_a_alone_is_not_a_gain():
    """A method that is luckily fast in set A is recommended, and set B says what it is worth."""
    lucky = result_of()
    rows = lucky.rows
    rows.loc[(rows["set"] == "A") & (rows["method"] == "table"), COMPARED] = 20.0
    own = decided(lucky)
    (gain,) = own.gains
    assert gain.method == "table"
    assert gain.chosen_on.low > 4
    assert gain.over_synchronous.high < 1
    assert {"pure", "Rescaled"} <= set(gain.faster)
    assert own.agreeing == 0
    assert own.over["the tree of set B"].high < 1


def test_the_whole_tree_is_compared_with_one_method_everywhere(found):
    assert found.over["synchronous everywhere"].low > 1.3
    assert found.over["the tree of set B"] == (1.0, 1.0, 1.0)
    assert found.agreeing == len(decision.followed(found.tree)) == 16
    assert [question.what for question, _ in found.asked] == ["busy", "skew", "link"]
    for _, saved in found.asked:
        assert saved.low > 1.05  # every question is one that matters
    assert found.over["the tree without effort"] == (1.0, 1.0, 1.0)


def test_the_page_and_what_whatif_reads_are_one_tree(result, found):
    said, advice = decision.facts_of(result), decision.advice_of(result)
    assert said["outline"] == decision.outline(found.tree)
    table = {row[1]: row[2] for row in decision.leaf_table(result).rows}
    known = {"busy": 0.5, "lasting": True}
    for skew, link in itertools.product((True, False), repeat=2):
        (hint,) = advise._walk(advice["tree"], known | {"skew": skew, "link": link})
        assert hint.method == ("Rescaled" if skew else "pure asynchronous")
        gain = "{:.2f} ({:.2f} to {:.2f})".format(*hint.over_synchronous)
        assert table[hint.method.split()[0]] == gain
        assert hint.sentence
    (hint,) = advise._walk(advice["tree"], {"busy": 0.9, "lasting": True, "link": False})
    assert hint.method == "synchronous"


def test_every_method_can_be_had_and_has_its_place_in_simplicity():
    assert set(DEFAULTS) <= set(decision.CALLS)


def test_how_uneven_workers_are_is_what_their_clocks_say():
    laws = part.committed("matrix").facts["laws"]
    assert decision.law_of("recorded") == laws["recorded"]
    assert {name for name, law in laws.items() if law["lasting"]} == {
        "spread",
        "straggler",
        "recorded",
    }


@pytest.mark.slow
def test_whatif_says_what_the_committed_rows_give():
    assert storage.load_json(decision.FILE) == decision.advice_of(part.committed("matrix"))
