"""Parts of an experiment: what each measured, how it is written, how several are run."""

import hashlib
import importlib
import pickle
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import jax

import asyncjax
from asyncjax import results, storage
from asyncjax.results import plots, report
from asyncjax.study.engine import engine_of, spread

Drawing = tuple[str, Any, str]  # end of the file's name, matplotlib figure or PNG bytes, caption


@dataclass(frozen=True)
class Part:
    """One claim, measured.

    Attributes:
        name: Short name for files, such as `asgrad`.
        title: The question, in words.
        figures: Paths of PNG files and their captions.
        tables: Tables, first the one that answers the question.
        numbers: Everything in the tables and more, as plain values for JSON.
        verdict: The answer in words, made of the numbers; empty: none.
        papers: Whose claims and methods these are, a reference each.
        note: What has to be known to read the tables, in words; empty: nothing.
    """

    name: str
    title: str
    figures: tuple[tuple[Path, str], ...]
    tables: tuple[results.Table, ...]
    numbers: dict[str, Any]
    verdict: str = ""
    papers: tuple[str, ...] = ()
    note: str = ""


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], text: str, *, names: int = 1
) -> results.Table:
    """A table whose first columns, so many, are names and stand to the left."""
    columns = [results.Column(head, right=place >= names) for place, head in enumerate(heads)]
    return results.Table(tuple(columns), tuple(map(tuple, rows)), text)


def save(path: Path, figure: Any) -> bytes:
    """Writes a figure of matplotlib, or the bytes of a PNG file, and returns the bytes."""
    picture = figure if isinstance(figure, bytes) else plots.png_bytes(figure)
    storage.write_atomically(path, picture)
    return picture


def written(
    output: Path,
    name: str,
    title: str,
    drawings: Iterable[Drawing],
    tables: Iterable[results.Table],
    numbers: dict[str, Any],
    verdict: str = "",
    papers: Iterable[str] = (),
    note: str = "",
) -> Part:
    """Writes a part's figures, `NAME_END.png` each (`NAME.png` for an empty end), and `NAME.json`.

    Args:
        output: Folder; made where it is missing.
        name: Of the part.
        title: The question, in words.
        drawings: Figures.
        tables: Tables.
        numbers: Plain values.
        verdict: The answer in words.
        papers: References.
        note: What has to be known to read the tables.
    """
    output.mkdir(parents=True, exist_ok=True)
    figures = []
    for end, figure, caption in drawings:
        path = output / f"{f'{name}_{end}' if end else name}.png".replace(" ", "_")
        save(path, figure)
        figures.append((path, caption))
    storage.save_json(output / f"{name}.json", numbers)
    return Part(name, title, tuple(figures), tuple(tables), numbers, verdict, tuple(papers), note)


def run_alone(run: Callable[[Any], Part], settings: type, description: str | None) -> None:
    """Runs one part from the command line; prints its answer and its tables, writes `NAME.html`.

    Args:
        run: `settings -> Part`.
        settings: The part's settings, a dataclass whose fields are the options.
        description: What `--help` says.
    """
    import tyro

    began = time.perf_counter()
    chosen = tyro.cli(settings, description=description)
    chosen.output.mkdir(parents=True, exist_ok=True)  # fails now, not after minutes
    part = run(chosen)
    if part.verdict:
        print(f"{part.verdict}\n")
    if part.note:
        print(f"{part.note}\n")
    for table in part.tables:
        print(f"{results.as_text(table)}\n")
    for path, caption in part.figures:
        print(f"{path}  {caption}")
    print(f"report  {write_page(chosen.output / f'{part.name}.html', part)}")
    print(f"done in {time.perf_counter() - began:.0f} s")


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
        modules: Each has `Settings` with `output` and `seed`, and `run(settings) -> Part`; its name
            is that of its own folder.
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
        marks = {n: fingerprint(f"{self.name}.{n}", own) for n, own in options.items()}
        done = {} if settings.again else self._done(settings, marks)
        began, left = time.perf_counter(), {n: own for n, own in options.items() if n not in done}
        for name in done:
            print(f"{name}: was done before", flush=True)
        for name, part in begin(settings, left):
            if isinstance(part, str):
                print(f"{name} left out: {part}\n")
                continue
            keep(settings.output / name, marks[name], part)
            if part.note:
                print(f"\n{part.note}")
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
        made = [done[name] for name in settings.parts if name in done]
        path = settings.output / "report.html"
        answers = [f"- {part.title} {part.verdict}" for part in made if part.verdict]
        summary = "\n\n".join([self.summary, *filter(None, ["\n".join(answers)])])
        sections = [*map(section, made), provenance(made)]
        report.write(path, report.render(self.title, summary, sections))
        print(f"report  {path}")
        return made

    def _done(self, settings: Settings, marks: dict[str, str]) -> dict[str, Part]:
        """Parts that an earlier run has finished."""
        found = {name: done_before(settings.output / name, mark) for name, mark in marks.items()}
        return {name: part for name, part in found.items() if part is not None}

    def _here(
        self, settings: Settings, options: dict[str, dict[str, Any]]
    ) -> Iterator[tuple[str, Part | str]]:
        """Runs parts one after another; why one is left out, in words."""
        for name, own in options.items():
            module = self.parts[name]
            print(name, flush=True)
            try:
                yield name, module.run(module.Settings(output=settings.output / name, **own))
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
    digest, root = hashlib.sha256(), Path(__file__).parents[1]
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
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        try:
            part = module.run(module.Settings(output=folder, **options[name]))
        except FileNotFoundError as missing:
            return str(missing), {}
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        figures = tuple((path.relative_to(folder), caption) for path, caption in part.figures)
        return replace(part, figures=figures), files


def section(part: Part) -> report.Section:
    """A part in a report."""
    return report.Section(part.title, part.note, illustrations(part), part.tables, part.verdict)


def illustrations(part: Part) -> tuple[report.Illustration, ...]:
    """The figures of a part, read."""
    return tuple(report.Illustration(path.read_bytes(), text) for path, text in part.figures)


def provenance(parts: Iterable[Part]) -> report.Section:
    """How a report was made: command, versions, and the papers of its parts."""
    papers = dict.fromkeys(paper for part in parts for paper in part.papers)
    return report.provenance(command(), list(papers))


def command() -> str:
    """How this process was begun, as it is typed.

    Example:
        >>> command().startswith("python")
        True
    """
    return shlex.join(["python", *sys.orig_argv[1:]])


def write_page(path: Path, part: Part) -> Path:
    """Writes the report of one part: its answer on top, its figures and tables, how it was made."""
    shown = report.Section("Figures and tables", part.note, illustrations(part), part.tables)
    sections = [shown, provenance([part])]
    report.write(path, report.render(part.title, "", sections, verdict=part.verdict))
    return path
