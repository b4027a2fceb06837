"""The page of distributions says what each method does with each of them."""

import warnings

import numpy as np
import pytest

import pymc_dp
from tests.distributions import END, MODELS, PAGE, START, row
from tests.zoo import build

TABLE = PAGE.read_text(encoding="utf-8").split(START)[1].split(END)[0].splitlines()[2:]
ROWS = dict(zip(MODELS, TABLE, strict=True))
# one of each kind; the slow test goes through all of them
QUICK = "Normal DirichletMultinomial Bernoulli OrderedLogistic NormalMixture PolyaGamma".split()


@pytest.mark.parametrize(
    "name", [x if x in QUICK else pytest.param(x, marks=pytest.mark.slow) for x in MODELS]
)
def test_the_page_has_the_row_that_explain_gives(name):
    assert ROWS[name] == row(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if "yes" in ROWS[name]])
@pytest.mark.filterwarnings("ignore::pymc_dp.errors.PosteriorWarning")
def test_each_method_of_the_page_fits(name):
    *_, drawn, vips, dp_sep, _ = map(str.strip, ROWS[name].split("|"))
    said = {"dp_advi": drawn, "vips": vips, "dp_sep": dp_sep}
    for method, answer in said.items():
        if answer == "no":
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            idata = pymc_dp.fit(
                model=build(MODELS[name]),
                method=method,
                epsilon=1,
                delta=1e-5,
                num_records=60,
                progressbar=False,
                random_seed=1,
            )
        for values in idata["posterior"].data_vars.values():
            assert np.isfinite(values).all()
