"""VIPS for regressions as the paper has it (Park et al. 2020): the mean solves with averaged sums.

Its own updates by default are rounds; those with ``form="residual"`` move the mean by residuals.
"""

from functools import partial
from typing import NamedTuple

from pymc_dp.contributions.layout import Layout
from pymc_dp.methods.algorithm import VARIATIONAL_BAYES
from pymc_dp.methods.linear import regression
from pymc_dp.methods.linear.quadratic import Scale, from_origin, scaled, variational
from pymc_dp.methods.vips.vips import BOUNDED


class Defaults(NamedTuple):
    """Those of the paper; public numbers."""

    ratio: float = 4.0  # of the two sensitivities


DEFAULTS = Defaults()


def paper_scaled(layout: Layout, scale: Scale) -> Layout:
    """Keep the paper's ratio of sensitivities, 2 and 1/2: noise on the curvature is a quarter."""
    return scaled(layout, scale).with_scales(curvature=DEFAULTS.ratio)


ABSOLUTE = BOUNDED._replace(
    title="absolute",
    algorithm=VARIATIONAL_BAYES,
    expect=lambda records, predictor, backend: from_origin(variational(predictor)),
    step=None,
)
PAPER = ABSOLUTE._replace(
    title="the paper's, for reproduction", scaled=paper_scaled, defaults=(DEFAULTS,)
)
# {value of ``form=``: what builds it}
FORMS = {
    "absolute": partial(regression.build, form=ABSOLUTE),
    "paper": partial(regression.build, form=PAPER),
}
