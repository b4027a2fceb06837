"""A result says which algorithm ran, and no paper is named for what is not its own."""

import pytest

import pymc_dp
from pymc_dp.driver.fit import set_up
from pymc_dp.methods.method import (
    ADVI,
    NEWTON,
    POLYA_GAMMA_NEWTON,
    SITES_NEWTON,
    VARIATIONAL_BAYES,
)
from pymc_dp.methods.registry import METHODS
from pymc_dp.papers.regression import ALGORITHM_3
from tests.conformance.model_classes import CLASSES, draw_data, model_of

BUDGET = {"epsilon": 1.0, "delta": 1e-5}
QUICK = {"draws": 20, "backend": "python", "progressbar": False}
REGRESSIONS = {
    "dp_advi": NEWTON,
    "dp_fullrank_advi": NEWTON,
    "vips": POLYA_GAMMA_NEWTON,
    "dp_sep": SITES_NEWTON,
}


def algorithms(model, method, **settings):
    budget = {"noise_multiplier": 5.0, "delta": 1e-5} if METHODS[method].private else {}
    return set_up(model, method, settings.pop("n", None), **budget, **settings).method.algorithms


# what a method runs for another class, it runs for one of these, too
TELLING = ("linear", "logistic", "topics", "belief_net", "network")
slow = pytest.mark.slow


@pytest.mark.parametrize(
    "name", [name if name in TELLING else pytest.param(name, marks=slow) for name in CLASSES]
)
def test_explain_says_what_a_fit_with_the_defaults_runs(name):
    model = model_of(name, draw_data(60, seed=1))
    able = {k: fits for k, fits in pymc_dp.explain(model).methods.items() if fits.ok}
    assert able
    for method, fits in able.items():
        assert algorithms(model, method) == (fits.algorithm,)
        assert str(fits.algorithm) in str(fits)


@pytest.mark.parametrize(("method", "own"), REGRESSIONS.items())
def test_every_name_solves_its_own_equation_of_a_logistic_regression(method, own):
    model = model_of("logistic", draw_data(60, seed=1))
    assert algorithms(model, method) == (own,)


@pytest.mark.parametrize(
    ("method", "settings", "ran"),
    [
        ("dp_advi", {"noise_aware": False}, (ADVI,)),
        ("dp_advi", {"n": 40}, (ADVI, NEWTON)),
        ("vips", {"form": "paper"}, (VARIATIONAL_BAYES,)),
        pytest.param(
            "dp_sep",
            {"form": "algorithm3", "num_records": 60},
            (ALGORITHM_3,),
            marks=pytest.mark.filterwarnings("ignore:form='algorithm3'"),
        ),
    ],
)
def test_options_that_ask_for_a_papers_algorithm_get_its_name(method, settings, ran):
    model = model_of("logistic", draw_data(60, seed=1))
    assert algorithms(model, method, **settings) == ran


def test_the_result_its_report_and_its_summary_say_the_algorithm():
    model = model_of("logistic", draw_data(60, seed=1))
    idata = pymc_dp.fit(method="vips", model=model, **BUDGET, **QUICK)
    ran = idata["privacy"].attrs["algorithm"]
    assert ran == str(POLYA_GAMMA_NEWTON)
    assert f"Algorithm of method='vips': {ran}." in pymc_dp.privacy_report(idata)
    assert pymc_dp.summary(idata).attrs["algorithm"] == ran
    assert "Jälkö" not in ran
