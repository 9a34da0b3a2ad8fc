"""What a page is made of."""

from __future__ import annotations

from typing import NamedTuple

from asyncjax.traces.logbook.log import Log
from asyncjax.whatif.advising.advise import Advice
from asyncjax.whatif.comparing.compare import Comparison
from asyncjax.whatif.describing.describe import Description
from asyncjax.whatif.learning.learn import Learning
from asyncjax.whatif.page.words import Words


class Found(NamedTuple):
    """Everything that was found of a log."""

    description: Description
    comparison: Comparison | None  # None: there is nothing to compare, see `words`
    learning: Learning | None
    advice: Advice | None
    words: Words

    @property
    def log(self) -> Log:
        """The log."""
        return self.description.log
