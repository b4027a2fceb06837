"""Trusted numbers are listed, and what holds a number for every record is refused.

Soundness, rules 8, 14 and 21.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_dp.records import separate

N = 40
Y = np.random.default_rng(0).normal(size=N)


def trusted(build):
    with pm.Model() as model:
        build()
    return separate(model)[0].trusted


def sharp_potential():
    b = pm.Normal("b", 0, 1)
    pm.Potential("p", -1e8 * (b - Y.mean()) ** 2)
    pm.Normal("y", b, 1, observed=Y)


def closed_over():
    centre = float(Y.mean())
    prior = pm.CustomDist("b", dist=lambda size: pm.Normal.dist(centre, 1e-3, size=size))
    pm.Normal("y", prior, 1, observed=Y)


def ones():
    b = pm.Normal("b", pt.as_tensor(np.ones(N)).sum(), 1)
    pm.Normal("y", b, 1, observed=Y)


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (sharp_potential, "potential of p: 3 numbers"),
        (closed_over, "prior of b: 2 numbers"),
    ],
)
def test_numbers_in_potentials_and_inside_functions_are_listed(build, line):
    assert line in trusted(build)


def test_a_list_of_trusted_numbers_does_not_tell_how_many_records_there_are():
    assert not any(str(count) in line for line in trusted(ones) for count in range(N - 1, N + 4))


def test_an_initial_value_has_the_shape_of_its_latent():
    with pm.Model() as model:
        model.add_coord("g", length=3)
        b = pm.Normal("b", 0, 1, dims="g", initval=Y)
        pm.Normal("y", b.sum(), 1, observed=Y)
    with pytest.raises(ValueError, match=r"initial value of `b` has the shape .* it needs \(3,\)"):
        separate(model)


@pytest.mark.parametrize("beside", [np.ones((N, 1)), np.zeros((N, 2)), np.eye(N)[:, :3]])
def test_a_coefficient_for_every_record_is_refused_whatever_stands_beside_it(beside):
    design = np.column_stack([np.eye(N), beside])
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=design.shape[1])
        pm.Normal("y", pm.math.dot(pm.Data("Z", design), b), 1, observed=Y)
    with pytest.raises(ValueError, match="`Z` has a column of its own for every single record"):
        separate(model)
