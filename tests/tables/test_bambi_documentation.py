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
PARTIES, PROGRAMS, AREAS = ["r", "d", "i"], ["Vocational", "General", "Academic"], [*"CABDEF"]
FOODS, COUNTIES, PLAYERS = ["other", "fish", "invertebrates"], [*range(8, -1, -1)], [*range(9)]
SUBJECTS, ANSWERS = np.arange(N) // 10, [*range(1, 8)]
YEARS = np.array([900.0, 1300, 1700])
EVENT, END = rng.weibull(1.5, N), rng.uniform(0.3, 2, N)

FRAME = pd.DataFrame(
    {
        "vote": rng.choice(["clinton", "trump"], N),
        "party_id": rng.choice(PARTIES, N),
        "age": rng.integers(18, 90, N),
        "Reaction": 250 + 30 * rng.normal(size=N),
        "Days": np.arange(N) % 10,
        "Subject": SUBJECTS,
        "daysabs": rng.negative_binomial(2, 0.3, N),
        "prog": rng.choice(PROGRAMS, N),
        "math": rng.integers(1, 100, N),
        "claimcst0": rng.gamma(2, 0.5, N),
        "agecat": rng.integers(1, 7, N),
        "gender": rng.choice(["M", "F"], N),
        "area": rng.choice(AREAS, N),
        "response": pd.Categorical(rng.choice(ANSWERS, N), ordered=True),
        "action": rng.integers(0, 2, N),
        "intention": rng.integers(0, 2, N),
        "doy": 105 + rng.normal(size=N),
        "year": rng.integers(812, 2016, N).astype(float),
        "y": rng.gamma(2, 1, N),
        "x": X,
        "H": rng.binomial(20, 0.3, N),
        "AB": 20,
        "playerID": rng.choice(PLAYERS, N).astype(str),
        "time": np.minimum(EVENT, END),
        "status": np.where(EVENT < END, "none", "right"),
        "choice": rng.choice(FOODS, N),
        "length": rng.uniform(1, 4, N),
        "log_radon": rng.normal(1.2, 0.8, N),
        "floor": rng.integers(0, 2, N),
        "county": rng.choice(COUNTIES, N),
        "stops": rng.poisson(5, N),
        "eth": rng.choice([1, 2, 3], N),
        "past_arrests": rng.integers(1, 50, N),
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
    then: str = ""  # why it is refused even with these columns, and what to write
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
    "negative binomial": Example(
        "daysabs ~ 0 + prog + scale(math) + prog:scale(math)",
        "negativebinomial",
        {"common": NORMAL, "alpha": POSITIVE},
        OF_LEVELS.format("prog"),
        "daysabs ~ 0 + prog + math + prog:math",
        {"math": (FRAME["math"] - 50) / 20, **listed(PROGRAMS, "prog")},
        "compute a column before the formula by public numbers",
    ),
    "gamma": Example(
        "claimcst0 ~ C(agecat) + gender + area",
        "gamma",
        COMMON | {"alpha": POSITIVE},
        OF_LEVELS.format("agecat"),
        "claimcst0 ~ agecat + gender + area",
        columns=listed([*range(1, 8)], "agecat")
        | listed(["M", "F"], "gender")
        | listed(AREAS, "area"),
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
    "proportion": Example(
        "p(H, AB) ~ 0 + playerID",
        "binomial",
        {"common": NORMAL},
        OF_LEVELS.format("playerID"),
        columns=listed([str(x) for x in range(12)], "playerID"),
    ),
    "censored": Example("censored(time, status) ~ x", "weibull", COMMON | {"alpha": POSITIVE}),
    "categorical": Example(
        "choice ~ length",
        "categorical",
        COMMON,
        OF_LEVELS.format("choice"),
        columns=listed(FOODS, "choice"),
    ),
    "radon": Example(
        "log_radon ~ 1 + floor + (1|county)",
        "gaussian",
        COMMON | {"group_specific": GROUPS, "sigma": POSITIVE},
        OF_LEVELS.format("county"),
        columns=listed(COUNTIES, "county"),
    ),
    "rates": Example(
        "stops ~ C(eth) + offset(np.log(past_arrests))",
        "poisson",
        COMMON,
        OF_LEVELS.format("eth"),
        "stops ~ eth + offset(np.log(past_arrests))",
        columns=listed([3, 2, 1], "eth"),
    ),
    "polynomial": Example(
        "y ~ poly(x, 2)",
        "gaussian",
        COMMON | {"sigma": POSITIVE},
        "say raw=True",
        "y ~ poly(x, 2, raw=True)",
    ),
    "gaussian process": Example(
        "y ~ 0 + hsgp(x, m=10, c=2)",
        "gaussian",
        {"sigma": POSITIVE},
        r"write the model in PyMC: pm\.gp\.HSGP with a public L=",
    ),
}
PUBLIC = {"auto_scale": False, "center_predictors": False}


def made(example, formula=None, columns=None, **settings):
    logging.getLogger("bambi").setLevel(logging.ERROR)
    frame = FRAME.assign(**columns or {})
    return bmb.Model(formula or example.formula, frame, example.family, **settings)


def set_up_for(model, **settings):
    return set_up(model, "dp_advi", None, epsilon=1.0, delta=1e-5, **settings).plan.releases


def process():
    """Write the model that the refusal of hsgp() asks for."""
    with pm.Model() as model:
        covariance = pm.HalfNormal("size") ** 2 * pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("scale"))
        gp = pm.gp.HSGP(m=[10], L=[1.5], cov_func=covariance)
        gp.prior_linearized(np.linspace(0, 1, 5)[:, None])
        basis, sizes = gp.prior_linearized(pm.Data("x", X[:, None]))
        at = basis @ (pm.Normal("weights", shape=10) * sizes)
        pm.Normal("y", at, pm.HalfNormal("sigma"), observed=FRAME["y"].to_numpy())
    return model


@pytest.mark.parametrize("name", EXAMPLES)
def test_bambis_defaults_are_refused_with_the_keywords(name):
    example = EXAMPLES[name]
    with pytest.raises(ValueError, match=r"By its defaults bambi.*auto_scale=False"):
        set_up_for(made(example), **example.fit)


@pytest.mark.filterwarnings("ignore::pymc_dp.PosteriorWarning")
@pytest.mark.parametrize("name", EXAMPLES)
def test_with_public_priors_a_formula_is_fitted_or_by_what_its_refusal_says(name):
    example = EXAMPLES[name]
    settings = PUBLIC | {"priors": example.priors}
    if example.again:
        with pytest.raises((ValueError, pymc_dp.PrivacyWarning), match=example.again):
            set_up_for(made(example, **settings))
    if example.then:
        with pytest.raises(ValueError, match=example.then):
            set_up_for(made(example, columns=example.columns, **settings))
    model = process() if name == "gaussian process" else None
    model = model or made(example, example.public, example.columns, **settings)
    assert set_up_for(model, **example.fit)
