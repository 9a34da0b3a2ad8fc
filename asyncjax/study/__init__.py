"""Methods compared honestly: instances, equal tuning, paired intervals, verdicts by rule."""

from asyncjax.study.compare import (
    ALL_SCENES,
    EACH_SCENE,
    UNTUNED,
    compare,
    objective,
)
from asyncjax.study.protocol import Seeds
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.scene import Measure, Method, Records, Scene, last, time_to
from asyncjax.study.search import Knob, Settings, log_range

__all__ = [
    "ALL_SCENES",
    "EACH_SCENE",
    "UNTUNED",
    "Claim",
    "Knob",
    "Measure",
    "Method",
    "Records",
    "Result",
    "Scene",
    "Seeds",
    "Settings",
    "compare",
    "last",
    "less",
    "log_range",
    "objective",
    "time_to",
]
