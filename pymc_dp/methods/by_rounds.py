"""Rounds in whitened coordinates, where a method's own statistics would be clipped with a bias.

They are the default of `vips` and `dp_sep` for regressions, and of `vips` for conjugate models
whose statistics have no bound.
"""

from functools import partial

from pymc_dp.methods.gaussian.whitened import whitened_method
from pymc_dp.methods.linear.options import LinearOptions
from pymc_dp.methods.method import Method, OnRealLine
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.model import Records


def by_rounds(settings: LinearOptions) -> OnRealLine:
    """Release scores and curvatures like `dp_advi`, whatever the scales of the data are.

    With n records the fixed points of variational updates and of expectation propagation differ
    from the posterior's mode by a share 1/n of its width; noise and clipping differ by far more.
    """

    def build(records: Records) -> Method:
        prior = partial(prior_gradient, records)
        return whitened_method(records, prior, settings.num_records, settings.releases_of_rounds)

    return OnRealLine(build)
