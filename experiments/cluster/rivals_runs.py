"""What schedulers achieve: workloads of instances, outcomes, and numbers that can be kept."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from asyncjax import cluster, storage
from asyncjax.study import protocol

Workload = tuple[cluster.Jobs, cluster.Machines]
Scheduler = Callable[..., cluster.Schedule]

PD_ORS = "pd_ors"
ROLES = {"A": protocol.SET_A, "B": protocol.SET_B}
FIELDS = ("completed", "median_slots", "median_slots_of_all", "wasted")


@dataclass(frozen=True)
class Settings:
    """What is run. Workloads are the protocol's instances: those shown are never tuned on."""

    output: Path = Path("output/cluster_rivals")
    seed: int = 0  # of all instances, below 256
    sets: tuple[str, ...] = ("A", "B")  # disjoint; sweeps and settings are of the first
    instances: int = 20  # of each set
    tuning_instances: int = 10
    trials: int = 6  # settings a rule tries in a round of tuning; 0 for no tuning
    few: int = 6  # instances in the sweeps
    n_jobs: int = 40
    n_slots: int = 16
    n_machines: int = 30
    plenty: int = 100  # machines, where they are not scarce
    ranges: tuple[int, int, int] = (50, 20, 100)  # jobs, slots, machines of the preset `ranges`
    machines: tuple[int, ...] = (20, 30, 50, 100)
    jobs: tuple[int, ...] = (20, 40, 60)
    loads: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)  # factors of the samples of all jobs
    schedulers: tuple[str, ...] = tuple(cluster.SCHEDULERS)
    local_machines: int = 20
    parts: tuple[int, ...] = (10, 40)  # beside the default, 20
    draws: int = 20  # random roundings; 0 for none
    splits: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)  # of the machines of OASiS
    commit: bool = False  # write experiments/numbers/cluster_rivals.json
    committed: bool = False  # measure nothing: tables and verdicts of the committed numbers


@dataclass(frozen=True)
class Point:
    """One size of cluster and workload."""

    n_jobs: int
    n_machines: int
    load: float = 1.0
    preset: str = "balanced"
    n_slots: int = field(default=0, repr=False)  # 0: as the settings have it


def points(settings: Settings) -> dict[str, Point]:
    """Where claims are judged: machines scarce, plenty, and the preset nearest to the paper's."""
    n_jobs, n_slots, n_machines = settings.ranges
    return {
        "scarce": Point(settings.n_jobs, settings.n_machines),
        "plenty": Point(settings.n_jobs, settings.plenty),
        "ranges": Point(n_jobs, n_machines, preset="ranges", n_slots=n_slots),
    }


def slots(settings: Settings, point: Point) -> int:
    """How many there are at a point."""
    return point.n_slots or settings.n_slots


def workload(settings: Settings, point: Point, instance: protocol.Seeds) -> Workload:
    """Jobs and machines of one instance."""
    make = getattr(cluster.workloads, point.preset)
    n_slots = slots(settings, point)
    jobs, machines = make(
        instance.data, n_jobs=point.n_jobs, n_slots=n_slots, n_machines=point.n_machines
    )
    return jobs._replace(samples=np.floor(point.load * jobs.samples)), machines


class Played:
    """Outcomes by point, rule and instance, kept in a file: a run that was stopped goes on.

    What was played with another library is played again; the file knows it by its sources.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self.path = settings, settings.output / "played.json"
        self.made_by = _digest()
        self.known: dict[str, dict[str, float]] = {}
        if self.path.exists():
            kept = storage.load_json(self.path)
            self.known = kept["known"] if kept["made_by"] == self.made_by else {}

    def __call__(
        self, point: Point, name: str, rule: Scheduler, instances: Sequence[protocol.Seeds]
    ) -> list[dict[str, float]]:
        """What a rule achieves at one point, for every instance; every schedule is checked.

        Args:
            point: Size of cluster and workload.
            name: Of the rule with its settings; the same name is never played again.
            rule: The scheduler. FIFO's jobs ask for workers drawn anew for every instance.
            instances: Which workloads.

        Raises:
            RuntimeError: A schedule breaks a rule.
        """
        found, new = [], False
        for instance in instances:
            key = f"{point} {slots(self.settings, point)} {name} {instance}"
            if key not in self.known:
                self.known[key], new = self._play(point, rule, instance), True
            found.append(self.known[key])
        if new:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            storage.save_json(self.path, {"made_by": self.made_by, "known": self.known})
            print(f"played {name} at {point}", flush=True)
        return found

    def _play(self, point: Point, rule: Scheduler, instance: protocol.Seeds) -> dict[str, float]:
        """One episode."""
        jobs, machines = workload(self.settings, point, instance)
        own = (
            {"workers": cluster.workloads.fixed_workers(instance.data, jobs)}
            if rule is cluster.fifo
            else {}
        )
        made = rule(jobs, machines, n_slots=slots(self.settings, point), **own)
        if wrong := cluster.check(made, jobs, machines):
            raise RuntimeError(f"{instance}, {point}: {wrong[0]}")
        achieved = cluster.outcome(made, jobs, machines)
        return {name: float(getattr(achieved, name)) for name in ("utility", *FIELDS)}

    def compared(
        self, point: Point, instances: Sequence[protocol.Seeds]
    ) -> dict[str, dict[str, Any]]:
        """Numbers of all schedulers at one point."""
        every = dict(cluster.SCHEDULERS) | {"fifo": cluster.fifo}
        names = self.settings.schedulers
        return {name: plain(self(point, name, every[name], instances)) for name in names}


def _digest() -> str:
    """Of the sources of the library's room."""
    digest = hashlib.sha256()
    for path in sorted(Path(cluster.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def plain(found: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Outcomes as values for JSON: utility an instance, means of the rest where there are any."""
    means = {}
    for name in FIELDS:
        own = values(found, name)
        means[name] = float(np.nanmean(own)) if np.isfinite(own).any() else float("nan")
    return {"utility": values(found).tolist(), **means}


def values(found: Sequence[Mapping[str, float]], name: str = "utility") -> np.ndarray:
    """One number an outcome."""
    return np.array([one[name] for one in found], float)


def difference(ours: ArrayLike, theirs: ArrayLike) -> tuple[float, float]:
    """Mean difference and its standard error over the instances; NaN for one."""
    apart = np.asarray(ours, float) - np.asarray(theirs, float)
    spread = apart.std(ddof=1) / np.sqrt(apart.size) if apart.size > 1 else np.nan
    return float(apart.mean()), float(spread)


def utilities(found: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Utility of every scheduler, float64[instances] each, from `Played.compared`."""
    return {name: np.asarray(own["utility"], float) for name, own in found.items()}
