"""Methods compared honestly: instances, equal tuning, paired intervals, verdicts by rule.

| name | what it is |
|---|---|
| `compare`, `TunedOver` | all methods tuned alike, then run on instances that tuning never saw |
| `Scene`, `Seeds` | an instance, and the seeds that it is drawn with |
| `Method` | a rule of the server and an optimizer of settings, or a function that makes records |
| `Measure`, `time_to`, `last` | the numbers of a run, and which of them is compared |
| `Knob`, `log_range`, `powers`, `counts`, `choices` | the values of a setting that are searched |
| `Result`, `Claim`, `less` | rows, ratios with intervals, ranks, verdicts, a page |
| `objective` | what an outer optimizer, such as Optuna, makes lowest |
"""

from asyncjax.study.compare import (
    TunedOver as TunedOver,
    compare as compare,
    objective as objective,
)
from asyncjax.study.protocol import Seeds as Seeds
from asyncjax.study.result import Claim as Claim, Result as Result, less as less
from asyncjax.study.scene import (
    Measure as Measure,
    Method as Method,
    Scene as Scene,
    last as last,
    time_to as time_to,
)
from asyncjax.study.search import (
    Knob as Knob,
    choices as choices,
    counts as counts,
    log_range as log_range,
    powers as powers,
)
