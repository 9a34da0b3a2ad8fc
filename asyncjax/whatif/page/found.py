"""What a page is made of."""

from __future__ import annotations

from typing import NamedTuple

from asyncjax.traces.log_reader.log import Log
from asyncjax.whatif.advising.advise import Advice
from asyncjax.whatif.comparing.compare import Comparison
from asyncjax.whatif.describing.describe import Description
from asyncjax.whatif.page.words import Words
from asyncjax.whatif.toys.toy_training import ToyResults


class Found(NamedTuple):
    """Everything that was found of a log."""

    description: Description
    comparison: Comparison | None  # None: there is nothing to compare, see `words`
    learning: ToyResults | None
    advice: Advice | None
    words: Words

    @property
    def log(self) -> Log:
        """The log."""
        return self.description.log
