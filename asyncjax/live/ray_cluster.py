"""What is asked of a Ray cluster: whether it answers, and which actors wait for a place there."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from asyncjax.live.news import free

_GIB = 2**30  # bytes
_NAMES = {"CPU": "CPUs", "GPU": "GPUs", "memory": "GiB of memory"}

_ASK = """import sys
from ipaddress import ip_address
import ray
from ray._private import ray_constants
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info().values()
on_loopback = any(ip_address(node.node_manager_address).is_loopback for node in nodes)
if on_loopback:
    ray_constants.ENABLE_RAY_CLUSTER = False
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="WARNING")
ray.shutdown()
print("loopback:", on_loopback)
"""


def listens_on_loopback(address: str, seconds: float) -> bool:
    """Whether a cluster that can be joined is on loopback; another process joins it first.

    In this one Ray would wait for as long as it likes and then end it. And it takes loopback for
    this machine's outward address, where such a cluster does not listen.

    Raises:
        ConnectionError: Nobody answers.
    """
    found = address
    if address == "auto":
        services: Any = importlib.import_module("ray._private.services")
        found = services.get_ray_address_from_environment(address, None)
    try:
        said = subprocess.run(
            [sys.executable, "-c", _ASK, found], capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise ConnectionError(
            f"no answer from {found} within {seconds:g} seconds (connect_timeout)"
        ) from None
    if said.returncode != 0:
        why = said.stderr.strip().splitlines() or [f"it ended with status {said.returncode}"]
        raise ConnectionError(f"no answer from {found}: {why[-1]}")
    return "loopback: True" in said.stdout


def waiting(opened: Mapping[int, Any], options: Mapping[str, Any]) -> tuple[set[int], str]:
    """The workers whose actor has no process yet, by number; and what is free for all, in words."""
    ray, state = (importlib.import_module(name) for name in ("ray", "ray._private.state"))
    placeless = {
        worker
        for worker, executor in opened.items()
        if state.actors(executor.actor._actor_id.hex()).get("Pid") == 0
    }
    placed = len(opened) - len(placeless)
    return placeless, shortage(
        wanted(options), placed, ray.available_resources(), ray.cluster_resources()
    )


def wanted(options: Mapping[str, Any]) -> dict[str, float]:
    """What each actor takes of the cluster, by Ray's names.

    Example:
        >>> wanted({"num_cpus": 1, "num_gpus": None, "resources": {"TPU": 4}})
        {'CPU': 1.0, 'TPU': 4.0}
    """
    named = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    each = {name: options.get(option) for name, option in named.items()}
    each |= options.get("resources") or {}
    return {name: float(number) for name, number in each.items() if number}


def shortage(
    each: Mapping[str, float],
    placed: int,
    available: Mapping[str, float],
    total: Mapping[str, float],
) -> str:
    """How much is free of what is short, what the placed workers of this run hold included.

    Example:
        >>> shortage({"CPU": 1.0}, 2, {}, {"CPU": 4.0})
        '2 of 4 CPUs are free'
    """
    if not each:
        return "they have no place yet"
    short = [name for name, number in each.items() if available.get(name, 0.0) < number]
    name = (short or list(each))[0]
    unit = _GIB if name == "memory" else 1
    ours = available.get(name, 0.0) + placed * each[name]
    return free(ours / unit, total.get(name, 0.0) / unit, _NAMES.get(name, name))
