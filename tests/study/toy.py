"""A small study in a file, as a person writes it: two scenes, four methods, a measure."""

import numpy as np
import optax

from asyncjax import clocks, problems, study, traces

N = 4
SPACE = {"step": study.log_range(2**-5, 1.0, 6)}


def scene_of(slowest):
    def scene(seeds):
        generator = np.random.default_rng(seeds.data)
        rows = generator.normal(size=(24, 3)).astype(np.float32)
        targets = (rows.sum(axis=1) + 1.0 + 0.1 * generator.normal(size=24)).astype(np.float32)
        means = slowest ** np.random.default_rng(seeds.clock).uniform(size=N)
        batch = problems.uniform(2)
        problem = problems.least_squares(rows, targets, n_workers=N, batch=batch)
        return study.Scene(problem, clocks.exponential(means), horizon=20.0, records=20)

    return scene


def plain(settings):
    return optax.sgd(settings["step"])


def walk(scene, settings, seeds):
    """The general form: a random walk towards zero that needs no compiled code."""
    steps = np.random.default_rng(seeds.noise(1)).normal(size=20)
    loss = np.exp(-settings["step"] * np.arange(21)) + 0.01 * np.append(0.0, np.abs(steps))
    return {"time": np.arange(21.0), "loss": loss}


SCENES = {"even": scene_of(1.2), "uneven": scene_of(8.0)}
METHODS = {
    "synchronous": study.Method(traces.Synchronous(N), plain),
    "asynchronous": study.Method(traces.Rule(), plain),
    "buffered": study.Method(
        lambda s: traces.Rule(collect=traces.buffered(s["b"])),
        plain,
        space={"b": study.Knob((2, 4, 8), whole=True)},
    ),
    "walk": study.Method(run=walk),
}
MEASURE = study.time_to("loss", 0.6)
