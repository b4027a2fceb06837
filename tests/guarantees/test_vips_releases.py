"""Statistics that VIPS does not need to release, it does not release.

What it releases, and what enters a result, is tested in `tests/conformance`; the release itself in
`test_sensitivity`.
"""

import pytest

import pymc_dp
from tests.guarantees import vips_toys
from tests.guarantees.vips_toys import prepared
from tests.zoo import build as model_of


def test_a_hyper_parameter_carries_no_noise_of_its_own():
    model = model_of(vips_toys.poisson_hierarchy)
    settings = {"noise_multiplier": 5.0, "delta": 1e-5, "sampling": "full", "backend": "python"}
    settings["clip_norm"] = 3.0  # asks for sums, where rounds are the default
    idata = pymc_dp.fit(model=model, method="vips", draws=2, progressbar=False, **settings)
    # its shape is 2 by the prior plus 2 by the one rate below it, and so known exactly
    assert idata["fit"]["rate.log_coefficient"].item() == pytest.approx(3, abs=1e-9)
    assert idata["fit"]["rate.rate_noise_sd"].item() == 0
    assert idata["fit"]["r.rate_noise_sd"].item() > 0


def test_statistics_of_the_record_alone_are_released_once():
    builds = (vips_toys.poisson, vips_toys.categorical, vips_toys.mixture)
    methods = [prepared(build, None, noise_multiplier=5.0).method for build in builds]
    once, of_groups, repeated = (method.releases[0].count for method in methods)
    assert (once, of_groups) == (1, 1)
    assert repeated > 1
