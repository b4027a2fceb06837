"""Where few vectors span a record's scores, what it adds is what formed scores would add."""

import warnings
from functools import cache

import numpy as np
import pytest

from pymc_dp.contributions import channels, whitened
from pymc_dp.contributions import scores as module
from pymc_dp.contributions.channels import orthonormal, sum_of_products
from pymc_dp.contributions.frontier import NoFrontierRuleError
from pymc_dp.contributions.scores import drawn_scores, score_scales
from pymc_dp.contributions.whitened import At, Dispersion, whitened_scores
from pymc_dp.errors import PrivacyWarning
from pymc_dp.privacy.contribution import for_units, unit_sums, with_draws
from pymc_dp.privacy.probe import FaultyContributionError, probe
from tests import zoo

# models, and how many vectors span the scores of a record
FACTORED = {"logistic": 1, "two_indices": 1, "horseshoe": 1, "transposed": 1, "zero_inflated": 2}
FACTORED |= {"weibull": 2, "hierarchical": 3, "categorical": 3, "neural_network": 6}
BOUNDS = [(0.4, 1.0), (3.0, 9.0), (np.inf, np.inf)]
ROWS = np.arange(zoo.N)


@cache
def separated(name):
    with warnings.catch_warnings(category=PrivacyWarning, action="ignore"):  # small groups
        return zoo.separated(zoo.build(zoo.ACCEPTED[name]))


@cache
def made(name):
    records, columns = separated(name)
    factored = drawn_scores(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "record_channels", refuse)
        formed = drawn_scores(records)
    assert factored.channels > formed.channels == 0
    return records, columns, factored, formed


def refuse(*args):
    raise NoFrontierRuleError


def context(name, bounds=BOUNDS[0], diagonal=False):
    rng, d = np.random.default_rng(1), made(name)[0].size
    W = 1 + rng.random(d) if diagonal else np.eye(d) + rng.normal(0, 0.2, (d, d))
    point, direction = rng.normal(0, 0.3, d), rng.normal(size=d)
    return At(point, W, *bounds, direction=direction / np.linalg.norm(direction))


def batch_of(name, at, drawn=lambda contribution: contribution):
    _, columns, factored, _ = made(name)
    batch = {leaf: column.take(ROWS) for leaf, column in columns.items()}
    return with_draws(drawn(whitened_scores(factored)), batch, at, np.random.default_rng(0))


def vectors_and_norms(contribution, batch, at):
    held = contribution.prepare(batch, at)
    norms = contribution.norms(held, at)
    one = np.eye(len(norms))
    return np.array([contribution.weighted_sum(held, at, each) for each in one]), norms


def assert_equal(found, expected):
    # scores are whitened by products of 26 bits, and vectors that span them by others
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-7 * abs(expected).max())


@pytest.mark.parametrize(("name", "predictors"), FACTORED.items())
def test_vectors_and_norms_are_those_of_formed_scores(name, predictors):
    _, _, factored, formed = made(name)
    assert factored.channels == predictors
    for diagonal in (False, True):
        for bounds in BOUNDS:
            at = context(name, bounds, diagonal)
            batch = batch_of(name, at)
            found = vectors_and_norms(whitened_scores(factored), batch, at)
            expected = vectors_and_norms(whitened_scores(formed), batch, at)
            for one, other in zip(found, expected, strict=True):
                assert_equal(one, other)
    for one, other in zip(
        vectors_and_norms(score_scales(factored), batch, at.point),
        vectors_and_norms(score_scales(formed), batch, at.point),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_a_weight_that_is_not_finite_shows_whatever_other_records_are():
    weights = np.array([[[np.inf]], [[1.0]]])
    with np.errstate(invalid="ignore"):  # as inside the wall
        alone, beside = (channels.coordinates(np.array([[[0.0, x]]]), weights) for x in (0.0, 1.0))
    assert np.isnan(alone[0]).all()
    assert np.isnan(beside[0]).all()


@pytest.mark.parametrize("name", ["weibull", "hierarchical"])
@pytest.mark.parametrize("diagonal", [False, True])
def test_they_are_so_where_scores_of_the_dispersion_are_clipped_by_themselves(name, diagonal):
    *_, factored, formed = made(name)
    own = np.arange(factored.d) == factored.d - 1
    for bounds in BOUNDS[:2]:
        at = context(name, bounds, diagonal)
        W = at.whitening if diagonal else np.where(np.equal.outer(own, own), at.whitening, 0.0)
        at = at._replace(whitening=W, dispersion=Dispersion(own, bound=0.2, share=0.3))
        batch = batch_of(name, at._replace(dispersion=None))
        found, expected = (
            vectors_and_norms(whitened_scores(scores._replace(dispersion=own)), batch, at)
            for scores in (factored, formed)
        )
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)


