"""Private data show nothing, and what cannot be read is refused before any budget is spent."""

import copy
import multiprocessing
import pickle

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

import pymc_dp
from pymc_dp import ReleaseError
from pymc_dp.driver.fit import set_up
from pymc_dp.model import Column, PrivateData
from pymc_dp.privacy.contribution import Query
from pymc_dp.privacy.private_data import ColumnSpec, open_private, units_of
from pymc_dp.privacy.wall import PrivacyWall
from tests import zoo
from tests.guarantees.toys import before_noise, wall_of

SECRET = 98765.4321
ROWS = np.full((30, 2), SECRET)


def data(codes=None):
    units = None if codes is None else units_of(np.asarray(codes), "person")
    return PrivateData({"x": Column(ROWS, 0, "float64")}, units)


@pytest.mark.parametrize("show", [repr, str, lambda held: f"{held}", lambda held: repr([held])])
def test_nothing_is_shown(show):
    for held in (data(), data(np.arange(30)), Column(ROWS, 0, "float64"), data().spec):
        text = show(held)
        assert "98765" not in text
        assert "30" not in text  # not the number of records either


@pytest.mark.parametrize(
    "taken", [pickle.dumps, copy.copy, copy.deepcopy, list, dict, vars, len, lambda held: held["x"]]
)
def test_nothing_is_taken(taken):
    with pytest.raises(TypeError):
        taken(data())


def test_what_is_public_holds_no_number_of_records():
    held = data(np.arange(30) // 3)
    assert dict(held.spec) == {"x": ColumnSpec((None, 2), "float64")}
    assert held.unit == "person"
    assert held.spec["x"].zeros(4).shape == (4, 2)
    assert not hasattr(held, "columns")
    assert open_private(held).units.number == 10


def test_a_prepared_fit_shows_no_data():
    model = zoo.line(np.linspace(SECRET, SECRET + 1, 60).reshape(30, 2), ROWS[:, 0])
    found = set_up(model, "dp_advi", 6, epsilon=1.0, delta=1e-5)
    assert "9876" not in repr(found)
    with pytest.raises(TypeError, match="must not be pickled"):
        pickle.dumps(found.data)


# --- containers ----------------------------------------------------------------------------------

FORMATS = ["csr", "csc", "coo", "dia", "bsr", "lil", "dok"]


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("form", FORMATS)
def test_every_sparse_matrix_is_read(form, kind):
    x = np.random.default_rng(0).normal(size=(50, 3)) * (np.arange(150).reshape(50, 3) % 4 == 0)
    wall = wall_of({"x": Column(kind(x).asformat(form), 0, "float64")})
    dense = wall_of({"x": Column(x, 0, "float64")})
    np.testing.assert_array_equal(before_noise(wall).total, before_noise(dense).total)


class Unreadable:
    """An array that says its shape and fails when rows are asked."""

    shape, dtype, ndim = (20, 3), np.dtype("float64"), 2

    def toarray(self):
        return self

    def __getitem__(self, rows):
        raise OSError(f"secret {SECRET}")


class WrongShape(Unreadable):
    """An array whose rows have another shape than it says."""

    def __getitem__(self, rows):
        return sparse.csr_array(np.ones((len(rows), 2)))


@pytest.mark.parametrize("values", [Unreadable(), WrongShape()])
def test_what_cannot_be_gathered_is_refused_at_once_and_quotes_nothing(values):
    with pytest.raises(ValueError, match="data=`x` .* cannot be gathered") as caught:
        PrivateData({"x": Column(values, 0, "float64")})
    assert "98765" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_clip_norm_at_which_entries_round_is_refused():
    with pytest.raises(ValueError, match="clip_norm=1e-310: it must be at least 1e-12"):
        wall_of(np.ones((3, 2)), clip_norm=1e-310)
    wall = wall_of(np.ones((3, 2)))
    with pytest.raises(ReleaseError, match="clip_norm=1e-310"):
        wall.release(Query("score", None, 1e-310))


# --- a fit while it runs -------------------------------------------------------------------------


def test_a_callback_that_sets_data_does_not_change_those_of_the_fit(monkeypatch):
    held, release = [], PrivacyWall.release

    def watched(self, query):
        [rows] = self._partitions.read(lambda found: found.columns["X"].take(np.arange(50)))
        held.append(rows.copy())
        return release(self, query)

    monkeypatch.setattr(PrivacyWall, "release", watched)
    rng = np.random.default_rng(0)
    model = zoo.line(rng.normal(size=(50, 2)), rng.normal(size=50))
    change = lambda *_: pm.set_data({"X": np.full((7, 2), 1e9)}, model=model)  # noqa: E731
    terms = {"noise_multiplier": 1.0, "delta": 1e-5, "n": 8, "draws": 4, "progressbar": False}
    pymc_dp.fit(model=model, callbacks=[change], **terms)
    for later in held[1:]:
        np.testing.assert_array_equal(later, held[0])


def test_a_fork_of_a_fit_cannot_release(monkeypatch):
    wall = wall_of(np.ones((3, 2)), count=3)
    refused = multiprocessing.get_context("fork").Queue()

    def child():
        try:
            wall.release(Query("score", None))
            refused.put(False)
        except ReleaseError:
            refused.put(True)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert refused.get(timeout=60)
    process.join()
    assert np.isfinite(wall.release(Query("score", None)).value).all()
