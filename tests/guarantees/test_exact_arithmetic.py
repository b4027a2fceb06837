"""What is proved is what runs: a record's vector is its own, and noise hides every bit of a sum.

Soundness, rules 37 and 38. A matrix product of a batch takes another kernel from a number of rows
on, so that one record more changed the last bit of all records' predictors, and a histogram turned
it into a whole count for each. And noise in floating point left gaps that told the sum.
"""

import numpy as np
import pytest
from scipy import stats

import pymc_dp
from pymc_dp.contributions.gradients import gradient
from pymc_dp.contributions.scores import DrawnScores, lengths
from pymc_dp.driver.fit import set_up
from pymc_dp.model.compilation import function
from pymc_dp.model.graphs import pt
from pymc_dp.privacy.clipping import SumsByUnit
from pymc_dp.privacy.contribution import Query, RowContribution, unit_vector
from pymc_dp.privacy.norms import each_product, joint_norms, product, rounded_product, row_norms
from pymc_dp.privacy.private_data import ColumnSpec, open_private
from pymc_dp.privacy.probe import is_same_in_any_batch
from pymc_dp.privacy.randomness import SecretRandom
from tests.conformance.model_classes import draw_data, model_of
from tests.guarantees.toys import wall_of

ALPHA = 1e-6
SIZES = [2, 3, 7, 100, 1000, 3000]


@pytest.mark.parametrize("k", [1, 20, 101])
def test_a_product_of_a_row_is_the_same_in_every_batch(k):
    rng = np.random.default_rng(k)
    rows, matrix = rng.normal(size=(max(SIZES), k)), rng.normal(size=(k, 9))
    each = [product(rows[[i, i]], matrix)[0] for i in range(40)]
    for size in SIZES:
        moved = np.roll(rows[:size], 3, axis=0)
        found = np.roll(product(moved, matrix), -3, axis=0)
        assert all((found[i] == each[i]).all() for i in range(min(size, 40)))
    assert np.allclose(product(rows, matrix), rows @ matrix)


@pytest.mark.parametrize("shape", [(5, 3), (21, 21), (150, 150)])
def test_a_rounded_product_is_the_same_in_every_batch_and_close(shape):
    rng = np.random.default_rng(5)
    scales = 10.0 ** rng.uniform(-6, 6, shape[0])  # predictors in raw units
    rows = rng.normal(size=(2000, shape[0])) * scales
    matrix = rng.normal(size=shape) / scales[:, None]
    whole = rounded_product(rows, matrix)
    for size in SIZES[:-1]:
        found = rounded_product(np.roll(rows[:size], 3, axis=0), matrix)
        assert (np.roll(found, -3, axis=0) == whole[:size]).all()
    longest = np.linalg.norm(matrix.T * scales, axis=1).max()
    longest = longest * np.linalg.norm(rows / scales, axis=1)
    assert (np.abs(whole - rows @ matrix).max(axis=1) / longest).max() < 1e-7


def test_a_product_of_doubles_is_not_the_same_in_every_batch():
    rng = np.random.default_rng(6)
    rows, matrix = rng.normal(size=(2000, 21)), rng.normal(size=(21, 21))
    assert any((rows[:size] @ matrix != (rows @ matrix)[:size]).any() for size in range(1, 40))


def test_matrices_of_records_are_multiplied_the_same_in_every_batch():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2000, 8, 5)), rng.normal(size=(8, 2000, 5)).swapaxes(0, 1)
    whole = each_product(left.swapaxes(1, 2), right)
    for i in range(30):
        two = np.asfortranarray(left[[i, i]]), right[[i, i]]
        assert (each_product(two[0].swapaxes(1, 2), two[1])[0] == whole[i]).all()


UFUNCS = [np.exp, np.log, np.log1p, np.expm1, np.tanh, np.sin, np.arctan, np.sqrt, np.square]


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)
def test_a_ufunc_reads_each_number_by_itself(ufunc):
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        for _ in range(100):
            x = rng.normal(size=33) * 10.0 ** rng.integers(-3, 3)
            alone = np.array([ufunc(np.array([v, v]))[0] for v in x])
            beside = np.insert(x, rng.integers(0, 33), rng.choice([np.nan, np.inf, 1e300, 5e-324]))
            strided = np.zeros((34, 3))
            strided[:, 1] = beside
            for found in (ufunc(beside), ufunc(strided[:, 1])):
                kept = np.isin(beside, x)
                assert np.array_equal(found[kept], alone, equal_nan=True)


def test_graphs_of_records_are_computed_row_by_row():
    inputs = X, b, W, stack = pt.matrix("X"), pt.vector("b"), pt.matrix("W"), pt.tensor3("stack")
    outputs = [X @ b, X @ W, pt.tanh(X @ W) @ b, pt.matmul(stack, W), (X.T + 1).sum(axis=0)]
    rng, compute = np.random.default_rng(1), function([*inputs], outputs, "python")
    X, b, W, stack = (rng.normal(size=s) for s in [(2000, 20), (20,), (20, 20), (2000, 3, 20)])
    whole = compute(X, b, W, stack)
    for i in range(0, 2000, 97):
        two = compute(X[[i, i]], b, W, stack[[i, i]])
        assert all((one[0] == every[i]).all() for one, every in zip(two, whole, strict=True))


def numerics(model, **terms):
    return pymc_dp.plan(model, epsilon=1, delta=1e-5, backend="python", **terms).numerics


@pytest.mark.parametrize(
    ("method", "name"), [("dp_advi", "linear"), ("vips", "logistic"), ("dp_sep", "log_linear")]
)
def test_methods_prove_the_arithmetic_that_they_use(method, name):
    assert numerics(model_of(name, draw_data(60, 0)), method=method) == "exact"


