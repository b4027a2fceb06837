"""The column of units is private and outside the model: its values move no result but by clipping.

Soundness, rule 8 (the number of records) and rule 14 (latents of single units).
"""

import json
import pickle

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import sparse

import pymc_dp
from pymc_dp import NotSeparableError, PrivacyWarning
from pymc_dp.contributions import whitened
from pymc_dp.driver.fit import set_up
from pymc_dp.privacy.private_data import PrivateData, open_private
from pymc_dp.privacy.wall import PrivacyWall
from pymc_dp.testing import deterministic_noise
from tests.plans import plan_from, release_from
from tests.zoo import build as model_of
from tests.zoo import columns_of

N = 60
SUBJECT = np.arange(N) // 3
X = np.random.default_rng(0).normal(size=N)
Y = X + np.random.default_rng(1).normal(size=N)
GOOD = {"unit": "subject_id", "n": 6, "noise_multiplier": 2.0, "delta": 1e-5}
QUIET = {"random_seed": 1, "draws": 4, "progressbar": False, "backend": "python"}


def slopes(codes=SUBJECT, groups=None, first=False):
    with pm.Model() as model:
        if first:
            pm.Data("subject_id", codes, dims="obs")
        eta = pm.Normal("b") * pm.Data("x", X[: len(codes)], dims="obs")
        if groups is not None:
            a = pm.Normal("a", shape=int(np.max(groups)) + 1)
            eta += a[pm.Data("group", groups)]
        if not first:
            pm.Data("subject_id", codes, dims="obs")
        pm.Normal("y", eta, 1.0, observed=Y[: len(codes)], dims="obs")
    return model


@pytest.fixture
def unspent(no_release):
    return lambda model, **settings: pymc_dp.fit(model=model, **{**GOOD, **QUIET, **settings})


# --- what is refused, before anything is spent ---------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"unit": "person"}, "which is no pm.Data of the model; it has .*subject_id"),
        ({"unit": "y"}, "is no pm.Data of the model"),
        ({"public": ["subject_id"]}, "Leave it out of public="),
        ({"data": {"x": X, "y": Y}}, "leaves `subject_id`, which unit= names"),
    ],
)
def test_a_unit_that_cannot_be_is_refused(unspent, settings, says):
    with pytest.raises(ValueError, match=says):
        unspent(slopes(), **settings)


CODES = {
    "too few": (SUBJECT[:-1], r"differ in number: .*59"),
    "two axes": (SUBJECT[:, None], "with 2 axes"),
    "one number": (7, "with 0 axes"),
    "real numbers": (SUBJECT + 0.0, "of float64 values"),
    "names": (np.array(["ann", "bob"])[SUBJECT % 2], "needs one whole number"),
    "missing labels": (np.where(SUBJECT == 2, -1, SUBJECT), "has negative codes"),
    "masked": (np.ma.masked_less(SUBJECT, 3), "is a MaskedArray"),
    "sparse": (sparse.csr_matrix(SUBJECT[:, None]), "is a csr_matrix"),
}


@pytest.mark.parametrize("case", CODES)
def test_codes_that_are_not_one_whole_number_a_record_are_refused(unspent, case):
    codes, says = CODES[case]
    with pytest.raises(ValueError, match=says):
        unspent(slopes(), data={"x": X, "y": Y, "subject_id": codes})


def by_deterministic(who):
    pm.Deterministic("who", who + 1)
    pm.Normal("y", pm.Normal("b"), 1.0, observed=Y)


def by_potential(who):
    pm.Normal("y", pm.Normal("b"), 1.0, observed=Y)
    pm.Potential("p", who * 1.0)


