"""The tree of the decision page on made-up numbers of which the right tree is known."""

import itertools

import numpy as np
import pytest

from asyncjax import storage
from asyncjax.whatif.advising import advise
from experiments.matrix import decision, decision_facts, decision_report, decision_tree, methods
from experiments.matrix.decision_tree import Fork, Leaf, Question, Workers, leaf_of, leaves

LAWS = {
    "even": Workers(1.0, False),
    "spread": Workers(0.62, True),
}
INSTANCES, HORIZON = 10, 400.0


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


def numbers(truth=truth, seed=0, spread=0.1):
    """Both sets, with times that vary from instance to instance."""
    generator, sets = np.random.default_rng(seed), {}
    for letter in ("A", "B"):
        scenes = {}
        for uneven, skew, noise, link in itertools.product(
            LAWS, ("alike", "slow hold labels"), ("low", "high"), ("free", "dear")
        ):
            own = generator.normal(size=INSTANCES)  # what an instance is to all methods
            methods = {}
            for name, mean in truth(uneven, skew, noise, link).items():
                times = mean * np.exp(spread * (own + generator.normal(size=INSTANCES)))
                cut = np.where(times > HORIZON, np.inf, times)
                methods[name] = {
                    "knobs": {"step": 0.5 if noise == "high" else 2.0},
                    "trials": 8,
                    "tuning_gradients": 1000,
                    "at_edge": [],
                    "times": {"0.5": (cut / 3).tolist(), "0.8": cut.tolist(), "0.95": cut.tolist()},
                    "gap": [0.01] * INSTANCES,
                }
            scenes[f"{uneven}, {skew}, noise {noise}, link {link}"] = {
                "uneven": uneven, "skew": skew, "noise": noise, "link": link,
                "problem": "made up", "horizon": HORIZON, "methods": methods,
            }  # fmt: skip
        sets[letter] = {"settings": {"instances": INSTANCES}, "scenes": scenes}
    return sets


def scenes(sets):
    return {letter: decision_tree.scenes_of(own, LAWS) for letter, own in sets.items()}


@pytest.fixture(scope="module")
def sets():
    return scenes(numbers())


@pytest.fixture(scope="module")
def tree(sets):
    return decision_tree.tree_of(sets["A"])


def test_the_tree_is_the_one_that_is_known(sets, tree):
    for letter, scene in ((letter, scene) for letter, own in sets.items() for scene in own):
        if scene.busy > 0.9:
            right = "local SGD" if scene.link else "synchronous"
        else:
            right = "Rescaled" if scene.skew else "pure"
        assert leaf_of(tree, scene).method == right, (letter, scene.name)
    assert len(leaves(tree)) == 4
    assert tree.question == Question("busy", 0.79, (0.62, 1.0))


def test_where_nothing_matters_there_is_no_question():
    same = {"synchronous": 100.0, "pure": 100.0, "table": 100.0}
    own = scenes(numbers(lambda *answers: same))
    tree = decision_tree.tree_of(own["A"])
    assert isinstance(tree, Leaf)
    assert tree.method == "synchronous"


def test_a_question_that_is_not_told_to_gain_goes():
    """Half of a per mille of a gain, which goes, and a large one, which stays."""

    def little(uneven, skew, noise, link):
        return {"synchronous": 100.0, "pure": 99.95 if skew == "alike" else 100.05}

    assert isinstance(decision_tree.tree_of(scenes(numbers(little))["A"]), Leaf)

    def much(uneven, skew, noise, link):
        return {"synchronous": 100.0, "pure": 80.0 if skew == "alike" else 120.0}

    sure = decision_tree.tree_of(scenes(numbers(much, spread=0.1))["A"])
    assert isinstance(sure, Fork)
    assert sure.question.what == "skew"
    single = {"synchronous": 100.0, "pure": 90.0}  # the same in all scenes
    assert decision_tree.tree_of(scenes(numbers(lambda *a: single))["A"])[0] == "pure"


@pytest.mark.slow
def test_where_noise_makes_a_question_the_other_set_does_not_confirm_it():
    """Instances that vary by a factor of four, and nothing that matters: some trees have questions.

    So many groups are tried that a sure interval in one of them is no proof.
    """
    same = {"synchronous": 100.0, "pure": 100.0}
    asked = []
    for seed in range(24):
        both = scenes(numbers(lambda *answers: same, seed, spread=1.0))
        tree = decision_tree.tree_of(both["A"])
        if isinstance(tree, Fork):
            asked.append(decision_facts.worth_of(tree, both).asked[0][1])
    assert len(asked) <= 24 // 3
    assert sum(saved.low > 1 for saved in asked) <= 1


def test_the_other_way_round_gives_the_other_tree(sets):
    """Slow workers that hold labels are good for pure and bad for Rescaled: the leaves swap."""

    def swapped(uneven, skew, noise, link):
        own = truth(uneven, skew, noise, link)
        return {**own, "pure": own["Rescaled"], "Rescaled": own["pure"]}

    tree = decision_tree.tree_of(scenes(numbers(swapped))["A"])
    found = {leaf_of(tree, s).method for s in sets["A"] if s.skew and s.busy < 0.9}
    assert found == {"pure"}


