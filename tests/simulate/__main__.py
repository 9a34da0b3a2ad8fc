"""`python -m tests.simulate --seeds 1000`: simulation tests by hand.

    --seeds N    how many, from --start S
    --traces     traces only, thousands a minute; --quick: also of few kinds of clocks
    --only-runs  every seed runs something
    --seed K     this one alone, with all that it draws

A failing seed is told with all that it drew and the command that repeats it; then the next goes on.
The exit status is 1 if any has failed.
"""

import argparse
import os
import sys

# Most of the time is compilation, and most of that optimisation.
_FLAGS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
}


def main() -> int:
    """Reads the arguments, runs the seeds, and tells."""
    parser = argparse.ArgumentParser(prog="tests.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--most-failures", type=int, default=-1)
    levels = parser.add_mutually_exclusive_group()
    for level in ("traces", "quick", "only-runs"):
        const = level.replace("-", " ")
        levels.add_argument(f"--{level}", dest="level", action="store_const", const=const)
    given = parser.parse_args()
    for name, value in _FLAGS.items():
        os.environ.setdefault(name, value)

    from tests.simulate.campaign import run_seed, run_seeds

    level = given.level or "runs"
    flag = "" if given.level is None else f" --{level.replace(' ', '-')}"
    command = "python -m tests.simulate" + flag

    def tell(outcome):
        if outcome.kind == "failed":
            print(f"FAILED {outcome.message}\n  {outcome.drawn}\n  {command} --seed {outcome.seed}")

    if given.seed is not None:
        outcome = run_seed(given.seed, level)
        print(
            f"{outcome.kind} {outcome.message}\n  {outcome.drawn}\n  {command} --seed {given.seed}"
        )
        return outcome.kind == "failed"
    seeds = range(given.start, given.start + given.seeds)
    report = run_seeds(seeds, level, tell, given.most_failures)
    print(report)
    return bool(report.failed)


if __name__ == "__main__":
    sys.exit(main())
