"""A fit goes on where it was, spends nothing twice, and refuses what is not its own."""

import contextlib
import os
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import pymc_dp
from pymc_dp import ReleaseError
from pymc_dp.driver import run
from pymc_dp.driver.run import Checkpoint
from pymc_dp.errors import UnreadableError
from pymc_dp.ledger import file as ledger_file
from pymc_dp.privacy.contribution import Noisy
from pymc_dp.privacy.wall import PrivacyWall
from pymc_dp.testing import deterministic_noise
from tests import zoo

N, SECRET = 60, 98765.4321
RELEASES = 8
STEPS = {"noise_aware": False}  # gradient steps alone


class CrashError(BaseException):
    """The process of the fit ends."""


def model_of(scale=1.0):
    rng = np.random.default_rng(0)
    return zoo.line(rng.normal(size=(N, 2)), np.full(N, SECRET), prior_sd=scale, x="x")


@pytest.fixture(scope="module")
def model():
    return model_of()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.nc"


@pytest.fixture
def ledger(tmp_path):
    return pymc_dp.Ledger(tmp_path / "ledger", epsilon=3, delta=1e-5, dataset="survey")


def fit(model, path, **settings):
    terms = {"n": RELEASES, "epsilon": 1.0, "delta": 1e-5, "random_seed": 1, "draws": 4}
    terms |= {"sample_rate": 0.5, "progressbar": False} | STEPS
    terms |= settings
    if terms.get("method") == "dp_sgld":
        del terms["noise_aware"]
    return pymc_dp.fit(model=model, checkpoint=path, **terms)


def crash_at(monkeypatch, position, place="keep"):
    """End the process at a release: before it is written, or before it is drawn."""
    owner = {"keep": Checkpoint, "release": PrivacyWall}[place]
    genuine, seen = getattr(owner, place), []

    def crashing(*args):
        seen.append(1)
        if len(seen) == position:
            raise CrashError
        return genuine(*args)

    monkeypatch.setattr(owner, place, crashing)


def interrupted(model, path, monkeypatch, position, place="keep", **settings):
    with monkeypatch.context() as patch:
        crash_at(patch, position, place)
        with pytest.raises(CrashError):
            fit(model, path, **settings)


def values(path):
    with closing(sqlite3.connect(path)) as db:
        return [np.frombuffer(x) for [x] in db.execute("SELECT value FROM releases")]


@pytest.mark.parametrize("place", ["keep", "release"])
@pytest.mark.parametrize("method", ["dp_advi", "dp_sgld"])
def test_a_fit_goes_on_where_it_was(model, path, monkeypatch, method, place):
    interrupted(model, path, monkeypatch, 5, place, method=method)
    before = values(path)
    assert len(before) == 4
    idata = fit(model, path, method=method)
    after = values(path)
    assert len(after) == RELEASES == idata["privacy"].attrs["releases_made"]
    np.testing.assert_array_equal(before, after[:4])


def test_a_fit_that_went_on_is_the_one_that_was_never_interrupted(model, tmp_path, monkeypatch):
    """With the noise of each release fixed by its position."""
    path, whole = tmp_path / "fit.nc", tmp_path / "whole.nc"
    genuine = PrivacyWall.release

    def fixed(wall, query):
        noisy = genuine(wall, query)
        noise = np.random.default_rng(len(wall.made)).normal(size=noisy.value.size)
        return noisy._replace(value=noise)

    monkeypatch.setattr(PrivacyWall, "release", fixed)
    interrupted(model, path, monkeypatch, 6)
    expected, found = fit(model, whole), fit(model, path)
    np.testing.assert_array_equal(found["posterior"]["b"], expected["posterior"]["b"])


def test_a_finished_fit_is_returned_again(model, path, monkeypatch):
    first = fit(model, path)
    monkeypatch.setattr(PrivacyWall, "release", lambda *args: pytest.fail("released again"))
    again = fit(model, path)
    np.testing.assert_array_equal(again["posterior"]["b"], first["posterior"]["b"])


