"""Breaks that an adversarial review confirmed; each passed the proof, or the clip, before."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_dp import NotSeparableError
from pymc_dp.model import separate
from pymc_dp.privacy.norms import row_norms
from tests.zoo import build as model_of

N = 14
X = np.random.default_rng(0).normal(size=N) + 2.5
Y = X + 1.0


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((5, 9), dtype=bool),
        np.full((5, 3), 2**32 + 1, dtype="int64"),
        np.full((5, 2), -128, dtype="int8"),
    ],
    ids=["booleans", "large integers", "small integers"],
)
def test_norms_of_whole_numbers_are_those_of_real_numbers(rows):
    np.testing.assert_allclose(row_norms(rows), np.linalg.norm(rows.astype(float), axis=1))


def folded_range():
    design = pm.Data("x", np.column_stack([X, X]))
    n = design.shape[0]
    index = pt.arange(n).reshape((pt.switch(pt.eq(n, 2), 2, 1), -1))
    pm.Normal("y", design[index].sum(1)[:, 0] * pm.Normal("b"), 1.0, observed=Y)


def start_from_data():
    x = pm.Data("x", X)
    a = pm.CustomDist(
        "a", logp=lambda value: -(value**2) / 2, support_point=lambda rv, size: x.mean()
    )
    pm.Normal("y", a * x, 1.0, observed=Y)


def gaussian_process_centred_by_the_data():
    gp = pm.gp.HSGP(m=[5], c=2.0, cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    pm.Normal("y", gp.prior("f", X=X[:, None]), 1.0, observed=Y)


@pytest.mark.parametrize(
    "build", [folded_range, start_from_data, gaussian_process_centred_by_the_data]
)
def test_a_model_that_hides_its_data_is_refused(build):
    model = model_of(build)
    with pytest.raises(NotSeparableError):
        separate(model)
