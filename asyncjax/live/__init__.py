"""Live: the rules of `traces` drive real workers, and what happened is a trace.

`train` runs a server in front of an engine (`processes`, `threads`, `devices`, `executors`), in
real time, or in the time of a clock (`virtual`). Its `Run` is like any other: `run.trace` can be
saved, plotted, replayed with `simulation.replay`, or asked what another rule would have done.

| name | what it does |
|---|---|
| `train` | trains with real workers |
| `processes`, `threads`, `devices`, `ray`, `executors` | engines: where the workers are |
| `virtual` | workers that keep the time of a clock |
| `Engine` | what all of them are |
| `rerun` | the same run again, arrival by arrival |
| `timing`, `Timing`, `service_of`, `to_csv` | what was measured, as numbers and as CSV |
| `WorkerEvents` | how often workers were lost, came back, waited (`run.worker_events`) |
| `SetUpError`, `WorkerError` | a worker could not be set up; a gradient failed at its worker |
"""

from asyncjax.live.engines import (
    Engine as Engine,
    devices as devices,
    executors as executors,
    processes as processes,
    threads as threads,
)
from asyncjax.live.measured import (
    Timing as Timing,
    service_of as service_of,
    timing as timing,
    to_csv as to_csv,
)
from asyncjax.live.ray_engine import ray as ray
from asyncjax.live.training import WorkerError as WorkerError, rerun as rerun, train as train
from asyncjax.live.worker_pool import (
    SetUpError as SetUpError,
    WorkerEvents as WorkerEvents,
    virtual as virtual,
)
