"""Pair balancing beside the PyTorch class of CD-GraB's authors.

Time of an epoch, for an MLP 784-h-h/4-10.

    (T)  torch: plain SGD, one backward pass a batch
    (P)  torch: gradients of a batch by `torch.func`, handed to the authors' `PairBalance_Sorter`
    (F)  ours: the same decisions, gradients of pairs made and forgotten in a scan
    (E)  ours: `orders.dense_signs`, the same decisions without a gradient of any example
    (D)  ours: `orders.directional_signs`, a batch one stale block
    (S)  ours: plain SGD

The class is not part of this library: give its file, `algo.py` of
https://github.com/GarlGuo/CD-GraB (commit dc056f3), and install torch.

    python -m benchmarks.ordering_peers path/to/algo.py

Same model, rows, batches and updates; the next orders of (P), (F) and (E) are compared before
anything is timed.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import ordering
from benchmarks.timing import ratio, seconds, setting

OURS = {
    "(S)": ordering.plain,
    "(F)": ordering.fused,
    "(E)": ordering.dense,
    "(D)": partial(ordering.directional, pairs=None),
}
RATIOS = (("(P)", "(T)"), ("(P)", "(F)"), ("(P)", "(E)"), ("(P)", "(D)"), ("(T)", "(S)"))


def sorter_of(path: Path) -> Any:
    """Loads the authors' class; the function that its module imports is not needed here."""
    helpers = ModuleType("utils")
    vars(helpers)["flatten_grad"] = None
    sys.modules["utils"] = helpers
    spec = importlib.util.spec_from_file_location("reference_orders", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"path must be a Python file, algo.py of CD-GraB, got {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PairBalance_Sorter


def torch_epoch(
    params: Any, features: np.ndarray, labels: np.ndarray, batch: int, sorter_class: Any
) -> Callable[[], tuple[Any, Any]]:
    """Returns a function that trains for an epoch.

    Its parameters and the next order, if it makes one.
    """
    torch = import_module("torch")
    rows, targets = torch.tensor(features), torch.tensor(labels, dtype=torch.int64)
    n, layers = len(labels), []
    for weight, _ in params:
        layer = torch.nn.Linear(*weight.shape)
        layers += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    linear = [layer for layer in model if isinstance(layer, torch.nn.Linear)]

    def begin() -> None:
        with torch.no_grad():
            for layer, (weight, bias) in zip(linear, params, strict=True):
                layer.weight.copy_(torch.tensor(np.asarray(weight)).T)
                layer.bias.copy_(torch.tensor(np.asarray(bias)))

    def end() -> Any:
        return [(layer.weight.detach().T.numpy(), layer.bias.detach().numpy()) for layer in linear]

    def plain() -> tuple[Any, Any]:
        begin()
        optimizer = torch.optim.SGD(model.parameters(), lr=ordering.STEP)
        for first in range(0, n, batch):
            optimizer.zero_grad()
            scores = model(rows[first : first + batch])
            torch.nn.functional.cross_entropy(scores, targets[first : first + batch]).backward()
            optimizer.step()
        return end(), None

    def loss(given: Any, example: Any, target: Any) -> Any:
        scores = torch.func.functional_call(model, given, (example[None],))
        return torch.nn.functional.cross_entropy(scores, target[None])

    gradients = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))

    def balanced() -> tuple[Any, Any]:
        begin()
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        size = sum(p.numel() for p in parameters.values())
        sorter = sorter_class(n, size, device=torch.device("cpu"))
        for first in range(0, n, batch):
            span = slice(first, first + batch)
            found = gradients(parameters, rows[span], targets[span])
            flat = torch.cat([leaf.reshape(batch, -1) for leaf in found.values()], dim=1)
            sorter.step(flat, torch.arange(first, first + batch))
            with torch.no_grad():
                for name, leaf in found.items():
                    parameters[name].sub_(ordering.STEP * leaf.mean(dim=0))
        return end(), sorter.sort().numpy()

    return plain if sorter_class is None else balanced


def row(n_params: int, batch: int, repeats: int, n_batches: int, sorter_class: Any) -> str:
    """Returns the row for one model and batch."""
    params, n = ordering.initial(ordering.WIDTHS[n_params]), batch * n_batches
    draws = np.random.default_rng(0)
    features = draws.standard_normal((n, ordering.FEATURES), dtype=np.float32)
    labels = draws.integers(0, ordering.CLASSES, n).astype(np.int32)
    data = (jnp.asarray(features), jnp.asarray(labels))
    contestants: dict[str, Callable[[], Any]] = {
        name: ordering.epoch(rule, params, data, batch, n) for name, rule in OURS.items()
    }
    contestants["(T)"] = torch_epoch(params, features, labels, batch, None)
    contestants["(P)"] = torch_epoch(params, features, labels, batch, sorter_class)
    wanted, order = contestants["(P)"]()
    for name in OURS:
        found, next_order, _ = contestants[name]()
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)
        if name in ("(F)", "(E)"):
            same = float(np.mean(np.asarray(next_order) == order))
            assert same > 0.9, (
                f"{name} agrees with the reference in a share of {same} of the places"
            )
    taken = seconds(contestants, repeats)
    cells = [ratio(taken[above], taken[below]) for above, below in RATIOS]
    return f"| {n_params:,} | {batch} | " + " | ".join(cells) + " |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="algo.py of CD-GraB")
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    parser.add_argument("--batches", type=int, default=4, help="batches an epoch")
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 128])
    given = parser.parse_args()
    sorter_class = sorter_of(given.path)
    versions = f"{setting()}, torch {import_module('torch').__version__}"
    print(f"{versions}; {given.repeats} rounds of an epoch of {given.batches} batches\n")
    print("| parameters | batch | " + " | ".join(" / ".join(pair) for pair in RATIOS) + " |")
    print("|" + "---|" * (2 + len(RATIOS)))
    for n_params in ordering.WIDTHS:
        for batch in given.batch:
            sizes = (n_params, batch, given.repeats, given.batches)
            print(row(*sizes, sorter_class), flush=True)


if __name__ == "__main__":
    main()
