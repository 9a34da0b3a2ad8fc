"""The solver: what the units of a job cost in a slot at the least, and whole units from shares.

| name | what it gives |
|---|---|
| `slot_cost` | the cheapest place for the units of a job in one slot, spread over machines |
| `inside_cost` | the cheapest machine that holds them all |
| `slot_table` | the cheaper of the two, for every amount in every slot; `spread_units` its units |
| `round_slot`, `round_randomly` | whole units from fractions of units |
| `cheapest_by_slot` | which amount to train in which slot |

All are pure functions, for `jit` and `vmap`. A machine's room is a concave line of pieces, workers
fill the cheapest pieces, one multiplier decides who hosts servers (`slot_solver`), and many slots
are solved in one queue (`slot_tables`).
"""

from asyncjax.cluster.solver.rounding import Fractions, RoundedSlot, round_randomly, round_slot
from asyncjax.cluster.solver.slot_solver import InsideCost, SlotCost, inside_cost, slot_cost
from asyncjax.cluster.solver.slot_tables import (
    SlotTable,
    cheapest_by_slot,
    slot_table,
    spread_units,
)

__all__ = [
    "Fractions",
    "InsideCost",
    "RoundedSlot",
    "SlotCost",
    "SlotTable",
    "cheapest_by_slot",
    "inside_cost",
    "round_randomly",
    "round_slot",
    "slot_cost",
    "slot_table",
    "spread_units",
]