READS = {
    "the person before": lambda who: pm.Normal("y", pm.Normal("a", shape=20)[who - 1], observed=Y),
    "the value": lambda who: pm.Normal("y", pm.Normal("b") * who, 1.0, observed=Y),
    "a deterministic": by_deterministic,
    "an outcome": lambda who: pm.Poisson("y", pm.Gamma("b", 2, 1), observed=who),
    "a potential": by_potential,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_model_that_reads_the_codes_is_refused(unspent, read):
    model = model_of(lambda: read(pm.Data("subject_id", SUBJECT)))
    with pytest.raises(NotSeparableError, match="reads `subject_id`, which unit= names"):
        unspent(model)


def test_a_latent_with_the_columns_dimension_is_refused(unspent):
    with pm.Model(coords={"subject": np.arange(N)}) as model:
        pm.Data("subject_id", np.arange(N), dims="subject")
        z = pm.Normal("z", dims="subject")
        pm.Normal("y", z[pm.Data("index", np.arange(N) // 2)], 1.0, observed=Y)
    with pytest.raises(NotSeparableError, match="has the records' own dimension `subject`"):
        unspent(model)


PARTITIONS = {
    "the same": SUBJECT,
    "the same by other numbers": (SUBJECT * 7 + 3) % 20,
    "visits of a subject": SUBJECT * 2 + np.arange(N) % 2,
}


@pytest.mark.parametrize("groups", PARTITIONS)
def test_a_latent_of_single_units_is_refused(unspent, groups):
    kind = "subject|record"
    with pytest.raises(NotSeparableError, match=f"an entry for every single ({kind})"):
        unspent(slopes(groups=PARTITIONS[groups]))


def test_groups_are_counted_in_units():
    with pytest.warns(PrivacyWarning, match="fewer than 5 records"):
        set_up(slopes(groups=SUBJECT), "vips", **GOOD | {"unit": None})
    with pytest.warns(PrivacyWarning, match="fewer than 5 subjects"):
        set_up(slopes(groups=SUBJECT // 4), "vips", **GOOD)
    assert set_up(slopes(groups=SUBJECT // 5), "vips", **GOOD).plan.unit == "subject_id"


def test_a_wall_with_other_units_than_the_plans_is_refused():
    found = set_up(slopes(), "dp_advi", **GOOD)
    with pytest.raises(ValueError, match="The plan is for unit='subject_id'"):
        PrivacyWall(PrivateData(columns_of(found)), {}, found.plan)


def test_a_unit_that_would_read_like_the_record_or_for_draws_of_a_posterior_is_refused():
    release = release_from("score", "full", 1.0, 1.0, 2.0, 1)
    for name in ("record", "record_id"):
        with pytest.raises(ValueError, match="reads like the record"):
            plan_from((release,), "add_remove", 1e-5, "pld", unit=name)
    release = release_from("draw", "full", 1.0, 1.0, 2.0, 1, "exponential")
    with pytest.raises(ValueError, match="not a unit of several"):
        plan_from((release,), "add_remove", 1e-5, "pld", unit="subject_id")


# --- what a result says, and what it does not ----------------------------------------------------


def test_pymcs_own_fit_takes_a_unit_whose_column_may_set_the_length_of_the_records():
    with slopes(first=True):
        idata = pm.fit(method="dp_advi", **GOOD, **QUIET)
    assert idata["privacy"].attrs["unit"] == "subject_id"
    assert list(idata["posterior"].data_vars) == ["b"]


@pytest.mark.parametrize(
    "more",
    [
        {"method": "dp_advi"},
        {"method": "dp_advi", "noise_aware": False},
        {"method": "dp_advi", "noise_aware": False, "aligned": False},
        {"method": "vips"},
        {"method": "dp_sep"},
    ],
)
def test_units_of_one_record_give_the_fit_of_records(more, monkeypatch):
    # the slope of one record's averaged score is computed, where draws estimate that of a unit's
    monkeypatch.setattr(whitened, "slope_share", lambda made: None)
    fits = []
    for unit in (None, "subject_id"):
        settings = GOOD | QUIET | more | {"unit": unit, "sample_rate": 0.5, "clip_norm": 1.5}
        with deterministic_noise(3):
            fits.append(pymc_dp.fit(model=slopes(np.arange(N)), **settings)["fit"].to_dataset())
    # histograms of records are clipped to 0.2% less, as sums in floating point are
    xr.testing.assert_allclose(fits[1], fits[0], rtol=1e-3, atol=1e-9)


def test_the_report_says_whom_it_protects():
    idata = pymc_dp.fit(model=slopes(), **GOOD, **QUIET)
    attrs = idata["privacy"].attrs
    assert (attrs["privacy_unit"], attrs["unit"]) == ("subject", "subject_id")
    assert json.loads(attrs["dp_event"])["unit"] == "subject_id"
    text = pymc_dp.privacy_report(idata)
    assert "differential privacy per subject" in text
    assert "all records of one code in `subject_id`" in text
    assert "per-subject vectors" in text
    assert "record" not in text.split("Not covered")[0].replace("all records of one code", "")


def test_the_report_takes_the_number_of_units_as_public_alone():
    idata = pymc_dp.fit(model=slopes(), neighbours="zero_out", **GOOD, **QUIET)
    text = pymc_dp.privacy_report(idata)
    assert "the number of subjects" in text
    assert "number of records" not in text
    idata = pymc_dp.fit(model=slopes(), **GOOD | QUIET | {"unit": None})
    assert idata["privacy"].attrs["privacy_unit"] == "record"


@pytest.mark.parametrize(
    "settings", [{"neighbours": "replace_one"}, {"method": "dp_sep", "form": "damped"}]
)
def test_the_number_of_records_of_a_unit_stays_private(settings):
    """Everything public about a fit is the same, whether one subject has 3 records or 43."""
    more = np.concatenate([SUBJECT, np.full(40, 7)])
    data = [
        {"x": X[rows], "y": Y[rows], "subject_id": more[: len(rows)]}
        for rows in (np.arange(N), more)
    ]
    seen = []
    for values in data:
        idata = pymc_dp.fit(model=slopes(), data=values, **settings, **GOOD, **QUIET)
        shapes = {name: group.sizes for name, group in idata.children.items()}
        # what is doubtful follows from noisy sums, and differs from fit to fit
        seen.append((shapes, {**idata["privacy"].attrs, "doubts": ""}))
    assert seen[0] == seen[1]


def own_intercepts(codes):
    with pm.Model() as model:
        a = pm.Normal("a", pm.Normal("mean"), 1.0, shape=int(codes.max()) + 1)
        eta = a[pm.Data("subject_id", codes)]
        pm.Normal("y", eta, 1.0, observed=np.resize(Y, len(codes)))
    return model


@pytest.mark.parametrize("more", [[7] * 40, [20, 20]])
def test_trusted_numbers_do_not_count_the_records_or_units_with_latents(more):
    every = SUBJECT, np.append(SUBJECT, more)
    one, other = (set_up(own_intercepts(c), "dp_advi", **GOOD).records.trusted for c in every)
    assert one == other


def test_codes_do_not_leave():
    canary = 1_234_567
    idata = pymc_dp.fit(model=slopes(np.where(SUBJECT == 4, canary, SUBJECT)), **GOOD, **QUIET)
    held = pickle.dumps(idata.to_dict())
    for form in (str(canary).encode(), np.int32(canary).tobytes(), np.float64(canary).tobytes()):
        assert form not in held


def test_units_with_large_codes_are_kept_apart_by_data():
    """PyMC keeps whole numbers in 32 bits; those handed over are read as they are."""
    codes = SUBJECT + np.where(SUBJECT % 2, 2**32, 0)
    found = set_up(slopes(), "dp_advi", data={"x": X, "y": Y, "subject_id": codes}, **GOOD)
    assert open_private(found.data).units.number == 20


# --- latents of units ----------------------------------------------------------------------------


def nested(own):
    """An effect of each record around that of its person, which the prior alone reads."""
    return pm.Normal("each", own, 0.5, shape=N)


def beside(own):
    return own + pm.Normal("each", 0, 0.5, shape=N)


@pytest.mark.parametrize("mean", [nested, beside])
def test_latents_of_records_beside_those_of_units_are_refused(unspent, mean):
    with pm.Model() as model:
        own = pm.Normal("own", pm.Normal("mu"), shape=20)[pm.Data("subject_id", SUBJECT)]
        pm.Normal("y", mean(own), 1.0, observed=Y)
    with pytest.raises(NotSeparableError, match="only one kind can be integrated out"):
        unspent(model)


def test_a_public_deterministic_of_all_units_is_refused(unspent):
    with pm.Model() as model:
        own = pm.Normal("own", pm.Normal("mu"), shape=20)
        pm.Deterministic("total", own.sum())
        pm.Normal("y", own[pm.Data("subject_id", SUBJECT)], 1.0, observed=Y)
    with pytest.raises(ValueError, match="public= names the deterministic `total`"):
        unspent(model, public=["total"])
