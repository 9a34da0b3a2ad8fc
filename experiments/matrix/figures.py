"""Figures of the matrix: a map of speed-ups, and speed-ups over the target."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax.results.plots.style import COLOURS, DASHES, drawing, new_figure
from experiments.matrix.claims import REFERENCE, Facts, having, speed_up

SHOWN = ("pure", "Rescaled", "shuffled", "table", "fastest k", "Rennala", "FedBuff, local steps")
BANDS = ("pure", "Rescaled")  # whose intervals are drawn
SKEWS = {"alike": "alike", "slow hold labels": "labels"}


def heat_map(facts: Facts, methods: Sequence[str]) -> Any:
    """Speed-up by method, workers, skew and link, colours on a logarithmic scale."""
    from matplotlib.colors import TwoSlopeNorm

    scenes = facts["scenes"].values()
    columns = list(dict.fromkeys((s["uneven"], s["skew"], s["link"]) for s in scenes))
    names = [name for name in methods if name != REFERENCE]
    values = np.array(
        [
            [
                speed_up(facts, name, having(uneven=uneven, skew=skew, link=link))[0]
                for uneven, skew, link in columns
            ]
            for name in names
        ]
    )
    most = max(1.0, float(np.ceil(np.abs(np.log2(values)).max())))
    with drawing():
        figure = new_figure(max(6.0, 2.4 + 0.5 * len(columns)), 1.9 + 0.32 * len(names))
        axes = figure.subplots()
        colours = axes.pcolormesh(
            np.arange(len(columns) + 1) - 0.5,
            np.arange(len(names) + 1) - 0.5,
            np.log2(values),
            norm=TwoSlopeNorm(0.0, -most, most),
            cmap="PuOr",
            edgecolor="white",
            linewidth=0.6,
        )
        for (row, column), value in np.ndenumerate(values):
            shade = "white" if abs(np.log2(value)) > 0.65 * most else "black"
            axes.text(column, row, f"{value:.2g}", ha="center", va="center", color=shade, size=8)
        labels = [f"{SKEWS[skew]}\n{link}" for _, skew, link in columns]
        axes.set_xticks(range(len(columns)), labels, size=7)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.tick_params(length=0)
        kinds = [uneven for uneven, _, _ in columns]
        for kind in dict.fromkeys(kinds):
            places = [at for at, one in enumerate(kinds) if one == kind]
            axes.text(float(np.mean(places)), -0.75, kind, ha="center", va="bottom", size=9)
            if places[0]:
                axes.axvline(places[0] - 0.5, color="black", linewidth=1.2)
        bar = figure.colorbar(colours, ax=axes, pad=0.015, fraction=0.04, aspect=30)
        ticks = np.arange(-np.floor(most), np.floor(most) + 1)
        bar.set_ticks(list(ticks), labels=[f"{2.0**tick:g}" for tick in ticks])
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure


def level_curves(panels: Mapping[str, Any], levels: Sequence[float]) -> Any:
    """Speed-up over synchronous SGD by the share of the way that is asked for.

    Args:
        panels: By name and method, at each level low, mean and high of the logarithm.
        levels: Shares of the way.
    """
    places = np.arange(len(levels))
    with drawing():
        figure = new_figure(3.6 * len(panels) + 0.6, 4.4)
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (panel, methods) in zip(grid, panels.items(), strict=True):
            axes.axhline(1.0, color="black", linewidth=1.0)
            shown = [name for name in SHOWN if name in methods]
            for at, name in enumerate(shown):
                low, mean, high = np.exp(np.array(methods[name], float)).T
                colour = COLOURS[SHOWN.index(name)]
                if name in BANDS:
                    axes.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
                axes.plot(
                    places, mean, color=colour, linestyle=DASHES[at % len(DASHES)],
                    label=name if axes is grid[0] else None,
                )  # fmt: skip
            axes.set_yscale("log", base=2)
            axes.set_title(panel)
            axes.set_xticks(places[::2], [f"{100 * levels[at]:g}" for at in places[::2]])
            axes.set_xlabel("target [% of the way]")
        grid[0].set_ylabel("times as fast as synchronous SGD")
        grid[0].yaxis.set_major_formatter("{x:g}")
        figure.legend(loc="outside lower center", ncols=4)
    return figure