OTHERS = {
    "model": {"model": model_of(2.0)},
    "plan": {"epsilon": 2.0},
    "random seed": {"random_seed": 2},
    "method": {"method": "dp_fullrank_advi"},
    "ledger": {"ledger": None},
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_another_fit_is_refused(model, tmp_path, monkeypatch, other):
    path, ledger = tmp_path / "fit.nc", tmp_path / "ledger"
    pymc_dp.Ledger(ledger, epsilon=3, delta=1e-5, dataset="survey")
    interrupted(model, path, monkeypatch, 3, ledger=ledger)
    monkeypatch.setattr(PrivacyWall, "release", lambda *args: pytest.fail("released"))
    with pytest.raises(ValueError, match=f"is of another {other} than this fit"):
        fit(**({"model": model, "path": path, "ledger": ledger} | OTHERS[other]))


def test_a_checkpoint_of_another_version_is_refused(model, path, monkeypatch):
    """A state is computed again from the releases, and another version may compute another one."""
    interrupted(model, path, monkeypatch, 3)
    monkeypatch.setattr(run, "version", lambda name: "0.0.0")
    with pytest.raises(ValueError, match="is of another version of pymc_dp than this fit"):
        fit(model, path)


def test_a_copy_is_refused(model, tmp_path, monkeypatch):
    path, copied = tmp_path / "fit.nc", tmp_path / "copy.nc"
    interrupted(model, path, monkeypatch, 3)
    shutil.copy(path, copied)
    with pytest.raises(ValueError, match="is a copy of the file"):
        fit(model, copied)


def test_a_file_of_several_names_is_refused(model, path, tmp_path, monkeypatch):
    interrupted(model, path, monkeypatch, 3)
    os.link(path, tmp_path / "other.nc")
    with pytest.raises(ValueError, match="has several names; keep one of its hard links"):
        fit(model, path)


def test_what_is_no_checkpoint_is_refused(model, path):
    path.write_text("not a checkpoint at all, but a long text of another kind")
    with pytest.raises(ValueError, match="cannot be used"):
        fit(model, path)


@pytest.mark.parametrize("place", ["keep", "release"])
def test_the_ledger_is_paid_once(model, path, ledger, monkeypatch, place):
    interrupted(model, path, monkeypatch, 4, place, ledger=ledger)
    spent = ledger.spent
    interrupted(model, path, monkeypatch, 2, place, ledger=ledger)
    fit(model, path, ledger=ledger)
    assert ledger.spent == spent
    [entry] = ledger_file.fits_of(ledger.path)
    assert entry.booked == entry.planned == RELEASES


def test_two_processes_do_not_write_one_release(model, path, monkeypatch):
    genuine = Checkpoint.keep

    def second(*args):
        genuine(*args)  # the other process was faster
        genuine(*args)

    monkeypatch.setattr(Checkpoint, "keep", second)
    with pytest.raises(ReleaseError, match="another process goes on with the same fit"):
        fit(model, path)


def test_the_file_holds_no_data_and_no_key(model, tmp_path, monkeypatch):
    keys = []
    monkeypatch.setattr("os.urandom", lambda n: keys.append(bytes([7]) * n) or keys[-1])
    fit(model, tmp_path / "fit.nc")
    content = (tmp_path / "fit.nc").read_bytes()
    assert keys
    assert keys[0] not in content
    assert np.float64(SECRET).tobytes() not in content
    assert b"98765" not in content


def test_noise_of_test_mode_and_secret_noise_are_not_mixed(model, tmp_path, monkeypatch):
    known, secret = tmp_path / "known.nc", tmp_path / "secret.nc"
    with deterministic_noise(1):
        interrupted(model, known, monkeypatch, 3)
    interrupted(model, secret, monkeypatch, 3)
    with pytest.raises(ValueError, match="of another noise"):
        fit(model, known)
    with deterministic_noise(1), pytest.raises(ValueError, match="of another noise"):
        fit(model, secret)
    with deterministic_noise(1):
        assert np.isnan(fit(model, known)["privacy"].attrs["epsilon"])


# --- interrupts ----------------------------------------------------------------------------------


def stop_after(count):
    def stop(state, _, i):
        if i == count - 1:
            raise KeyboardInterrupt

    return stop


def test_an_interrupt_frees_the_rest_and_the_same_call_takes_it_again(model, path, ledger):
    part = fit(model, path, ledger=ledger, callbacks=[stop_after(3)])
    [entry] = ledger_file.fits_of(ledger.path)
    assert (entry.booked, entry.ended, len(values(path))) == (3, True, 3)
    assert ledger.spent.amount == pytest.approx(entry.of_plan.rounded().amount * 3 / RELEASES)
    before = values(path)
    whole = fit(model, path, ledger=ledger)
    [entry] = ledger_file.fits_of(ledger.path)
    assert (entry.booked, entry.ended) == (RELEASES, True)
    assert ledger.spent.amount == entry.of_plan.rounded().amount
    np.testing.assert_array_equal(before, values(path)[:3])
    assert part["privacy"].attrs["epsilon"] == whole["privacy"].attrs["epsilon"]


def test_a_fit_whose_rest_others_have_taken_is_refused_and_keeps_its_file(model, path, ledger):
    fit(model, path, ledger=ledger, callbacks=[stop_after(3)])
    ledger.spend("others", rho=0.99 * ledger.left.amount / ledger.terms.order)
    spent = ledger.spent
    with pytest.raises(ValueError, match="other fits have taken it"):
        fit(model, path, ledger=ledger)
    assert ledger.spent == spent
    assert len(values(path)) == 3


def test_a_fit_that_was_settled_while_it_runs_writes_nothing_more(model, path, ledger):

    def settle(state, _, i):
        if i == 2:
            ledger.settle(1)

    with pytest.raises(ReleaseError, match="was settled in"):
        fit(model, path, ledger=ledger, callbacks=[settle])
    assert len(values(path)) == 3 == ledger_file.fits_of(ledger.path)[0].booked


# --- files that are put back ---------------------------------------------------------------------


def values_of_the_last_release(model, tmp_path, monkeypatch, **settings):
    """Fit, and put back a copy of the file that lacks the last release; return its values."""
    path, backup, found = tmp_path / "fit.nc", tmp_path / "backup", []
    genuine = Checkpoint.keep

    def copied(file, *args):
        shutil.copy(file.path, backup)
        genuine(file, *args)

    monkeypatch.setattr(Checkpoint, "keep", copied)
    for _ in range(3):
        fit(model, path, **settings)
        found.append(float(values(path)[-1][0]))
        shutil.copy(backup, path)  # keeps path and inode
    return set(found)


def test_a_file_that_was_put_back_is_refused(model, ledger, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="booked 8 releases of this fit, .* holds 7: it is an old"):
        values_of_the_last_release(model, tmp_path, monkeypatch, ledger=ledger)


def resumed_without_counting(ledger, fit, method, plan, made):
    """Return the planted fault: what is booked and not in the file is made again."""
    return contextlib.nullcontext(lambda release: None)


def test_a_ledger_that_lets_booked_releases_be_made_again_is_caught(
    model, ledger, tmp_path, monkeypatch
):
    monkeypatch.setattr(pymc_dp.Ledger, "resume", resumed_without_counting)
    assert len(values_of_the_last_release(model, tmp_path, monkeypatch, ledger=ledger)) == 3


def test_a_release_that_cannot_be_booked_is_not_written(model, path, ledger, monkeypatch):
    genuine = ledger_file.book
    monkeypatch.setattr(ledger_file, "book", lambda *args: args[2] < 2 and genuine(*args))
    with pytest.raises(ReleaseError, match="nothing is handed out"):
        fit(model, path, ledger=ledger)
    assert len(values(path)) == 2


# --- releases that fail --------------------------------------------------------------------------


def failing_at(monkeypatch, position, error):
    genuine = PrivacyWall._clipped_sum

    def failing(wall, *args):
        if len(wall.made) == position:
            raise error
        return genuine(wall, *args)

    monkeypatch.setattr(PrivacyWall, "_clipped_sum", failing)


def test_a_release_that_failed_is_not_made_again(model, path, monkeypatch):
    with monkeypatch.context() as patch:
        failing_at(patch, 3, ReleaseError("beyond its bound"))
        with pytest.raises(ReleaseError, match="beyond its bound"):
            fit(model, path)
    monkeypatch.setattr(PrivacyWall, "release", lambda *args: pytest.fail("released"))
    with pytest.raises(ValueError, match="a release failed .ReleaseError.*not made again"):
        fit(model, path)


@pytest.mark.parametrize(
    "hindrance", [sqlite3.OperationalError("disk is full"), KeyboardInterrupt()]
)
def test_a_release_that_failed_is_paid_for_though_its_failure_could_not_be_noted(
    model, path, ledger, monkeypatch, hindrance
):

    def hindered(file, db, **values):
        raise hindrance

    with monkeypatch.context() as patch:
        fit(model, path, ledger=ledger, callbacks=[stop_after(2)])
        failing_at(patch, 3, ReleaseError("beyond its bound"))
        patch.setattr(Checkpoint, "_note", hindered)
        with pytest.raises(ReleaseError, match="beyond its bound"):
            fit(model, path, ledger=ledger)
    [entry] = ledger_file.fits_of(ledger.path)
    assert entry.ended
    assert entry.of_booked == entry.of_plan
    with pytest.raises(ValueError, match="booked 8 releases of this fit"):
        fit(model, path, ledger=ledger)


@pytest.mark.parametrize("spills", [False, True])
def test_a_large_release_is_not_on_the_disk_before_it_is_booked(tmp_path, monkeypatch, spills):
    """SQLite writes what its cache does not hold before the end of a transaction, by default."""
    path, size, seen = tmp_path / "fit.nc", 400_000, []
    rng, value = np.random.default_rng(0), np.random.default_rng(1).normal(size=size)
    file = Checkpoint.__new__(Checkpoint)
    file.path = path
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE releases (position, name, value, sd, sample_rate)")
        db.commit()
    file.book = lambda release: seen.append(path.stat().st_size)
    if spills:
        allow_spilling(monkeypatch)
    file.keep(0, "score", Noisy(value, 1.0, 1.0), rng)
    assert (seen[0] > size) == spills
    assert path.stat().st_size > 8 * size


def allow_spilling(monkeypatch):
    """Plant the fault: the cache spills as it does by default."""
    genuine = sqlite3.connect

    class Spilling(sqlite3.Connection):
        def execute(self, text, *args):
            return super().execute(text.replace("cache_spill=OFF", "cache_spill=ON"), *args)

    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **settings: genuine(*args, factory=Spilling, **settings)
    )


def test_partitions_that_could_not_be_read_are_read_again(model, path, ledger, monkeypatch):
    with monkeypatch.context() as patch:
        failing_at(patch, 3, UnreadableError("a partition could not be read"))
        with pytest.raises(ReleaseError, match="could not be read"):
            fit(model, path, ledger=ledger)
    assert fit(model, path, ledger=ledger)["privacy"].attrs["releases_made"] == RELEASES


def test_a_seed_of_numpy_is_that_of_python(model, path):
    first = fit(model, path, random_seed=np.int64(1))
    np.testing.assert_array_equal(fit(model, path)["posterior"]["b"], first["posterior"]["b"])
