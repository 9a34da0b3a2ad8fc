"""Makes figures and tables of the five papers again.

    python -m experiments.papers                          what there is
    python -m experiments.papers cd_grab                  all figures of a paper
    python -m experiments.papers cd_grab.herding          one of them
    python -m experiments.papers all --quick              all, each in about a minute
    python -m experiments.papers delay_adaptive.text --data rcv1_train.binary

Numbers and pictures go to `output/papers`; with `--commit` also to where `docs/papers.md` reads
them.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from experiments.papers import figure


@dataclass(frozen=True)
class Settings(figure.Options):
    """What is made."""

    name: Annotated[str, tyro.conf.Positional] = ""  # a paper, paper.figure, or all
    output: Path = Path("output/papers")
    commit: bool = False  # also write what the page is made of


def main() -> None:
    """Makes what is asked for; without a name, lists what there is."""
    settings = tyro.cli(Settings, description=__doc__)
    if not settings.name:
        for name in figure.PAPERS:
            of = figure.paper(name)
            print(f"{name}: {of.title}")
            for one in of.figures:
                print(f"    {name}.{one.name}: {one.there}")
        return
    for of, one in figure.named(settings.name):
        began = time.perf_counter()
        found = figure.make(of, one, settings, settings.output, commit=settings.commit)
        print(f"{of.name}.{one.name}: {found.ours} ({found.near})")
        picture = settings.output / f"paper_{of.name}_{one.name}.png"
        print(f"    {picture}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
