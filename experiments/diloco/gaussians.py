"""The public notebook for asynchronous local SGD, reproduced with its own rates.

Four workers of which the slowest takes six times as long as the fastest learn to tell mixtures of
Gaussians apart. What the notebook shows is that Nesterov momentum at the server, which helps the
synchronous server, hurts the asynchronous one at equal numbers of local steps, while without
momentum the asynchronous one is ahead. Nothing is tuned here: rates are the notebook's, and for
delayed Nesterov, which is not in it, the synchronous server's.
"""

from typing import Any

import jax
import numpy as np

from asyncjax import results, storage
from asyncjax.results import plots
from experiments.common.parts import Part, run_alone, written
from experiments.diloco.gaussians_runs import WAYS, Curve, Settings, Way, moments, resolved, train


def run(settings: Settings) -> Part:
    """Runs all ways, writes the figure and the numbers.

    Raises:
        ValueError: A number is out of range.
    """
    settings = resolved(settings)
    for field in ("rows", "hidden", "clusters", "phases", "seeds", "records", "judged"):
        if getattr(settings, field) < 1:
            raise ValueError(f"{field} must be at least 1, got {getattr(settings, field)}")
    folder = settings.output / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    found = {way: measured(settings, way, folder) for way in WAYS}
    picture = ("", figure(found), "Loss against local steps and against simulated time.")
    return written(
        settings.output,
        "diloco_gaussians",
        "Does the public notebook for asynchronous local SGD come out the same?",
        (picture,),
        (table(settings, found),),
        numbers(settings, found),
        in_words(found),
        ("Liu et al. 2024, Asynchronous Local-SGD Training for Language Modeling, 2401.09135",),
    )


def in_words(found: dict[Way, Curve]) -> str:
    """The last losses of both servers, with momentum and without."""
    last = {way.name: float(np.median(curve.loss[:, -1])) for way, curve in found.items()}
    said = []
    for kind in ("Nesterov", "SGD"):
        late, waits = last[f"asynchronous, {kind}"], last[f"synchronous, {kind}"]
        said.append(f"with {kind} {late:.3g} (asynchronous) and {waits:.3g} (synchronous)")
    return f"Median loss after equal local steps: {', '.join(said)}."


def measured(settings: Settings, way: Way, folder: Any) -> Curve:
    """All seeds of a way; a run that was made before is read."""
    made = []
    for seed in range(settings.seed, settings.seed + settings.seeds):
        size = f"{settings.rows}-{settings.clusters}-{settings.hidden}-{settings.phases}"
        name = f"{way.name}, {size}-{settings.records}-{settings.judged}, {seed}"
        path = folder / f"{name}, jax {jax.__version__}.json"
        try:
            losses = storage.load_json(path)
        except (FileNotFoundError, ValueError):
            losses = train(settings, way, seed)
            storage.save_json(path, [list(own) for own in losses])
        made.append(losses)
        print(f"{way.name}: seed {seed}, loss {losses[0][-1]:.4f}", flush=True)
    time, local_steps = moments(settings, way)
    loss, accuracy = (np.array([own[place] for own in made], float) for place in range(2))
    return Curve(time, local_steps, loss, accuracy)


def table(settings: Settings, found: dict[Way, Curve]) -> results.Table:
    """How all ways end."""
    rows = []
    for way, curve in found.items():
        rows.append(
            (
                way.name if way.published else f"{way.name} (not in the notebook)",
                way.rate,
                float(curve.time[-1]),
                results.median_and_spread(curve.loss[:, -1]),
                results.median_and_spread(curve.accuracy[:, -1], smaller_is_better=False),
            )
        )
    names = ("server", "rate on a gradient sent", "seconds", "loss", "accuracy")
    return results.Table(
        tuple(results.Column(name, right=bool(place)) for place, name in enumerate(names)),
        tuple(rows),
        f"After {int(next(iter(found.values())).local_steps[-1]):,} local steps of all workers,"
        f" {settings.hidden} hidden units, {settings.rows:,} rows: simulated time, loss and"
        f" accuracy on {settings.judged:,} training rows, median (quartiles) of {settings.seeds}"
        " seeds.",
    )


def figure(found: dict[Way, Curve]) -> Any:
    """Loss against local steps, and against time."""
    steps, time = [], []
    for way, curve in found.items():
        spread = results.median_and_spread(curve.loss.T)
        values = spread.median, spread.low, spread.high
        steps.append(results.Series(way.name, curve.local_steps, *values))
        time.append(results.Series(way.name, curve.time, *values))
    parts = [plots.Panel("local steps of all workers", steps), plots.Panel("seconds", time)]
    return plots.panels(parts, y_label="loss")


def numbers(settings: Settings, found: dict[Way, Curve]) -> dict[str, Any]:
    """Everything that is shown, as plain values."""
    kept = ("seed", "rows", "hidden", "clusters", "phases", "seeds", "judged")
    return {
        "settings": {name: getattr(settings, name) for name in kept},
        "versions": {"jax": jax.__version__, "numpy": np.__version__},
        "ways": [
            {
                "name": way.name,
                "rate": way.rate,
                "momentum": way.momentum,
                "published": way.published,
                **{name: part.tolist() for name, part in curve._asdict().items()},
            }
            for way, curve in found.items()
        ],
    }


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
