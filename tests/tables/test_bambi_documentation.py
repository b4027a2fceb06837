"""Formulas of bambi's documentation: as they stand there, and by what the refusals say to write.

The data are made up, in the form of those of the documentation. With bambi's defaults each is
refused. With these switched off and public priors it is fitted as it stands, or refused once more,
and what the sentence says to write is fitted.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dp
from pymc_dp.driver.fit import set_up

# bambi asks pandas for columns of text in a way that is to change
pytestmark = pytest.mark.filterwarnings("ignore:For backward compatibility")

N = 300
rng = np.random.default_rng(11)
X = rng.uniform(0, 1, N)
PARTIES, FOODS = ["r", "d", "i"], ["other", "fish", "invertebrates"]
SUBJECTS, ANSWERS = np.arange(N) // 10, [*range(1, 8)]
YEARS = np.array([900.0, 1300, 1700])

FRAME = pd.DataFrame(
    {
        "vote": rng.choice(["clinton", "trump"], N),
        "party_id": rng.choice(PARTIES, N),
        "age": rng.integers(18, 90, N),
        "Reaction": 250 + 30 * rng.normal(size=N),
        "Days": np.arange(N) % 10,
        "Subject": SUBJECTS,
        "response": pd.Categorical(rng.choice(ANSWERS, N), ordered=True),
        "action": rng.integers(0, 2, N),
        "intention": rng.integers(0, 2, N),
        "doy": 105 + rng.normal(size=N),
        "year": rng.integers(812, 2016, N).astype(float),
        "y": rng.gamma(2, 1, N),
        "x": X,
        "choice": rng.choice(FOODS, N),
        "length": rng.uniform(1, 4, N),
    }
)


def listed(categories, name):
    return {name: pd.Categorical(FRAME[name], categories=categories, ordered=True)}


NORMAL, POSITIVE = bmb.Prior("Normal", mu=0, sigma=2), bmb.Prior("HalfNormal", sigma=1)
GROUPS = bmb.Prior("Normal", mu=0, sigma=POSITIVE)
ORDERED = pm.distributions.transforms.ordered
THRESHOLDS = bmb.Prior("Normal", mu=[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], sigma=2, transform=ORDERED)
OF_LEVELS = r"The levels of `{}` are those.*name alone a column.*pd\.Categorical\(x, categories="


class Example(NamedTuple):
    formula: str | bmb.Formula  # as it stands
    family: str
    priors: dict[str, object]
    again: str = ""  # why it is still refused with public priors, and what to write
    public: str | bmb.Formula = ""  # the formula that the sentence asks for, if it is another
    columns: Mapping[str, object] = MappingProxyType({})  # and the columns
    fit: Mapping[str, object] = MappingProxyType({})  # and the keywords of the fit


COMMON = {"Intercept": NORMAL, "common": NORMAL}
EXAMPLES = {
    "logistic": Example(
        "vote['clinton'] ~ party_id + party_id:age",
        "bernoulli",
        COMMON,
        OF_LEVELS.format("party_id"),
        columns=listed(PARTIES, "party_id"),
    ),
    "sleep study": Example(
        "Reaction ~ 1 + Days + (Days | Subject)",
        "gaussian",
        COMMON | {"group_specific": GROUPS, "sigma": POSITIVE},
        OF_LEVELS.format("Subject"),
        fit={"unit": "Subject"},
    ),
    "ordinal": Example(
        "response ~ 0 + action + intention + action:intention",
        "cumulative",
        {"common": NORMAL, "threshold": THRESHOLDS},
        r"public=\['response'\]",
        fit={"public": ["response"]},
    ),
    "splines": Example(
        "doy ~ bs(year, knots=YEARS, intercept=True)",
        "gaussian",
        COMMON | {"sigma": POSITIVE},
        "knots=, lower_bound= and upper_bound=",
        "doy ~ bs(year, knots=YEARS, intercept=True, lower_bound=800, upper_bound=2020)",
    ),
    "distributional": Example(
        bmb.Formula("y ~ x", "alpha ~ x"),
        "gamma",
        COMMON | {"alpha": COMMON},
    ),
    "categorical": Example(
        "choice ~ length",
        "categorical",
        COMMON,
        OF_LEVELS.format("choice"),
        columns=listed(FOODS, "choice"),
    ),
}
PUBLIC = {"auto_scale": False, "center_predictors": False}


def made(example, formula=None, columns=None, **settings):
    logging.getLogger("bambi").setLevel(logging.ERROR)
    frame = FRAME.assign(**columns or {})
    return bmb.Model(formula or example.formula, frame, example.family, **settings)


def set_up_for(model, **settings):
    return set_up(model, "dp_advi", None, epsilon=1.0, delta=1e-5, **settings).plan.releases


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
@pytest.mark.parametrize("name", EXAMPLES)
def test_defaults_are_refused_and_public_priors_fitted_or_what_the_refusal_says(name):
    example = EXAMPLES[name]
    with pytest.raises(ValueError, match=r"By its defaults bambi.*auto_scale=False"):
        set_up_for(made(example), **example.fit)
    settings = PUBLIC | {"priors": example.priors}
    if example.again:
        with pytest.raises((ValueError, pymc_dp.PrivacyWarning), match=example.again):
            set_up_for(made(example, **settings))
    model = made(example, example.public, example.columns, **settings)
    assert set_up_for(model, **example.fit)