def test_functions_that_average_are_among_what_is_proved(monkeypatch):
    """The planted fault: what averages scores under q depends on the other records of a batch."""
    own = DrawnScores.estimated

    def with_neighbours(self, found, root):
        made = own(self, found, root)
        return made if root is None else made._replace(weights=depends_on_a_neighbour(made.weights))

    monkeypatch.setattr(DrawnScores, "estimated", with_neighbours)
    assert numerics(model_of("logistic", draw_data(60, 0))) == "idealized"


def test_units_are_exact_too_and_cancelling_sums_are_not():
    data = draw_data(60, 0)
    of_units = model_of("logistic", data, unit="person_id")
    assert numerics(of_units, unit="person_id") == "exact"
    assert numerics(model_of("belief_net", data), method="vips") == "idealized"


def vectors_of(rows):
    return RowContribution(size=3, width=3, rows=lambda batch, context: rows(batch["x"]))


SPEC = {"x": ColumnSpec((None, 3), "float64")}


def depends_on_the_number_of_rows(x):
    return x * (1 + 2.0**-52 * (len(x) > 100))


def depends_on_a_neighbour(x):
    return x + 2.0**-50 * np.roll(x, 1, axis=0)


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("fault", [depends_on_the_number_of_rows, depends_on_a_neighbour])
def test_a_last_bit_that_is_not_the_records_own_is_caught(fault, units):
    assert is_same_in_any_batch(vectors_of(lambda x: 2 * x), SPEC, None, of_units=units)
    assert not is_same_in_any_batch(vectors_of(fault), SPEC, None, of_units=units)


BAD = [0.0, np.nan, np.inf, 1e150, 1e300, 5e-324]


def norms_of_rows(vectors):
    return row_norms(vectors.reshape(-1, vectors.shape[-1])).reshape(vectors.shape[:-1])


def norms_of_parts(vectors):
    return joint_norms(*np.moveaxis(vectors, -1, 0))


@pytest.mark.parametrize("norms", [lengths, norms_of_rows, norms_of_parts])
@pytest.mark.parametrize("d", [1, 2, 5, 33])
def test_a_record_that_is_not_finite_changes_no_other_norm(norms, d):
    rng = np.random.default_rng(d)
    vectors = rng.normal(size=(500, 3, d))
    alone = norms(vectors)
    for bad in BAD:
        beside = norms(np.concatenate([vectors, np.full((1, 3, d), bad)]))
        assert (beside[:-1] == alone).all()


def test_a_branch_for_the_whole_batch_is_caught():
    def norms_of_one_branch(vectors):
        """Compute all norms again where one is not finite, as earlier versions did."""
        norms = np.sqrt(np.einsum("rkd,rkd->rk", vectors, vectors))
        return norms if np.isfinite(norms).all() else norms_of_rows(vectors)

    with pytest.raises(AssertionError):
        test_a_record_that_is_not_finite_changes_no_other_norm(norms_of_one_branch, 33)


def test_a_unit_adds_the_same_alone_and_in_company():
    model = model_of("persons", draw_data(120, 0))
    setup = set_up(model, "dp_advi", None, epsilon=1.0, delta=1e-6, unit="person_id")
    contribution = gradient(setup.records, "python")
    partition = open_private(setup.data)
    z = np.atleast_2d(setup.records.start)

    sums = SumsByUnit(partition, contribution, z, np.random.default_rng(0))
    every, unit = np.arange(partition.number), unit_vector(contribution)
    whole = sums._sums(unit, 1000, *partition.units.rows(every))
    for i in every:
        [alone] = sums._sums(unit, 1000, *partition.units.rows(every[[i]]))
        assert (alone == whole[i]).all()


SD = 1.7


def is_rounded_from_zero(values, sd):
    """Whether values are fl(sd s) / 2 of a double s: always so for such noise on a sum of 0."""
    s, found = 2 * values / sd, np.zeros(values.shape, bool)
    for ulps in range(-2, 3):
        near = s + ulps * np.spacing(s)
        found |= sd * near == 2 * values
    return found


def released(rows, count=60):
    wall = wall_of(rows, clip_norm=1.0, noise_multiplier=SD, count=count)
    return np.concatenate([wall.release(Query("score", None)).value for _ in range(count)])


def shares_of_gaps():
    """Return how many releases of nothing, and of one record, look as if they were of nothing."""
    one = np.full((1, 40), 0.1)
    both = released(np.zeros((0, 40))), released(one)
    return [int(is_rounded_from_zero(values, SD).sum()) for values in both]


def test_gaps_of_the_noise_do_not_tell_the_sum():
    none, one = shares_of_gaps()
    table = [[none, 2400 - none], [one, 2400 - one]]
    assert stats.fisher_exact(table).pvalue > ALPHA


def in_floating_point(self, sd, step, size):
    """Draw the noise of earlier versions, added to a sum that is not on the grid."""
    draws = np.random.default_rng(in_floating_point.seed).standard_normal((4, size)).sum(axis=0)
    in_floating_point.seed += 1
    return OnTheWay(sd * draws / 2, step)


class OnTheWay:
    __array_ufunc__ = None

    def __init__(self, noise, step):
        self.noise, self.step = noise, step

    def __radd__(self, total):
        return (total * self.step + self.noise) / self.step


def test_gaps_of_noise_in_floating_point_do(monkeypatch):
    in_floating_point.seed = 0
    monkeypatch.setattr(SecretRandom, "rounded_gaussian", in_floating_point)
    none, one = shares_of_gaps()
    assert none == 2400
    assert one < 2300