def test_gains_are_those_of_the_set_that_chose_nothing(sets, tree):
    facts = decision_facts.facts_of(tree, sets)
    for own in facts:
        group = [scene for scene in sets["B"] if scene.name in own.leaf.scenes]
        by_hand = np.exp(np.mean([s.logs("synchronous") - s.logs(own.leaf.method) for s in group]))
        assert own.over_synchronous.value == pytest.approx(by_hand)
        assert own.over_synchronous.low <= by_hand <= own.over_synchronous.high
        assert own.over_synchronous != own.chosen_on or own.leaf.method == "synchronous"
        assert own.leaf.method not in (*own.level_with, *own.faster)
    (rescaled,) = (own for own in facts if own.leaf.method == "Rescaled")
    assert rescaled.over_synchronous.value == pytest.approx(2.0, rel=0.1)
    assert rescaled.arrived == 1.0
    assert rescaled.wrong["pure"].value == pytest.approx(HORIZON / 150, rel=0.1)  # never there
    assert rescaled.knobs == {"step": (0.5, 2.0)}
    (rounds,) = (own for own in facts if own.leaf.method == "synchronous")
    assert rounds.over_synchronous == (1.0, 1.0, 1.0)
    assert rounds.wrong["local SGD"].value == pytest.approx(2.0, rel=0.1)
    assert "pure" in rounds.level_with


def test_an_advantage_of_set_a_alone_is_not_a_gain():
    """A method that is luckily fast in set A is recommended, and set B says what it is worth."""
    lucky, fair = numbers(), numbers(seed=1)
    for scene in lucky["A"]["scenes"].values():
        scene["methods"]["table"]["times"]["0.95"] = [20.0] * INSTANCES
    both = scenes({"A": lucky["A"], "B": fair["B"]})
    tree = decision_tree.tree_of(both["A"])
    (own,) = decision_facts.facts_of(tree, both)
    assert own.leaf.method == "table"
    assert own.chosen_on.low > 4
    assert own.over_synchronous.high < 1
    assert {"pure", "Rescaled"} <= set(own.faster)
    worth = decision_facts.worth_of(tree, both)
    assert worth.agreeing == 0
    assert worth.over["the tree of set B"].high < 1


def test_the_whole_tree_is_compared_with_one_method_everywhere(sets, tree):
    worth = decision_facts.worth_of(tree, sets)
    assert worth.over["synchronous everywhere"].low > 1.3
    assert worth.over["the tree of set B"] == (1.0, 1.0, 1.0)
    assert worth.agreeing == worth.scenes == 16
    assert [question.what for question, _ in worth.asked] == ["busy", "skew", "link"]
    for _, saved in worth.asked:
        assert saved.low > 1.05  # every question is one that matters
    assert worth.over["the tree without effort"] == (1.0, 1.0, 1.0)


def test_scenes_that_are_not_understood_are_refused():
    own = numbers()["A"]
    name, scene = next(iter(own["scenes"].items()))
    with pytest.raises(ValueError, match="link must be one of free, dear, got 'slow'"):
        decision_tree.scenes_of({"scenes": {name: {**scene, "link": "slow"}}}, LAWS)
    with pytest.raises(ValueError, match=r"uneven must be one of .*, got 'odd'"):
        decision_tree.scenes_of({"scenes": {name: {**scene, "uneven": "odd"}}}, LAWS)
    scene["methods"]["pure"]["times"]["0.95"] = [1.0] * 3
    with pytest.raises(ValueError, match="equally many instances, got \\[3, 10\\]"):
        decision_tree.scenes_of(own, LAWS)
    with pytest.raises(ValueError, match="one or more"):
        decision_tree.tree_of([])


def test_the_page_and_what_whatif_reads_are_one_tree():
    text, advice = decision.made(numbers(), LAWS)
    assert decision_report.outline(decision_tree.tree_of(scenes(numbers())["A"])) in text
    for skew, link in itertools.product((True, False), repeat=2):
        known = {"busy": 0.5, "lasting": True, "skew": skew, "link": link}
        (hint,) = advise._walk(advice["tree"], known)
        assert hint.method == ("Rescaled" if skew else "pure asynchronous")
        gain = "{:.2f} ({:.2f} to {:.2f})".format(*hint.over_synchronous)
        assert f"| {hint.method.split()[0]} | {gain} |" in text
        assert hint.sentence
    (hint,) = advise._walk(advice["tree"], {**known, "busy": 0.9, "link": False})
    assert hint.method == "synchronous"


def test_every_method_can_be_had_and_has_its_place_in_simplicity():
    default = {name for name, method in methods.METHODS.items() if method.default}
    assert default <= set(decision_report.CALLS)
    assert default <= set(decision_tree.SIMPLICITY)


@pytest.mark.slow
def test_the_page_and_whatif_say_what_the_committed_numbers_give():
    text, advice = decision.committed()
    page = decision.PAGE.read_text(encoding="utf-8")
    assert decision.placed(page, text) == page
    assert storage.load_json(decision.FILE) == advice
