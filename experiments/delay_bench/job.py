"""How much do optimizers lose when gradients are late?

SGD with momentum, Adam, NAdamW, Lion and Muon, each as optax has it, under delays that are
constant, by stage of a pipeline, or drawn anew for every update. The step size is tuned for every
pair of optimizer and law on seeds that are not reported; grids grow until the best step lies
inside, and become finer until under a law all optimizers have tried as many steps. Whether one
optimizer is ahead of another is said from paired differences: the same seed has the same split,
initial model, batches and delays for all.

`python -m experiments.delay_bench` runs the whole; what is finished is kept in `OUTPUT/cells`. For
a loop of your own see `experiments.delay_bench.bench.delay_bench`.
"""

from experiments.common.parts import Part, run_alone
from experiments.delay_bench import report
from experiments.delay_bench.runs import Settings, checked, run_all


def run(settings: Settings) -> Part:
    """Runs what is missing, writes figures and numbers.

    Raises:
        ImportError: The data of all tasks are missing.
        ValueError: A name is not known, or a number is out of range.
    """
    checked(settings)
    found, texts = run_all(settings)
    if not found:
        raise ImportError("the data of all tasks are missing")
    return report.part(settings, found, texts)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
