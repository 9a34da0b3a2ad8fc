"""What the matrix says, as conditions on committed numbers, for each of two sets of instances.

A method's *speed-up* in a family of scenes is the time of synchronous SGD over its own: for every
instance the geometric mean over the family's scenes of times that are cut at the horizon, and then
the mean over instances with a bootstrap interval. A time that never came counts as the horizon, so
where synchronous SGD is not there in time a speed-up is a lower bound, and where the method is not,
an upper one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax.study import protocol
from asyncjax.study.statistics import Condition, Difference, Place, paired, ranks, verdict
from experiments.common import numbers as committed
from experiments.matrix.methods import REFERENCE

NAME = "matrix"
TIGHTEST = "0.95"
DOUBT = 0.05
LEVEL_WITH = 1.05  # a method this much faster than synchronous SGD is not called level with it
Facts = Mapping[str, Any]  # of one set: "settings", and "scenes" by name
Where = Callable[[Mapping[str, Any]], bool]
UNEVEN = ("spread", "straggler", "by chance", "recorded")
LASTING = ("spread", "straggler", "recorded")  # the same workers are slow for good


def having(**wanted: Any) -> Where:
    """Scenes with some value, or one of several, of each property.

    Example:
        >>> having(link="dear", uneven=("even", "spread"))({"link": "dear", "uneven": "even"})
        True
    """
    return lambda scene: all(
        scene[name] in ((value,) if isinstance(value, str) else value)
        for name, value in wanted.items()
    )


def logarithms(facts: Facts, method: str, where: Where, level: str = TIGHTEST) -> np.ndarray:
    """Mean over scenes of the logarithm of a method's cut time, float[instances].

    Raises:
        ValueError: No scene is such.
    """
    kept = [
        np.log(protocol.restricted(scene["methods"][method]["times"][level], scene["horizon"]))
        for scene in facts["scenes"].values()
        if where(scene)
    ]
    if not kept:
        raise ValueError("where must hold in at least one scene, got none")
    return np.mean(kept, axis=0)


def apart(
    facts: Facts,
    first: str,
    second: str,
    where: Where,
    level: str = TIGHTEST,
    confidence: float = 0.95,
) -> Difference:
    """The paired logarithm of the first method's time over the second's."""
    one, other = (logarithms(facts, name, where, level) for name in (first, second))
    draws = max(4000, round(21 / (1 - confidence)))
    return paired(one, other, facts["settings"]["seed"], confidence, draws)


def speed_up(
    facts: Facts, method: str, where: Where, level: str = TIGHTEST
) -> tuple[float, float, float]:
    """How many times as fast as synchronous SGD, and the ends of the interval."""
    own = apart(facts, REFERENCE, method, where, level)
    return float(np.exp(own.mean)), float(np.exp(own.low)), float(np.exp(own.high))


def cut(facts: Facts, method: str, where: Where, level: str = TIGHTEST) -> bool:
    """Whether a run of the method in a family of scenes is not there by the horizon."""
    return any(
        time > scene["horizon"]
        for scene in facts["scenes"].values()
        if where(scene)
        for time in scene["methods"][method]["times"][level]
    )


def bound(facts: Facts, method: str, where: Where) -> str:
    """The sign of a speed-up: `>` where only synchronous SGD is cut, `<` where only the method is.

    Where both are, the cuts pull both ways, and it is empty as where none is.
    """
    signs = {(True, False): ">", (False, True): "<"}
    return signs.get((cut(facts, REFERENCE, where), cut(facts, method, where)), "")


def methods_of(facts: Facts) -> tuple[str, ...]:
    """The methods that were run."""
    return tuple(next(iter(facts["scenes"].values()))["methods"])


Asked = Sequence[tuple[str, str, str, Where]]  # text, first and second method, scenes


def _by_workers(first: str, second: str, kinds: Sequence[str], **wanted: Any) -> Asked:
    return [
        (f"{first} before {second}, {kind}", first, second, having(uneven=kind, **wanted))
        for kind in kinds
    ]


def claims(facts: Facts) -> dict[str, tuple[Asked, float]]:
    """The claims: their conditions, and the ratio that the first may have to the second."""
    others = [name for name in methods_of(facts) if name != REFERENCE]
    even, free, dear = having(uneven="even"), having(link="free"), having(link="dear")
    labels = {"skew": "slow hold labels"}
    return {
        "pure is faster than synchronous SGD, whatever the workers": (
            _by_workers("pure", REFERENCE, ("even", *UNEVEN)), 1.0
        ),
        "pure is faster than synchronous SGD where workers are uneven": (
            _by_workers("pure", REFERENCE, UNEVEN), 1.0
        ),
        "pure is faster than synchronous SGD where workers are uneven and data alike": (
            _by_workers("pure", REFERENCE, UNEVEN, skew="alike"), 1.0
        ),
        "synchronous SGD is faster than pure where workers are even": (
            _by_workers(REFERENCE, "pure", ("even",)), 1.0
        ),
        "no method is 5 % faster than synchronous SGD where workers are even": (
            [(f"{REFERENCE} not behind {name}", REFERENCE, name, even) for name in others],
            LEVEL_WITH,
        ),
        "Rescaled is faster than pure where the slow hold labels": (
            _by_workers("Rescaled", "pure", LASTING, **labels), 1.0
        ),
        "pure is faster than Rescaled where data are alike": (
            _by_workers("pure", "Rescaled", LASTING, skew="alike"), 1.0
        ),
        "local steps are faster where links are dear": (
            [
                ("local SGD before synchronous", "local SGD", REFERENCE, dear),
                ("FedBuff with local steps before buffered", "FedBuff, local steps", "buffered",
                 dear),
            ],
            1.0,
        ),
        "local steps are slower where links are free": (
            [
                ("synchronous before local SGD", REFERENCE, "local SGD", free),
                ("buffered before FedBuff with local steps", "buffered", "FedBuff, local steps",
                 free),
            ],
            1.0,
        ),
    }  # fmt: skip


def conditions(facts: Facts) -> dict[str, tuple[Condition, ...]]:
    """The claims that the methods and scenes of a set can say something about, measured.

    A claim of several conditions shares its doubt among them.
    """
    known, made = set(methods_of(facts)), {}
    for claim, (asked, ratio) in claims(facts).items():
        fits = all(
            {first, second} <= known and any(map(where, facts["scenes"].values()))
            for _, first, second, where in asked
        )
        if not fits or not asked:
            continue
        confidence = 1 - DOUBT / len(asked)
        made[claim] = tuple(
            Condition(
                text,
                apart(facts, first, second, where, confidence=confidence),
                float(np.log(ratio)),
            )
            for text, first, second, where in asked
        )
    return made


def verdicts(facts: Facts) -> dict[str, str]:
    """What the numbers of one set say of each claim."""
    return {claim: verdict(parts) for claim, parts in conditions(facts).items()}


def standing(facts: Facts, where: Where) -> tuple[Place, ...]:
    """Places of the methods in a family of scenes, with what the instances can tell of them."""
    logs = {name: logarithms(facts, name, where) for name in methods_of(facts)}
    pairs = max(len(logs) * (len(logs) - 1) // 2, 1)
    level = 1 - DOUBT / pairs
    return ranks(logs, facts["settings"]["seed"], level, max(4000, round(21 * pairs / DOUBT)))


def kept() -> dict[str, Facts]:
    """The committed numbers by the set's letter."""
    return dict(committed.load(NAME))
