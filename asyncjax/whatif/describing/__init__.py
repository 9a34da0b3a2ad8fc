"""A log of workers described: figures, why they differ, correlations, outages, laws that fit."""

from asyncjax.whatif.describing.dependence import Dependence
from asyncjax.whatif.describing.describe import Description, describe
from asyncjax.whatif.describing.figures import Figures
from asyncjax.whatif.describing.fits import Fit
from asyncjax.whatif.describing.outages import Outages
from asyncjax.whatif.describing.spread import Spread

__all__ = ["Dependence", "Description", "Figures", "Fit", "Outages", "Spread", "describe"]