@pytest.mark.parametrize("name", ["logistic", "hierarchical", "neural_network"])
@pytest.mark.parametrize("diagonal", [False, True])
def test_units_add_what_formed_scores_would_add(name, diagonal):
    at = context(name, diagonal=diagonal)
    batch, owner, good = batch_of(name, at, for_units), ROWS // 4, ROWS != 5
    found = []
    for scores in made(name)[2:]:
        contribution = whitened_scores(scores)
        sums = unit_sums(contribution.unit, contribution.prepare(batch, at), at, owner, good)
        found.append(contribution.unit.vectors(sums, at))
    assert_equal(*found)
    sums = [
        unit_sums(scales.unit, scales.prepare(batch, at.point), at.point, owner, good)
        for scales in map(score_scales, made(name)[2:])
    ]
    assert_equal(*sums)


@pytest.mark.parametrize("name", ["logistic", "hierarchical"])
def test_rows_of_zeros_and_missing_numbers_change_no_other_record(name):
    _, columns, factored, formed = made(name)
    at = context(name)
    batch = batch_of(name, at)
    leaf = next(leaf for leaf in columns if leaf != "y" and batch[leaf].dtype == "float64")
    batch[leaf][2], batch[leaf][6] = 0.0, np.nan
    good = {n: x[ROWS != 6] for n, x in batch.items()}
    with np.errstate(all="ignore"):  # as inside the wall
        for contribution, at_point in (
            (whitened_scores(factored), at),
            (score_scales(factored), at.point),
        ):
            norms = contribution.norms(contribution.prepare(batch, at_point), at_point)
            assert np.flatnonzero(~np.isfinite(norms)).tolist() == [6]
    of_good = vectors_and_norms(whitened_scores(formed), good, at)
    for one, other in zip(
        vectors_and_norms(whitened_scores(factored), good, at), of_good, strict=True
    ):
        assert_equal(one, other)


def unnormalised(vectors):
    return vectors, np.broadcast_to(np.eye(len(vectors))[:, :, None], (len(vectors),) * 2 + (1,))


def not_orthogonal(vectors):
    norms = np.linalg.norm(vectors, axis=2)
    return vectors / norms[:, :, None], np.eye(len(vectors))[:, :, None] * norms


@pytest.mark.parametrize("fault", [unnormalised, not_orthogonal])
def test_norms_in_coordinates_that_are_not_orthonormal_are_seen(fault, monkeypatch):
    _, columns, factored, _ = made("hierarchical")
    spec = {leaf: column.spec for leaf, column in columns.items()}
    contribution, at = whitened_scores(factored), context("hierarchical", BOUNDS[1])
    with np.errstate(all="ignore"):
        probe(contribution, spec, at)
        monkeypatch.setattr(whitened, "orthonormal", fault)
        with pytest.raises(FaultyContributionError):
            probe(contribution, spec, at)


def test_bases_are_orthonormal_whatever_the_vectors():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(4, 600, 7)) * 10.0 ** rng.uniform(-150, 150, (4, 600, 1))
    vectors[1, :100] = 3 * vectors[0, :100]
    vectors[2, 100:200] = vectors[0, 100:200] * (1 + 1e-9 * rng.normal(size=(100, 7)))
    vectors[:, 200:210], vectors[0, 210:300] = 0.0, 0.0
    Q, R = orthonormal(vectors)
    gram = np.einsum("ird,jrd->rij", Q, Q)
    lengths = gram.diagonal(axis1=1, axis2=2)
    np.testing.assert_allclose(gram, np.eye(4) * lengths[:, None], atol=1e-12)
    assert np.minimum(abs(lengths), abs(lengths - 1)).max() < 1e-12
    back = np.einsum("ijr,ird->jrd", R, Q)
    scale = np.linalg.norm(vectors, axis=2, keepdims=True)
    assert (abs(back - vectors) <= 1e-13 * scale).all()


@pytest.mark.parametrize("exponent", [-310, -200, -155, -141, 0, 139, 155, 161.7, 300])
def test_one_vector_of_any_length_is_a_basis_of_its_own_norm(exponent):
    norm = 10.0**exponent
    vectors = np.array([[[3.0, 4.0], [0.6 * norm, -0.8 * norm], [0.0, 0.0]]])
    Q, R = orthonormal(vectors)
    packed = np.full((3, 1), 0.5)
    np.testing.assert_allclose(sum_of_products(Q[:, :1], packed[:1]).trace(), 0.5)
    # a shorter vector counts as 0, and a longer one as not finite, and so does what is made of it
    size = 0.0 if norm < 1e-280 else norm if norm < 1e290 else np.nan
    assert R[0, 0, 1] == pytest.approx(size, rel=1e-9, nan_ok=True)
    far = sum_of_products(Q[:, 1:2], packed[1:2]).trace()
    assert far == pytest.approx(0.5 * np.sign(size), rel=1e-9, nan_ok=True)
    assert sum_of_products(Q[:, 2:], packed[2:]).trace() == 0
