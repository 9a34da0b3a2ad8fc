"""All rules of the family on the times of real workers.

The recordings come with the library: three training jobs with ten even workers each and a fourth,
uneven one from Alibaba's GPU cluster trace (cluster-trace-gpu-v2020, CC BY 4.0; Xiao et al.,
AntMan, OSDI 2020), and two LLM training jobs (ByteDance-Seed/StragglerAnalysis, Apache-2.0; Lin et
al., OSDI 2025), of which at most ten workers are used. The mean time of all jobs of a recording is
1.

A small network learns handwritten digits, each worker on its own skewed share of them. An instance
draws the shares, the first model, the recording, its workers and the place where it begins. All
rules get the same simulated time, the same workers and as many trials of all their knobs, scored by
the time to the last level on instances that are not shown; two disjoint sets of instances are. A
run that was stopped goes on where it was: what is done is kept in the output folder.
"""

from functools import partial
from typing import Any

from experiments.asynchronous import recorded_times_report
from experiments.asynchronous.recorded_times_runs import Settings, columns, run_column
from experiments.common.lanes import compile_quickly
from experiments.common.parts import Part, run_alone


def run(settings: Settings) -> Part:
    """Runs all rules on all kinds of workers, writes figures and numbers.

    Raises:
        ValueError: A recording is not known.
    """
    found: dict[str, Any] = {}
    for column in columns(settings):
        found[column.name] = run_column(settings, column, partial(print, flush=True))
    return recorded_times_report.part(settings, found)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    compile_quickly()
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
