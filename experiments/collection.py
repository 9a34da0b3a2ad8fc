"""Several parts with one report: which are run, where, and what is done already."""

import hashlib
import importlib
import pickle
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import jax

import asyncjax
from asyncjax import results, storage
from asyncjax.results import report
from asyncjax.study.cells import engine_of, spread
from experiments import part as parts
from experiments.part import Part


@dataclass(frozen=True)
class Settings:
    """Which parts of a collection are run."""

    output: Path  # a folder a part, and report.html
    parts: tuple[str, ...]  # which, in which order
    seed: int = 0
    full: bool = False  # larger data and models, more seeds, in the parts that have such a size
    engine: Literal["here", "processes", "ray"] = "here"  # where parts are run; side by side
    workers: int = 2  # of the engine
    address: str = ""  # of a running Ray cluster; empty: a Ray of this machine
    again: bool = False  # also parts that are done, by the same settings and sources


@dataclass(frozen=True)
class Collection:
    """Several parts with one report.

    Attributes:
        name: Of the folder in `output`.
        title: Of the report.
        summary: Its first paragraph.
        modules: The parts; the name of each is that of its folder.
    """

    name: str
    title: str
    summary: str
    modules: Sequence[Any]

    @property
    def parts(self) -> dict[str, Any]:
        """The modules by name."""
        return {module.Settings().output.name: module for module in self.modules}

    @property
    def settings(self) -> Settings:
        """All parts, as they are run by default."""
        return Settings(Path("output") / self.name, tuple(self.parts))

    def run(self, settings: Settings) -> list[Part]:
        """Runs parts, prints their tables, writes one report.

        A part's numbers and pictures are written when it is finished; a run that is begun again
        with the same settings and sources goes on with the parts that are not. Where a part's data
        are missing, it says so and is left out. Parts that run side by side get the same numbers,
        but for those that measure this machine's time.

        Raises:
            ValueError: A name is not that of a part, or none has a full size.
        """
        known = self.parts
        unknown = [name for name in settings.parts if name not in known]
        if unknown:
            raise ValueError(f"parts must be among {', '.join(known)}, got {unknown[0]!r}")
        sized = {n for n in known if "full" in {field.name for field in fields(known[n].Settings)}}
        if settings.full and not sized & set(settings.parts):
            raise ValueError("full must be False, since none of the parts has a full size")
        options = {
            name: {"seed": settings.seed} | ({"full": settings.full} if name in sized else {})
            for name in settings.parts
        }
        for name in settings.parts:
            (settings.output / name).mkdir(parents=True, exist_ok=True)  # fails now, not later
        begin = self._here if settings.engine == "here" else self._spread
        marks = {n: fingerprint(f"{self.name}.{n}", how) for n, how in options.items()}
        done = {} if settings.again else self._done(settings, marks)
        began, left = time.perf_counter(), {n: how for n, how in options.items() if n not in done}
        for name in done:
            print(f"{name}: was done before", flush=True)
        for name, part in begin(settings, left):
            if isinstance(part, str):
                print(f"{name} left out: {part}\n")
                continue
            keep(settings.output / name, marks[name], part)
            for table in part.tables:
                print(f"\n{results.as_text(table)}")
            if part.verdict:
                print(f"\n{part.verdict}")
            print(
                f"\n[{len(done) + 1}/{len(options)}] {name}: done after"
                f" {time.perf_counter() - began:.0f} s\n",
                flush=True,
            )
            done[name] = part
        finished = [done[name] for name in settings.parts if name in done]
        path = settings.output / "report.html"
        answers = [f"- {part.title} {part.verdict}" for part in finished if part.verdict]
        summary = "\n\n".join([self.summary, *filter(None, ["\n".join(answers)])])
        sections = [*map(parts.section, finished), parts.provenance(finished)]
        report.write(path, report.render(self.title, summary, sections))
        print(f"report  {path}")
        return finished

    def _done(self, settings: Settings, marks: dict[str, str]) -> dict[str, Part]:
        """Parts that an earlier run has finished."""
        found = {name: done_before(settings.output / name, mark) for name, mark in marks.items()}
        return {name: part for name, part in found.items() if part is not None}

    def _here(
        self, settings: Settings, options: dict[str, dict[str, Any]]
    ) -> Iterator[tuple[str, Part | str]]:
        """Runs parts one after another; why one is left out, in words."""
        for name, how in options.items():
            module = self.parts[name]
            print(name, flush=True)
            try:
                yield name, parts.run(module, module.Settings(output=settings.output / name, **how))
            except FileNotFoundError as missing:
                yield name, str(missing)

    def _spread(
        self, settings: Settings, options: dict[str, dict[str, Any]]
    ) -> Iterator[tuple[str, Part | str]]:
        """Runs parts at the workers of an engine, which may be other machines."""
        modules = {name: self.parts[name].__name__ for name in options}
        with engine_of(settings.engine, settings.workers, settings.address) as workers:
            work = partial(_run_elsewhere, modules, options)
            for name, (part, files) in spread(workers, work, list(options)):
                folder = settings.output / name
                for file, content in files.items():
                    (folder / file).parent.mkdir(parents=True, exist_ok=True)
                    storage.write_atomically(folder / file, content)
                if not isinstance(part, str):
                    figures = tuple((folder / path, caption) for path, caption in part.figures)
                    part = replace(part, figures=figures)
                yield name, part

    def main(self, description: str | None) -> None:
        """Reads the settings from the command line and runs the parts.

        Args:
            description: What `--help` says.
        """
        import tyro

        self.run(tyro.cli(Settings, default=self.settings, description=description))


@cache
def sources() -> str:
    """A digest of all code here, so that nothing made by other code passes for what this makes."""
    digest, root = hashlib.sha256(), Path(__file__).parent
    for folder in (Path(asyncjax.__file__).parent, root):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def fingerprint(name: str, settings: Any) -> str:
    """A digest of what decides the numbers of a part: its name, its settings, the sources.

    Args:
        name: Of the collection and the part.
        settings: Anything that prints alike where it is alike.
    """
    facts = (name, settings, sources(), jax.__version__, jax.devices()[0].device_kind)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def keep(folder: Path, mark: str, part: Part) -> None:
    """Puts a finished part beside its files."""
    storage.write_atomically(folder / "done.pickle", pickle.dumps((mark, part)))


def done_before(folder: Path, mark: str) -> Part | None:
    """A part that was finished with the same fingerprint, if its files are there still."""
    try:
        known, part = pickle.loads((folder / "done.pickle").read_bytes())
    except (OSError, ValueError, EOFError, AttributeError, ImportError, pickle.UnpicklingError):
        return None
    whole = known == mark and all(path.exists() for path, _ in part.figures)
    return part if whole else None


def _run_elsewhere(
    modules: dict[str, str], options: dict[str, dict[str, Any]], name: str
) -> tuple[Part | str, dict[str, bytes]]:
    """Runs a part in a folder that goes; the part, its paths within, and its files."""
    module = importlib.import_module(modules[name])
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        try:
            part = parts.run(module, module.Settings(output=folder, **options[name]))
        except FileNotFoundError as missing:
            return str(missing), {}
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        figures = tuple((path.relative_to(folder), caption) for path, caption in part.figures)
        return replace(part, figures=figures), files
