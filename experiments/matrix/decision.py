"""Which method where: a tree made from the committed matrix, for a page and for `whatif`.

`python -m experiments.matrix.decision` prints it; with `--write` it puts it between the two marks
of `docs/which_rule.md` and into the file that `asyncjax.whatif` reads. A test compares both.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import storage
from asyncjax.study import scenes
from asyncjax.study.protocol import SET_A, seeds_of
from asyncjax.whatif.advising.advise import FILE
from asyncjax.whatif.advising.questions import is_lasting
from experiments.common import numbers
from experiments.matrix.decision_facts import facts_of, worth_of
from experiments.matrix.decision_report import advice_of, page_of
from experiments.matrix.decision_tree import LEVEL, Workers, scenes_of, tree_of

NAME = "matrix"
COMMAND = "python -m experiments.matrix.decision --write"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "which_rule.md"
BEGIN, END = "<!-- made by experiments.matrix.decision -->", "<!-- end of what is made -->"
INSTANCES, JOBS = 20, 400


def law_of(uneven: str) -> Workers:
    """How uneven the workers of a law are: the mean over instances of set A, links left out.

    Example:
        >>> law_of("recorded")
        Workers(busy=0.523, lasting=True)
    """
    busy, means = [], []
    for one in seeds_of(0, SET_A, INSTANCES):
        clock = scenes.workers(uneven, "free", one)
        times = np.asarray(clock.durations(jax.random.key(one.noise()), JOBS))
        busy.append(times.mean() / times.max(axis=0).mean())
        means.append(np.sort(times.mean(axis=1)))
    mean = float(np.mean(busy))
    return Workers(round(mean, 3), is_lasting(mean, np.mean(means, axis=0)))


def made(measured: Mapping[str, Any], laws: Mapping[str, Workers]) -> tuple[str, dict[str, Any]]:
    """What stands on the page, and what `whatif` reads.

    Args:
        measured: Sets A and B, as in `matrix.json`.
        laws: How uneven workers are, by the name of their law.
    """
    sets = {letter: scenes_of(measured[letter], laws) for letter in ("A", "B")}
    tree = tree_of(sets["A"])
    facts = facts_of(tree, sets)
    kinds = {own["problem"] for own in measured["B"]["scenes"].values()}
    about = {
        "level": float(LEVEL),
        "problems": " and ".join(sorted(kinds)),
        "workers": scenes.N_WORKERS,
        "instances": facts[0].instances,
        "scenes": len(sets["B"]),
        "command": COMMAND,
        "laws": {name: laws[name].busy for name in laws},
        "what": LAWS,
        "legend": legend(len(sets["B"])),
    }
    return page_of(tree, facts, worth_of(tree, sets), about), advice_of(tree, facts, about)


LAWS = {
    "even": "all alike",
    "spread": "speeds of 1 to 4",
    "straggler": "one ten times slower",
    "by chance": "exponential times: a job that is stopped loses no time",
    "recorded": "a recorded job",
}


def legend(count: int) -> str:
    """What the answers meant where they were measured, in words."""
    low, high = scenes.BATCH["low"], scenes.BATCH["high"]
    return (
        f"`{COMMAND.removesuffix(' --write')}` makes this tree from {count} scenes, all"
        f" combinations of its answers: logistic regression of two Gaussian classes,"
        f" {scenes.N_WORKERS} workers. Labels of their own: half of the workers, the slow ones (a"
        f" straggler alone), hold one class. Noise is high: {high} row{'s' * (high > 1)} a gradient"
        f" and {100 * scenes.FLIPPED:.0f} % of the labels wrong; low: {low} rows and none. The link"
        f" is dear: an exchange takes as long as {scenes.LINK['dear']:g} mean jobs; free: nothing."
    )


def committed() -> tuple[str, dict[str, Any]]:
    """The same from the committed numbers."""
    measured = numbers.load(NAME)
    used = {own["uneven"] for own in measured["A"]["scenes"].values()}
    return made(measured, {name: law_of(name) for name in scenes.UNEVEN if name in used})


def placed(page: str, text: str) -> str:
    r"""The page with another text between its marks.

    Raises:
        ValueError: The marks are not there, once each.

    Example:
        >>> placed(f"# Title\n\n{BEGIN}\n\nold\n\n{END}\n", "new").splitlines()[4]
        'new'
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"page must have the marks {BEGIN} and {END} once each")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}"


def main(arguments: list[str]) -> int:
    """Prints the tree; with `--write` puts it where it is read."""
    if arguments not in ([], ["--write"]):
        print(f"usage: {COMMAND.replace('--write', '[--write]')}, got {' '.join(arguments)}")
        return 2
    text, advice = committed()
    print(text)
    if arguments:
        storage.write_atomically(PAGE, placed(PAGE.read_text(encoding="utf-8"), text))
        storage.save_json(FILE, advice)
        print(f"\n{PAGE}\n{FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
