"""Norms of belief nets come from factors, and are those of the vectors that are summed.

Guard 2 of the tests of a guarantee, for the contributions whose latents are inferred behind the
wall: score and curvature are one vector, and are clipped as one.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from hypothesis import strategies as st

from pymc_dp.errors import ReleaseError
from pymc_dp.methods.vips.belief_nets import (
    Context,
    contribution,
    inference_of,
    layout_of,
    recognise,
    scores_at_zero,
)
from pymc_dp.model import constrained
from tests.guarantees.test_sensitivity import C, check_neighbours, covered_by
from tests.zoo import build as model_of
from tests.zoo import separated

J, K, ROWS = 4, 2, 60
BITS = np.random.default_rng(5).integers(0, 2, (ROWS, J))


def belief_net():
    W, c = pm.Normal("W", shape=(J, K)), pm.Normal("c", shape=J)
    z = pm.Bernoulli("z", p=0.3, shape=(ROWS, K))
    pm.Bernoulli("y", logit_p=z @ W.T + c, observed=BITS)


@cache
def compiled():
    """Compile a contribution, and find its columns."""
    records, columns = separated(constrained(model_of(belief_net)))
    structure = recognise(records)
    slopes = scores_at_zero(records, structure.predictor, structure.latent, "python")
    inference = inference_of(structure, None)
    return contribution(layout_of((J, K)), slopes, inference), columns, structure.latent.parameter


# loadings of every size, among them those that a fit starts from
SCALES = [0.0, 0.1, 1.0, 30.0]


def context_at(scale, log_odds):
    rng = np.random.default_rng(6)
    mean, variance = scale * rng.normal(size=(J, K + 1)), rng.uniform(0.01, 1, (J, K + 1))
    return Context(mean, variance, log_odds)


def norms_and_vectors(scale):
    """Return reported norms, and every record's vector: what it adds to a sum by itself."""
    contribution, columns, log_odds = compiled()
    context = context_at(scale, log_odds)
    batch = {leaf: column.take(np.arange(ROWS)) for leaf, column in columns.items()}
    prepared = contribution.prepare(batch, context)
    vectors = [contribution.weighted_sum(prepared, context, one) for one in np.eye(ROWS)]
    return contribution.norms(prepared, context), np.array(vectors)


@pytest.mark.parametrize("scale", SCALES)
def test_norms_are_those_of_the_vectors_that_are_summed(scale):
    norms, vectors = norms_and_vectors(scale)
    dense = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(norms, dense, rtol=1e-9)
    assert (norms >= dense * (1 - 1e-14)).all()


def test_a_norm_without_its_correction_is_caught():
    # r z' alone, as if latents were known: short, or long, by what their covariance adds
    contribution, _, log_odds = compiled()
    context = context_at(1.0, log_odds)
    moments = contribution.prepare({"y": np.asarray(BITS)}, context)
    dense = np.linalg.norm(
        [contribution.weighted_sum(moments, context, one) for one in np.eye(ROWS)], axis=1
    )
    lengths = np.linalg.norm(moments.features, axis=1)
    score = np.linalg.norm(moments.residual, axis=1) * lengths
    faulty = np.hypot(score, 0.3 * lengths**2)
    assert (faulty < 0.99 * dense).any()


def covered(scale=1.0, clip=None, bound=C):
    contribution, columns, log_odds = compiled()
    faulty = contribution._replace(norms=clip) if clip else contribution
    return covered_by(faulty, columns, context_at(scale, log_odds), clip_norm=bound)


RECORDS = st.fixed_dictionaries({"y": st.tuples(*[st.sampled_from([0, 1, -5, 7])] * J)})


@pytest.mark.parametrize("scale", SCALES)
def test_no_record_moves_a_sum_beyond_the_clip_norm(scale):
    check_neighbours(covered(scale), RECORDS, examples=40)


def test_some_record_reaches_the_bound():
    total = covered(30.0)
    assert 0.99 <= np.linalg.norm(total([{"y": (1, 0, 1, 1)}]) - total([])) <= 1


def test_score_and_curvature_clipped_apart_are_caught():
    # the vector is clipped by the longer of its parts, not by the norm of all of it
    def of_the_longest_part(moments, context):
        contribution, _, _ = compiled()
        ones = np.eye(len(moments.features))
        vectors = [contribution.weighted_sum(moments, context, one) for one in ones]
        parts = [np.split(vector, [J * (K + 1)]) for vector in vectors]
        return np.array([max(map(np.linalg.norm, part)) for part in parts])

    with pytest.raises((AssertionError, ReleaseError)):  # the wall checks its sums, too
        check_neighbours(covered(1.0, of_the_longest_part, 0.3), RECORDS, 40)
