"""Asynchronous DiLoCo, measured in two parts.

    language    a small transformer on text: who waits, who does not, outer momentum, DyLU, grace
    gaussians   the problem of the public notebook for asynchronous local SGD

All: `python -m experiments.diloco`, with `--commit` its numbers go where committed ones are; one:
`python -m experiments.diloco.language`, with `--large` a transformer of a million parameters. What
was found is told in `experiments/README.md`.
"""

from dataclasses import dataclass

from experiments.common import parts
from experiments.common.parts import Collection
from experiments.diloco import gaussians, language, pages

COLLECTION = Collection(
    "diloco",
    "Asynchronous DiLoCo, measured",
    "Workers make several steps of AdamW on their own and send how far they went; a server makes"
    " a step with momentum of it. Either it waits for all, or it does not. All ways are tuned on"
    " seeds that are not reported, with as many trials each.",
    (language, gaussians),
)


@dataclass(frozen=True)
class Settings(parts.Settings):
    """Which parts are run."""

    commit: bool = False  # also write the numbers where committed ones are


def run(settings: Settings) -> None:
    """Runs parts and writes one report.

    Raises:
        ValueError: As in `Collection.run`; or numbers are to be committed of other than all parts,
            or of other sizes than the default.
    """
    if settings.commit and (settings.full or set(settings.parts) != set(COLLECTION.parts)):
        raise ValueError("commit must be False unless all parts are run at their default size")
    made = COLLECTION.run(settings)
    if settings.commit:
        pages.commit(made)


def main() -> None:
    """Reads the settings from the command line and runs the parts."""
    import tyro

    run(tyro.cli(Settings, default=Settings(**vars(COLLECTION.settings)), description=__doc__))


if __name__ == "__main__":
    main()
