"""`Result`: the rows of a study and what they say.

A row is a run: a scene, a set of instances, an instance, a method with the settings chosen for it,
and what was measured. Comparisons read one column, positive and lower is better. Of two methods the
logarithms are averaged over scenes, then paired over instances:

    log ratio_i = mean over scenes of log first_is - log second_is,    i = 1 .. instances

A time that never came counts as the horizon of its row. All intervals are those of `statistics`.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import checks, storage
from asyncjax.results import report, statistics
from asyncjax.results.statistics import DOUBT, Condition, Difference
from asyncjax.study.protocol import SETS, TUNING, TUNING_OF

TRIALS = tuple(TUNING_OF.values())  # the sets of the trials, of which no comparison reads
DIGITS = 6  # of numbers on disk: the last ones are those of a machine
HEAD = ("scene", "set", "instance", "method", "tuned_for")  # columns in this order, then the rest
TEXTS = ("scene", "set", "method", "tuned_for")
TIMES = ("seconds", "processor_seconds")  # of this machine: not on disk
PACKAGES = ("asyncjax", "jax", "numpy", "optax")
Frame = Any  # a pandas.DataFrame, whose stubs refuse much of what pandas does


Where = Mapping[str, Any]  # column -> value, list of values, or function of a column to a mask


@dataclass(frozen=True)
class Less:
    """A part of a claim: that one method's value is below another's; `less` makes it.

    Attributes:
        first: The method of which little is claimed.
        than: The other, or several: a condition each; empty: every other method.
        ratio: Bound of first over second.
        column: What is compared; None: what the study compares.
        each: One condition for each cell (a scene, or what was tuned for in it) that `where`
            leaves, instead of one for their mean.
        text: Of the table; empty: made of the names.
        where: Which rows.
        beside: Columns in which the second's rows are others.
        arriving: A cell in which neither comes by its horizon, in a set, is no condition there.
    """

    first: str
    than: tuple[str, ...]
    ratio: float = 1.0
    column: str | None = None
    each: bool = False
    text: str = ""
    where: Where = field(default_factory=dict)
    beside: Where = field(default_factory=dict)
    arriving: bool = False


def less(
    first: str,
    than: str | Sequence[str] = (),
    *,
    ratio: float = 1.0,
    column: str | None = None,
    each: bool = False,
    text: str = "",
    beside: Where | None = None,
    arriving: bool = False,
    **where: Any,
) -> Less:
    """The condition that one method's value is below so many times another's.

    Args:
        first: A method.
        than: Another, or several: one condition each. Empty: every other method.
        ratio: Bound of first over second; 1 is "the first is lower".
        column: What is compared; None: what the study compares.
        each: One condition for each cell that `where` leaves, instead of one for their mean.
        text: What it says, for tables; empty: made of the names.
        beside: Columns in which the second's rows differ, such as `{"scene": "even"}`.
        arriving: Leave out cells in which neither method comes in any run of a set, or one was not
            run.
        **where: Which rows: a column is a value, one of a list, or what a function of it says.

    Returns:
        The condition, for a `Claim`.

    Example:
        >>> less("pure", than="synchronous", scene=["spread", "straggler"]).than
        ('synchronous',)
    """
    names = (than,) if isinstance(than, str) else tuple(than)
    bound = checks.real("ratio", ratio, above=0)
    return Less(first, names, bound, column, each, text, where, beside or {}, arriving)


Asked = Less | Callable[[Any, str, float], Condition]  # (result, set, level) -> condition


@dataclass(frozen=True, eq=False)
class Claim:
    """What somebody says of methods, as conditions on rows.

    Attributes:
        text: In words.
        conditions: `less(...)`s; or functions `(result, set, level) -> Condition`, where a claim
            is of another form. None: the verdict is `facts["verdicts"][text]`, by set, put there by
            the program that ran the study, where rows do not hold what it followed from.
        source: Who claims it.
        certain: Why it is true of every run, a theorem or so by construction: it checks the code,
            and is no finding. Empty: it may turn out either way.
    """

    text: str
    conditions: Sequence[Asked] = ()
    source: str = ""
    certain: str = ""


@dataclass(frozen=True, eq=False)
class Result:
    """The rows of a study, and what they say of its methods.

    Attributes:
        rows: A pandas table of runs: `scene`, `set` ("tuning", "A", "B" or "C"), `instance`,
            `method`, `tuned_for` where methods were tuned for several measures, settings,
            measured numbers, `horizon`. Rows of "tuning", and for the other sets of "tuning B" and
            "tuning C", are the trials. Without instances rows are shown and not compared.
        compared: The column that comparisons read; lower is better.
        facts: What else belongs to the study: plain values by name.
        seed: Of the bootstrap.
        cut: Columns that are times: they count as the row's `horizon` where that is less. None:
            those whose names begin with "time", where there is a horizon.
        source: The command that makes it again, and versions.

    Example:
        >>> import pandas as pd
        >>> rows = [("even", "A", i, m, t + i) for m, t in (("a", 4.0), ("b", 9.0)) for i in (0, 1)]
        >>> head = ["scene", "set", "instance", "method", "time"]
        >>> result = Result(pd.DataFrame(rows, columns=head), compared="time")
        >>> result.verdict("a faster than b"), result.ratio("a", over="b").text[0]
        ({'A': 'holds'}, '0.47 (0.44 to 0.5)')
    """

    rows: Frame
    compared: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    cut: tuple[str, ...] | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    _codes: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)  # asked before

    def __post_init__(self) -> None:
        self._check("set", self.compared)
        if self.cut is None:
            times = [name for name in self.rows if name.startswith("time")]
            object.__setattr__(self, "cut", tuple(times) if "horizon" in self.rows else ())

    def _check(self, *names: str) -> None:
        if lacking := [name for name in names if name not in self.rows]:
            known = ", ".join(self.rows.columns)
            raise ValueError(f"rows must have the column {lacking[0]!r}, got {known}")

    @property
    def sets(self) -> tuple[str, ...]:
        """The sets of instances that are shown."""
        return tuple(name for name in self.rows["set"].unique() if name not in TRIALS)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order of the rows."""
        return tuple(self.rows["method"].unique())

    @property
    def cell(self) -> list[str]:
        """The columns that name a cell: a scene, and what was tuned for in it."""
        return [name for name in ("scene", "tuned_for") if name in self.rows]

    def select(self, **where: Any) -> Frame:
        """The rows that fit, as in `less`.

        Raises:
            ValueError: A column is not there.
        """
        return self.rows[self._mask(where)]

    def _coded(self, *names: str) -> tuple[np.ndarray, Any]:
        """What distinguishes the rows in some columns: a number each, and what it stands for."""
        self._check(*names)
        if names not in self._codes:
            pandas = checks.extra("pandas", "study")
            index = self.rows[names[0]]
            if len(names) > 1:
                index = pandas.MultiIndex.from_frame(self.rows[[*names]])
            codes, values = pandas.factorize(index, use_na_sentinel=False)
            self._codes[names] = codes, pandas.Index(values)
        return self._codes[names]

    def _mask(self, where: Where) -> np.ndarray:
        """The rows that fit; a function is asked once for each value of its column."""
        mask = np.ones(len(self.rows), bool)
        for key, (name, wanted) in zip(_key(where), where.items(), strict=True):
            if key not in self._known:
                codes, values = self._coded(name)
                fits = wanted(values.to_series()) if callable(wanted) else values.isin(key[1:])
                self._known[key] = np.asarray(fits, bool)[codes]
            mask &= self._known[key]
        return mask

    def values(self, method: str, set: str, column: str | None = None, **where: Any) -> Any:
        """A method's numbers, finite: a table with one row per cell and a column an instance.

        A time is cut at its horizon. What then is not finite counts as the largest number of the
        column in its scene and set: a run that never came, or diverged, is as bad as the worst.

        Raises:
            ValueError: No row fits, or several rows are of one instance of a cell.
        """
        values, cells, instances = self._values(method, set, column or self.compared, where)
        names = self._coded(*self.cell)[1][cells]
        pandas = checks.extra("pandas", "study")
        return pandas.DataFrame(values, names, self._coded("instance")[1][instances])

    def _values(
        self, method: str, letter: str, column: str, where: Where
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """float[cells, instances], and the codes of both."""
        mask = self._mask({"set": letter, **where})
        values = self._finite(mask, column)
        fits = self._mask({"method": method})[mask]
        cells, instances = (
            self._coded(*names)[0][mask][fits] for names in (self.cell, ("instance",))
        )
        if not cells.size:
            raise ValueError(f"where must leave rows of {method!r} in set {letter}, got none")
        rows, row = np.unique(cells, return_inverse=True)
        columns, at = np.unique(instances, return_inverse=True)
        count = np.zeros((len(rows), len(columns)), int)
        np.add.at(count, (row, at), 1)
        if (count != 1).any():
            wrong = tuple(np.argwhere(count != 1)[0])
            raise ValueError(
                "where must leave a row an instance in every scene, got"
                f" {count[wrong]} of {method!r} in {self._coded(*self.cell)[1][rows[wrong[0]]]!r}"
            )
        table = np.empty(count.shape)
        table[row, at] = values[fits]
        return table, rows, columns

    def _finite(self, mask: np.ndarray, column: str) -> np.ndarray:
        """Numbers of a column, cut; what then is not finite is as bad as the worst of its scene."""
        values = self.rows[column].to_numpy(float)[mask]
        values[np.isnan(values)] = np.inf
        if column in (self.cut or ()):
            values = np.fmin(values, self.rows["horizon"].to_numpy(float)[mask])
        if not (endless := ~np.isfinite(values)).any():
            return values
        codes, names = self._coded("scene")
        scenes, worst = codes[mask], np.full(len(names), -np.inf)
        np.maximum.at(worst, scenes[~endless], values[~endless])
        values[endless] = worst[scenes[endless]]
        if (nowhere := np.isinf(values)).any():
            name = names[scenes[nowhere][0]]
            raise ValueError(f"{column} must be finite somewhere in {name!r}, got nowhere")
        return values

    def _logarithms(
        self, method: str, letter: str, column: str | None, where: Where
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means over cells of the logarithms, float[instances], and the codes of both."""
        values, cells, instances = self._values(method, letter, column or self.compared, where)
        if not (values > 0).all():
            raise ValueError(f"{column or self.compared} must be positive to have a ratio")
        return np.log(values).mean(axis=0), cells, instances

    def difference(
        self,
        first: str,
        second: str,
        set: str,
        column: str | None = None,
        where: Where | None = None,
        level: float = 0.95,
        *,
        beside: Where | None = None,
    ) -> Difference:
        """The paired logarithm of the first method's value over the second's.

        Args:
            first: A method.
            second: Another.
            set: Of instances.
            column: What is compared; None: what the study compares.
            where: Which rows; of several cells the mean of logarithms.
            level: Of the interval.
            beside: Columns in which the second's rows are others.

        Raises:
            ValueError: No row fits, or the two have not met the same scenes and instances.
        """
        where, beside = where or {}, beside or {}
        key = (first, second, set, column, level, _key(where), _key(beside))
        if key in self._known:
            return self._known[key]
        ours, *met = self._logarithms(first, set, column, where)
        theirs, *others = self._logarithms(second, set, column, {**where, **beside})
        same = [np.array_equal(one, other) for one, other in zip(met, others, strict=True)]
        if not (same[1] and (same[0] or beside)):
            raise ValueError(f"{first!r} and {second!r} must have met the same scenes in set {set}")
        apart = statistics.paired(ours, theirs, self.seed, level, statistics.draws_at(level))
        return self._known.setdefault(key, apart)

    def ratio(
        self,
        first: str,
        over: str,
        column: str | None = None,
        set: str | None = None,
        level: float = 0.95,
        where: Where | None = None,
        *,
        each: bool = False,
    ) -> Frame:
        """The first method's value over the second's, geometric mean, with its interval.

        Args:
            first: A method.
            over: Another.
            column: What is compared; None: what the study compares.
            set: Of instances; None: a row each.
            level: Of the intervals.
            where: Which rows.
            each: A row for each cell, instead of one for their mean.

        Returns:
            Columns `set`, `ratio`, `low`, `high`, `instances`, `significant`, `text` (such as
            "0.82 (0.75 to 0.9)", with a star where the interval holds 1), and with `each` before
            them those that name the cell.
        """
        found, where = [], where or {}
        for letter in (set,) if set else self.sets:
            for cell in self._cells({"set": letter, **where}) if each else ({},):
                apart = self.difference(first, over, letter, column, {**where, **cell}, level)
                found.append({**cell, "set": letter, **_as_ratio(apart)})
        return checks.extra("pandas", "study").DataFrame(found)

    def _cells(self, where: Where) -> list[dict[str, Any]]:
        codes, values = self._coded(*self.cell)
        at = np.flatnonzero(self._mask(where) & ~self._mask({"set": TRIALS}))
        first = np.sort(np.unique(codes[at], return_index=True)[1])  # in the order of the rows
        names, alone = (values[code] for code in codes[at[first]]), len(self.cell) == 1
        return [dict(zip(self.cell, (one,) if alone else one, strict=True)) for one in names]

    def conditions(self, claim: Claim | str, set: str) -> tuple[Condition, ...]:
        """What a set says of each condition of a claim, or of a sentence "X faster than Y".

        The conditions share a doubt of 5 %, by Holm's procedure (`statistics.holm`).

        Raises:
            ValueError: The claim is about nothing that was run.
        """
        claim = self._claim(claim)
        asked = self._asked(claim, set)
        if not asked:
            raise ValueError(f"claim must be about methods and scenes that were run, got {claim!r}")
        return statistics.holm([partial(one, set) for one in asked])

    def asked(self, *claims: Claim | str) -> list[Callable[[str, float], Condition]]:
        """The conditions of claims that every set has, as functions of a set and a level."""
        return [one for claim in claims for one in self._asked(self._claim(claim))]

    def _claim(self, claim: Claim | str) -> Claim:
        if isinstance(claim, Claim):
            return claim
        said = re.fullmatch(r"(.+) (?:faster|better|lower) than (.+)", claim.strip())
        if not said:
            raise ValueError(f"claim must be a Claim or 'X faster than Y', got {claim!r}")
        if unknown := [name for name in said.groups() if name not in self.methods]:
            known = ", ".join(self.methods)
            raise ValueError(f"claim must name two of {known}, got {unknown[0]!r}")
        return Claim(claim, [less(said[1], than=said[2], each=True)])

    def _asked(self, claim: Claim, set: str = "") -> list[Callable[[str, float], Condition]]:
        """The conditions as functions of set and level, those about what was not run left out."""
        sets = (set,) if set else self.sets
        asked: list[Callable[[str, float], Condition]] = []
        for part in claim.conditions:
            if not isinstance(part, Less):
                asked.append(partial(part, self))
                continue
            rivals = part.than or tuple(name for name in self.methods if name != part.first)
            for second in rivals if part.first in self.methods else ():
                cells = self._cells(part.where) if second in self.methods else []
                for cell in cells if part.each else [{}][: len(cells)]:
                    if not part.arriving or all(
                        self._arrives(part, second, cell, one) for one in sets
                    ):
                        asked.append(partial(self._condition, part, second, cell))
        return asked

    def _arrives(self, part: Less, second: str, cell: Where, set: str) -> bool:
        """Whether both methods were run in a cell, and some run came by its horizon."""
        column = part.column or self.compared
        rows = self.select(**{**part.where, **cell, "set": set, "method": [part.first, second]})
        last = rows["horizon"] if column in (self.cut or ()) else np.finfo(float).max
        return rows["method"].nunique() == 2 and bool((rows[column] <= last).any())

    def _condition(
        self, part: Less, second: str, cell: Where, letter: str, level: float
    ) -> Condition:
        asked = {"where": {**part.where, **cell}, "beside": part.beside, "level": level}
        apart = self.difference(part.first, second, letter, part.column, **asked)
        names = [part.text or f"{part.first} below {second}", *map(str, cell.values())]
        return Condition(", ".join(names), apart, math.log(part.ratio))

    def verdict(self, claim: Claim | str) -> dict[str, str]:
        """What each set says of a claim: it holds, in part, does not hold, or nothing is told.

        Args:
            claim: A `Claim`; or "X faster than Y", of which every scene is a condition.

        Raises:
            ValueError: The claim is about nothing that was run.
        """
        claim = self._claim(claim)
        if not claim.conditions:
            return dict(self.facts["verdicts"][claim.text])
        return {one: statistics.verdict(self.conditions(claim, one)) for one in self.sets}

    def verdicts(self, claims: Sequence[Claim]) -> dict[str, dict[str, str]]:
        """Verdicts by claim and set; claims about what was not run are left out."""
        asked = [claim for claim in claims if not claim.conditions or self._asked(claim)]
        return {claim.text: self.verdict(claim) for claim in asked}

    def judged(
        self, claims: Sequence[Claim], set: str, *, together: bool = False
    ) -> dict[str, tuple[Condition, ...]]:
        """The conditions of each claim in a set; claims about what was not run are left out.

        Args:
            claims: With conditions; those without are left out.
            set: Of instances.
            together: Judge the conditions of all claims as one family, by Holm's procedure, so that
                with a doubt of 5 % nothing of what is decided is wrong.
        """
        asked = {claim: found for claim in claims if (found := self._asked(claim, set))}
        if not together:
            return {claim.text: self.conditions(claim, set) for claim in asked}
        family = [partial(one, set) for found in asked.values() for one in found]
        judged = iter(statistics.holm(family))
        return {claim.text: tuple(islice(judged, len(found))) for claim, found in asked.items()}

    def detectable(
        self,
        first: str,
        second: str,
        set: str = "A",
        column: str | None = None,
        where: Where | None = None,
        level: float = 0.95,
    ) -> float:
        """The smallest ratio of two methods that the instances of a set can show."""
        apart = self.difference(first, second, set, column, where, level)
        return statistics.smallest_ratio(apart, level)

    def rank(
        self, where: Where | None = None, set: str | None = None, column: str | None = None
    ) -> Frame:
        """Methods by their mean, lowest first, with what the instances can tell of their ranks.

        Args:
            where: Which rows; of several cells the mean of logarithms.
            set: Of instances; None: all, one after another.
            column: What is compared; None: what the study compares.

        Returns:
            Columns `set`, `method`, `best_rank`, `worst_rank`, `ratio` (to the lowest, with `low`
            and `high`), `with_best`. All pairs share a doubt of 5 %.
        """
        found, where = [], where or {}
        for letter in (set,) if set else self.sets:
            methods = self.select(**{"set": letter, **where})["method"].unique()
            logs = {name: self._logarithms(name, letter, column, where) for name in methods}
            if len({str(met) for _, *met in logs.values()}) > 1:
                raise ValueError(f"methods must have met the same scenes in set {letter}")
            level = 1 - DOUBT / max(len(logs) * (len(logs) - 1) // 2, 1)
            scores = {name: values for name, (values, *_) in logs.items()}
            draws = statistics.draws_at(level)
            for place in statistics.ranks(scores, self.seed, level, draws):
                beside = _as_ratio(place.to_leader)
                found.append({"set": letter, "method": place.name, **vars(place), **beside})
        columns = ["set", "method", "best_rank", "worst_rank", "ratio", "low", "high", "with_best"]
        return checks.extra("pandas", "study").DataFrame(found, columns=columns)

    def profile(
        self, r: float = 4.0, column: str | None = None, where: Where | None = None
    ) -> Frame:
        """Performance profiles: the share of runs that a method ends within so many times the best.

        A problem is an instance of a cell, of all sets; what never came is not solved.

        Args:
            r: To which multiple of the best.
            column: What is compared; None: what the study compares.
            where: Which rows.

        Returns:
            Columns `ratio`, 61 from 1 to r, each the same multiple of the one before, and one a
            method.
        """
        rows = self.rows[self._mask(where or {}) & ~self._mask({"set": TRIALS})]
        name = column or self.compared
        values = rows[name].to_numpy(float)
        if name in (self.cut or ()):
            values = np.where(values <= rows["horizon"].to_numpy(float), values, np.inf)
        by = [*self.cell, "set", "instance"]
        wide = rows.assign(value=values).pivot(index=by, columns="method", values="value")
        ratios = np.geomspace(1.0, checks.real("r", r, above=1), 61)
        times = {method: wide[method].fillna(np.inf) for method in rows["method"].unique()}
        shares = statistics.profile(times, ratios)
        return checks.extra("pandas", "study").DataFrame({"ratio": ratios, **shares})

    def report(
        self,
        path: str | os.PathLike[str],
        claims: Sequence[Claim] = (),
        *,
        title: str = "How the methods compare",
        command: str = "",
    ) -> Path:
        """Writes a page: the answer, ranks, profiles, what was tuned, what it cost.

        Args:
            path: An HTML file.
            claims: What is to be judged.
            title: Of the page.
            command: What was run; empty: as the result says.

        Returns:
            The file.
        """
        from asyncjax.study import summary

        checks.file_path("path", path)
        made_by = command or self.source.get("command", "") or "study.compare"
        report.write(path, summary.page(self, claims, title, made_by))
        return Path(path)

    def to_csv(self, path: str | os.PathLike[str]) -> Path:
        """Writes the rows alone, as plain CSV."""
        storage.write_atomically(path, self.rows.to_csv(index=False))
        return Path(path)

    def to_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Writes the rows alone as Parquet, which keeps their types.

        Raises:
            ImportError: The package pyarrow is not installed.
        """
        storage.write_atomically(path, self.rows.to_parquet(index=False))
        return Path(path)

    def trials(self) -> Frame:
        """How each method was tuned: one row per cell and method, with `trials`.

        They are counted in the rows of "tuning"; where there are none, the column `trials` says it.
        Columns that are the same for all instances (settings, costs) stand beside it. Where sets
        were tuned apart there is one row per cell, method and `set`.
        """
        first, *others = found = [self._trials_of(letter) for letter in self.sets]
        if all(first.equals(one) for one in others):
            return first
        pairs = zip(self.sets, found, strict=True)
        parts = [one.assign(set=letter) for letter, one in pairs]
        return checks.extra("pandas", "study").concat(parts, ignore_index=True)

    def _trials_of(self, letter: str) -> Frame:
        by = [*self.cell, "method"]
        rest = [name for name in self.rows if name not in (*by, "set", "instance")]
        chosen = self.select(set=letter).groupby(by, sort=False)[rest]
        same = chosen.nunique(dropna=False).max() == 1
        found = chosen.first()[[name for name in rest if same[name]]].reset_index()
        tried = self.select(set=TUNING_OF.get(SETS.get(letter, ""), TUNING))
        tried = self.select(set=TUNING) if tried.empty else tried
        if not tried.empty:  # every trial was made on every tuning instance
            groups = tried.groupby(by, sort=False)["instance"]
            count = (groups.size() // groups.nunique()).rename("trials")
            found = found.set_index(by)
            found["trials"] = count.reindex(found.index).fillna(found.get("trials"))
            found = found.reset_index()
        return found

    def save(self, path: str | os.PathLike[str], *, command: str = "") -> Path:
        """Writes rows and facts, whole or not at all: `NAME.csv.gz` with a head of comments.

        The same rows give the same bytes: no date, six digits, columns in a fixed order, and
        without the times of this machine.

        Args:
            path: Ends in `.csv.gz`.
            command: What makes it again; empty: as the result says.

        Returns:
            The file.
        """
        head = {
            "command": command or self.source.get("command", ""),
            "versions": {package: metadata.version(package) for package in PACKAGES},
            "compared": self.compared,
            "cut": list(self.cut or ()),
            "seed": self.seed,
            "facts": dict(self.facts),
        }
        if not command:
            head["versions"] = self.source.get("versions", head["versions"])
        lines = [f"# {name}: {_json(value)}\n" for name, value in head.items()]
        names = [name for name in HEAD if name in self.rows]
        names += [name for name in self.rows if name not in (*HEAD, *TIMES)]
        table = self.rows[names].to_csv(index=False, float_format=_digits, lineterminator="\n")
        text = "".join(lines) + table
        storage.write_atomically(path, gzip.compress(text.encode(), 9, mtime=0))
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: It is no such file.
        """
        pandas = checks.extra("pandas", "study")
        try:
            text = gzip.decompress(Path(path).read_bytes()).decode()
            lines = list(takewhile(lambda line: line.startswith("# "), text.split("\n")))
            parts = (line[2:].partition(": ") for line in lines)
            head = {name: json.loads(value) for name, _, value in parts}
            reading = {"keep_default_na": False, "na_values": [""], "skiprows": len(lines)}
            if pandas.__version__ < "3.1":  # later it is the default
                reading["float_precision"] = "round_trip"
            reading["dtype"] = dict.fromkeys(TEXTS, str)
            rows = pandas.read_csv(io.StringIO(text), **reading)
            source = {name: head[name] for name in ("command", "versions")}
            compared, facts, seed, cut = (head[n] for n in ("compared", "facts", "seed", "cut"))
            return cls(rows, compared, facts, seed, tuple(cut), source)
        except (gzip.BadGzipFile, EOFError, KeyError, ValueError) as error:
            raise ValueError(f"path must be rows that Result.save wrote, got {path}") from error


def _key(where: Where) -> tuple[Any, ...]:
    """What a choice of rows is known by."""
    many = [isinstance(one, Collection) and not isinstance(one, str) for one in where.values()]
    each = zip(where.items(), many, strict=True)
    return tuple((name, *one) if several else (name, one) for (name, one), several in each)


def _digits(value: float) -> str:
    """A number that stays one with a point: 16.0 comes back as it was."""
    return repr(float(f"{value:.{DIGITS}g}"))


def _json(value: Any) -> str:
    """A plain value on a line, its floats cut to some digits."""
    return json.dumps(_cut(value), sort_keys=True, ensure_ascii=False)


def _cut(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _cut(item) for name, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_cut(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(_digits(float(value)))
    return value.item() if isinstance(value, np.generic) else value


def _as_ratio(apart: Difference) -> dict[str, Any]:
    """A difference of logarithms as a ratio with its interval."""
    ratio, low, high = (math.exp(value) for value in (apart.mean, apart.low, apart.high))
    text = f"{ratio:.2g} ({low:.2g} to {high:.2g})" + ("" if apart.significant else " *")
    numbers = {"ratio": ratio, "low": low, "high": high, "instances": apart.count}
    return {**numbers, "significant": apart.significant, "text": text}
