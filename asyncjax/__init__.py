"""asyncjax: training with many uneven, late and limited workers, simulated exactly in JAX.

Import a room, then use its names::

    from asyncjax import clocks, problems, simulation, steps, traces
"""

__version__ = "0.1.0"
