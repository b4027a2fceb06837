"""A contribution that is not what the wall takes it for is refused before any budget is spent."""

import numpy as np
import pytest

import pymc_dp
from pymc_dp.contributions import gradients
from pymc_dp.privacy.contribution import RowContribution, UnitVector
from pymc_dp.privacy.norms import row_norms
from pymc_dp.privacy.private_data import ColumnSpec
from pymc_dp.privacy.probe import FaultyContributionError, probe, probe_units
from pymc_dp.privacy.wall import PrivacyWall
from tests import zoo
from tests.guarantees.toys import rows, vectors

SPEC = {"x": ColumnSpec((None, 3), "float64")}


SHORT_NORMS = {
    "one per cent": lambda batch, context: 0.99 * row_norms(batch["x"]),
    "one for all": lambda batch, context: row_norms(batch["x"]).max(keepdims=True),
}
FAULTY_SUMS = {
    "single precision": lambda batch, context, weights: (
        (weights.astype("float32") @ batch["x"].astype("float32")) * np.float32(1 + 1e-5)
    ),
    "the number of records": lambda batch, context, weights: (
        weights @ batch["x"] / max(1, len(weights))
    ),
    "squared weights": lambda batch, context, weights: weights**2 @ batch["x"],
    "too short": lambda batch, context, weights: (weights @ batch["x"])[:1],
}
FAULTS = [vectors(3)._replace(norms=norms) for norms in SHORT_NORMS.values()]
FAULTS += [vectors(3)._replace(weighted_sum=total) for total in FAULTY_SUMS.values()]


@pytest.mark.parametrize("faulty", FAULTS, ids=[*SHORT_NORMS, *FAULTY_SUMS])
def test_a_faulty_contribution_is_caught(faulty):
    with pytest.raises(FaultyContributionError):
        probe(faulty, SPEC, None)


def test_rows_that_depend_on_the_batch_are_caught():
    def standardised(batch, context):
        return (batch["x"] - batch["x"].mean(axis=0)) / (1e-9 + batch["x"].std(axis=0))

    with pytest.raises(FaultyContributionError, match="depends on the other records"):
        probe(RowContribution(3, 3, standardised), SPEC, None)


def test_units_whose_sums_depend_on_other_units_are_caught():
    probe_units(rows(3), SPEC, None)
    in_row_zero = rows(3)  # the planted fault: the first record gets what all records add
    unit = UnitVector(
        3,
        lambda sums, context: sums,
        rows=lambda batch, context: (
            batch["x"].sum(axis=0) * (np.arange(len(batch["x"])) == 0)[:, None]
        ),
    )
    with pytest.raises(FaultyContributionError, match="depends on the other units"):
        probe_units(in_row_zero._replace(unit=unit), SPEC, None)


TOO_LONG = vectors(3)._replace(norms=lambda batch, context: 2 * row_norms(batch["x"]))
WITHOUT_NORMS = vectors(3)._replace(norms=lambda b, c: np.full(len(b["x"]), np.nan))


@pytest.mark.parametrize("contribution", [vectors(3), rows(3), TOO_LONG, WITHOUT_NORMS])
def test_a_contribution_that_keeps_its_word_passes(contribution):
    probe(contribution, SPEC, None)


# --- in a fit ------------------------------------------------------------------------------------


def test_a_fit_whose_norms_are_short_is_refused_before_any_budget_is_spent(monkeypatch):
    genuine = gradients.record_sums

    def short(*args):
        sums = genuine(*args)
        return sums._replace(norms=0.99 * sums.norms)

    monkeypatch.setattr(gradients, "record_sums", short)
    monkeypatch.setattr(PrivacyWall, "__init__", lambda *args: pytest.fail("data were read"))
    model = zoo.build(zoo.hierarchical)
    with pytest.raises(NotImplementedError, match="would not be private .* longer than its norm"):
        pymc_dp.fit(model=model, epsilon=1, delta=1e-5, n=40, progressbar=False)
