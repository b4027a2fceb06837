"""Regressions by rounds in whitened coordinates, the default of `vips` and `dp_sep`."""

from functools import partial

from pymc_dp.methods.gaussian.whitened import whitened_method
from pymc_dp.methods.linear.options import LinearOptions
from pymc_dp.methods.method import Method, OnRealLine
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.model import Records


def by_rounds(settings: LinearOptions) -> OnRealLine:
    """Release scores and curvatures like `dp_advi`, whatever the scales of the features.

    With n records the fixed points of variational updates and of expectation propagation differ
    from the posterior's mode by a share 1/n of its width; noise and clipping differ by far more.
    """

    def build(records: Records) -> Method:
        prior = partial(prior_gradient, records)
        return whitened_method(records, prior, settings.num_records, settings.releases_of_rounds)

    return OnRealLine(build)
