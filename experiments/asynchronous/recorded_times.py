"""All methods of the family on the times of real workers.

The recordings come with the library: three training jobs with ten even workers each and a fourth,
uneven one from Alibaba's GPU cluster trace (cluster-trace-gpu-v2020, CC BY 4.0; Xiao et al.,
AntMan, OSDI 2020), and two LLM training jobs (ByteDance-Seed/StragglerAnalysis, Apache-2.0; Lin et
al., OSDI 2025), of which at most ten workers are used. A seed starts somewhere in a recording,
which is cycled, and the mean time of all jobs of a recording is 1. One column is made up: the even
jobs, with the times of half of the workers multiplied by 4.

A small network learns handwritten digits, each worker on its own skewed share of them. All methods
get the same simulated time, the same workers and the same grid of step sizes; the best step is
chosen by the final training loss on some seeds and reported on others.
"""

from experiments.asynchronous import recorded_times_report
from experiments.asynchronous.recorded_times_runs import (
    Settings,
    columns,
    methods,
    run_method,
)
from experiments.common import on_grid
from experiments.common.methods import curvature
from experiments.common.parts import Part, run_alone


def run(settings: Settings) -> Part:
    """Runs all methods on all columns of workers, writes figures and numbers.

    Raises:
        ValueError: A recording is not known.
    """
    every = columns(settings)
    found: dict[str, list[on_grid.Outcome]] = {workers.name: [] for workers in every}
    smoothness: dict[int, float] = {}
    for n in dict.fromkeys(workers.n_workers for workers in every):
        group = [workers for workers in every if workers.n_workers == n]
        problem = on_grid.digits_problem(
            n,
            batch=settings.batch,
            hidden=settings.hidden,
            concentration=settings.concentration,
            seed=settings.seed,
        )
        smoothness[n] = curvature(problem)
        for method in methods(n, smoothness[n]):
            if settings.methods and method.name not in settings.methods:
                continue
            outcomes = run_method(settings, method, problem, group)
            for workers, one in zip(group, outcomes, strict=True):
                found[workers.name].append(one)
            seconds = sum(one.seconds for one in outcomes)
            print(f"{n} workers: {method.name:<24} {seconds:5.1f} s", flush=True)
    return recorded_times_report.part(settings, found, every, smoothness)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
