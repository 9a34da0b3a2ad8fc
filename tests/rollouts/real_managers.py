"""Adapters for managers of public frameworks, read from checkouts that a person names.

    ASYNCJAX_MANAGERS=/checkouts pytest tests/rollouts/test_real_managers.py

`/checkouts` holds `AReaL`, `SkyRL` and `RL` (NeMo-RL), or some of them. Nothing of theirs is copied
here: the classes that are named below are cut out of their files into a temporary module, with the
standard library alone around them, and called by their public names.
"""

import ast
import asyncio
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

CHECKOUTS = os.environ.get("ASYNCJAX_MANAGERS", "")
HEAD = """from __future__ import annotations
import abc, asyncio
from dataclasses import dataclass
from threading import Lock
from typing import Any, Callable, Optional, Protocol
"""
FILES = {
    "areal": ("AReaL/areal/infra/staleness_manager.py", ["StalenessManager"]),
    "skyrl": (
        "SkyRL/skyrl/train/fully_async_trainer.py",
        ["_RolloutStat", "_AsyncStalenessManager"],
    ),
    "nemo": (
        "RL/nemo_rl/algorithms/async_utils/staleness_sampler.py",
        [
            "BaseSampler",
            "WindowedSampler",
            "_gated_required_buffer_capacity",
            "_GatedSampler",
            "ReadyFirstSampler",
            "WeightFifoSampler",
            "InOrderSampler",
        ],
    ),
}
BATCH, SLOTS, BOUND = 2, 4, 1


def path_of(name):
    """Where the file of a framework should be."""
    return Path(CHECKOUTS) / FILES[name][0]


def loaded(name):
    """The classes of a framework, as a module without its other imports."""
    text, wanted = path_of(name).read_text(encoding="utf-8"), FILES[name][1]
    lines, parts = text.splitlines(), [HEAD]
    nodes: Any = ast.parse(text).body
    for node in nodes:
        names = {getattr(node, "name", "")}
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            parts.append("\n".join(lines[node.lineno - 1 : node.end_lineno]))
        elif names & set(wanted):
            first = min(
                [node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]
            )
            parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    file = Path(tempfile.mkdtemp()) / f"{name}_manager.py"
    file.write_text("\n\n".join(parts), encoding="utf-8")
    spec: Any = importlib.util.spec_from_file_location(file.stem, file)
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


class Stat:
    """The four counters that AReaL keeps beside its manager."""

    def __init__(self, accepted=0, enqueued=0, rejected=0, running=0):
        self.accepted, self.enqueued = accepted, enqueued
        self.rejected, self.running = rejected, running


class Areal:
    """AReaL: capacity of a lock and four counters."""

    def __init__(self, module, batch=BATCH, slots=SLOTS, bound=BOUND):
        module.RolloutStat = Stat
        self.version = self.steps = 0
        self.manager = module.StalenessManager(self, slots, batch, bound)

    def get_version(self):
        return self.version

    def may_start(self):
        return self.manager.get_capacity() > 0

    def started(self, rollout):
        self.manager.on_rollout_enqueued()
        self.manager.on_rollout_submitted()

    def finished(self, rollout, outcome):
        if outcome == "accepted":
            self.manager.on_rollout_accepted()
        else:
            self.manager.on_rollout_rejected()

    def timed_out(self, rollout):
        self.manager.on_rollout_rejected()

    def taken(self, rollouts):
        self.steps += 1

    def published(self, version):
        self.version = version

    def save(self):
        return {"steps": self.steps}

    def restore(self, state):
        """The version jumps; since its fix the manager is told."""
        self.steps = self.version = state["steps"]
        if hasattr(self.manager, "on_version_recovered"):
            self.manager.on_version_recovered(self.version)

    def counts(self):
        return {"running": self.manager.get_stats().running}


class Skyrl:
    """SkyRL: a condition of asyncio guards the counters; a step counts from 1."""

    def __init__(self, module):
        self.manager = module._AsyncStalenessManager(SLOTS, BATCH, BOUND)
        self.steps = 0

    def may_start(self):
        return self.manager._compute_capacity_unlocked() > 0

    async def started(self, rollout):
        await self.manager.acquire_submission_slot()

    async def finished(self, rollout, outcome):
        if outcome == "failed":
            await self.manager.on_rollout_rejected()
        else:
            await self.manager.on_rollout_accepted()
        if outcome == "filtered":
            await self.manager.on_rollout_filtered()

    async def timed_out(self, rollout):
        await self.manager.on_rollout_rejected()

    def taken(self, rollouts):
        self.steps += 1

    async def published(self, version):
        await self.manager.notify_capacity_change(version + 1)

    def save(self):
        return {"global_step": self.steps}

    def restore(self, state):
        self.steps = state["global_step"]
        self.manager.load_state_from_checkpoint(self.steps + 1)

    def counts(self):
        stat = self.manager._stat
        return {"running": stat.running, "accepted": stat.accepted}


class Groups:
    """What NeMo-RL's samplers read of a buffer."""

    def __init__(self):
        self.meta_list, self.ready_list = [], []
        self.start_weight_list, self.target_step_list = [], []

    async def remove(self, indices, remove_in_dp):
        for index in sorted(indices, reverse=True):
            for column in vars(self).values():
                column.pop(index)
        return len(indices)


class Group(list):
    """Rollouts of a slot."""

    def concat(self, *others):
        return Group(sum(others, self))


class Nemo:
    """NeMo-RL: a sampler owns who is admitted, selected and evicted."""

    def __init__(self, module, kind):
        word = "max_lookahead_versions" if kind == "InOrderSampler" else "max_staleness_versions"
        self.groups, self.steps, self.version, self.admitted, self.target = Groups(), 0, 0, 0, None
        self.sampler = getattr(module, kind)(self.groups, **{word: BOUND})
        self.capacity = self.sampler.required_buffer_capacity(BATCH) or 4 * BATCH

    async def may_start(self):
        if len(self.groups.ready_list) >= self.capacity:
            return False
        if not self.admitted:
            task = asyncio.ensure_future(
                self.sampler.admit(trainer_version_fn=lambda: self.version)
            )
            for _ in range(3):
                await asyncio.sleep(0)
            if not task.done():
                task.cancel()
                return False
            self.admitted, self.target = BATCH, task.result()
        return True

    def started(self, rollout):
        self.admitted -= 1
        for name, value in (
            ("meta_list", Group([rollout])),
            ("ready_list", False),
            ("start_weight_list", self.version),
            ("target_step_list", self.target),
        ):
            getattr(self.groups, name).append(value)

    def finished(self, rollout, outcome):
        if [rollout] in self.groups.meta_list:
            self.groups.ready_list[self.groups.meta_list.index([rollout])] = True

    async def select(self, waiting):
        return (
            await self.sampler.select(
                current_train_weight=self.steps, min_prompt_groups=BATCH, max_prompt_groups=BATCH
            )
        )[0]

    async def evict(self, untrained):
        before = [group[0] for group in self.groups.meta_list]
        await self.sampler.evict(current_train_weight=self.steps)
        after = [group[0] for group in self.groups.meta_list]
        return [rollout for rollout in before if rollout not in after]

    def taken(self, rollouts):
        self.steps += 1

    def published(self, version):
        self.version = version

    def save(self):
        return {"step": self.steps}

    def restore(self, state):
        self.steps = self.version = state["step"]
        self.sampler.set_dispatch_index(self.steps)
