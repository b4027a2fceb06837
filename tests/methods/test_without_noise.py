"""Without noise nothing is clipped unless a clip norm is given: such fits are references."""

import math

import pytest

from pymc_dp.driver.fit import set_up
from pymc_dp.methods.mixture.sketch import SKETCH
from pymc_dp.methods.registry import METHODS
from tests.conformance.model_classes import draw_data, model_of

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.errors.PrivacyWarning")

PRIVATE = [name for name, spec in METHODS.items() if spec.private]
# rounds in whitened coordinates ask for clip norms of their own, release by release
STEPS = {method: {"noise_aware": False} for method in ("dp_advi", "dp_fullrank_advi")}
# of each method, and of each kind of its releases
OF_EACH_KIND = [(method, "logistic") for method in PRIVATE]
OF_EACH_KIND += [("vips", name) for name in ("conjugate", "mixture", "topics", "belief_net")]
OF_EACH_KIND += [("dp_sep", name) for name in ("mixture", "network")]
# vips makes rounds of yes-no outcomes: their clip norms follow from the releases before
CASES = [case for case in OF_EACH_KIND if case != ("vips", "logistic")]


def clip_norms(method, name, **settings):
    model = model_of(name, draw_data(29, seed=0))
    releases = set_up(model, method, None, epsilon=math.inf, **settings).plan.releases
    # a sketch's vectors are no longer than 1: there is nothing to clip
    return {release.clip_norm for release in releases if release.name != SKETCH}


@pytest.mark.parametrize(("method", "name"), CASES)
def test_nothing_is_clipped_unless_a_clip_norm_is_given(method, name):
    assert clip_norms(method, name, **STEPS.get(method, {})) == {math.inf}


@pytest.mark.parametrize(("method", "name"), OF_EACH_KIND)
def test_a_clip_norm_that_is_given_holds_without_noise(method, name):
    steps = STEPS.get(method, {})
    given = "loglik_bound" if method == "dp_ops" else "clip_norm"
    assert clip_norms(method, name, **steps, **{given: 0.7}) == {0.7}
