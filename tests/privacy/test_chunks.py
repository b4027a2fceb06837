"""Partitions answer once each, with what their rows would have added in memory."""

import copy
import os
import pickle
import re
import time
import uuid
from contextlib import contextmanager

import dask
import numpy as np
import pytest

import pymc_dp
from pymc_dp import ReleaseError
from pymc_dp.errors import UnreadableError
from pymc_dp.model import Column, PrivateData
from pymc_dp.privacy import chunks as chunked
from pymc_dp.privacy.chunks import Sealed, borrowed, packed
from pymc_dp.privacy.clipping import Answer, Ask
from pymc_dp.privacy.contribution import Query, RowContribution
from pymc_dp.privacy.private_data import Blocks, UnitBlocks, Units, units_of
from pymc_dp.privacy.randomness import Total
from pymc_dp.privacy.wall import PrivacyWall, in_partitions
from pymc_dp.testing import deterministic_noise
from tests import zoo
from tests.guarantees.toys import before_noise, rows, vectors, wall_of
from tests.plans import plan_from, release_from

ROWS = 48
X = np.random.default_rng(0).normal(size=(ROWS, 3)) * np.linspace(0.1, 3, ROWS)[:, None]
LENGTHS = {"one": (ROWS,), "sixteen": (3,) * 16, "uneven": (1, 0, 20, 27), "rows": (1,) * ROWS}


def blocks_of(x, lengths):
    parts = tuple(x[end - n : end] for n, end in zip(lengths, np.cumsum(lengths), strict=True))
    return Blocks(parts, tuple(lengths), x.shape, x.dtype)


def in_chunks(x=X, lengths=LENGTHS["sixteen"], contribution=None, **settings):
    column = Column(blocks_of(x, lengths), 0, "float64")
    return wall_of({"x": column}, contribution or vectors(3), **settings)


# --- the same rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [vectors, rows])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_partitions_add_up_to_what_one_adds(lengths, kind):
    expected = before_noise(wall_of(X, kind(3))).total
    for order in (np.arange(ROWS), np.argsort(X[:, 0]), np.random.default_rng(1).permutation(ROWS)):
        found = before_noise(in_chunks(X[order], LENGTHS[lengths], kind(3)))
        np.testing.assert_allclose(found.total, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["vips", "dp_sep"])
def test_a_fit_of_chunks_is_that_of_memory(method):
    da = pytest.importorskip("dask.array")
    y = (np.arange(ROWS) % 3 == 0).astype(int)
    model, found = zoo.odds(np.eye(3), np.array([0, 1, 0]), x="x"), []
    # the method's own updates: rounds draw outcomes for records
    terms = {"num_records": ROWS, "noise_aware": False, "epsilon": 5, "delta": 1e-5}
    terms |= {"random_seed": 1, "progressbar": False}
    for data in ({"x": X, "y": y}, {"x": da.from_array(X, chunks=(5, 3)), "y": y}):
        with deterministic_noise(1):
            idata = pymc_dp.fit(model=model, data=data, method=method, **terms)
        found.append(idata["posterior"].to_dataset().to_array().values)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-10, atol=1e-10)


# --- batches and draws ---------------------------------------------------------------------------

EYE = np.eye(ROWS)


def test_batches_over_partitions_are_independent_coins():
    settings = {"sampling": "poisson", "sample_rate": 0.25, "clip_norm": 10, "count": 400}
    with deterministic_noise(2):
        wall = in_chunks(EYE, (8, 24, 16), vectors(ROWS), **settings)
        seen = np.array([before_noise(wall).total for _ in range(400)]) > 0.5
    sizes = seen.sum(axis=1)
    assert abs(sizes.var() - ROWS * 0.25 * 0.75) < 5 * 9 * (2 / 400) ** 0.5
    spread = (0.25 * 0.75 / 400) ** 0.5
    assert abs(seen.mean(axis=0) - 0.25).max() < 5 * spread
    # rows of two partitions come together as often as their rates say
    pairs = (seen[:, 0] & seen[:, 47]).mean()
    assert abs(pairs - 0.25**2) < 5 * (0.0625 * 0.9375 / 400) ** 0.5


def drawn(batch, context, generator):
    return {"coin": generator.standard_normal(len(batch["x"]))}


COINS = RowContribution(
    3, 3, lambda batch, context: batch["x"] * batch["coin"][:, None], draw=drawn
)


def test_records_of_different_partitions_and_releases_draw_different_numbers():
    wall = in_chunks(np.eye(3), (1, 1, 1), COINS, clip_norm=100.0, count=4)
    found = np.array([before_noise(wall).total for _ in range(4)])
    assert len(np.unique(found)) == 12


def test_a_task_that_is_run_again_has_the_same_answer(monkeypatch):
    once = chunked._computed

    def several_times(tasks, done):
        for _ in range(3):
            shuffled = np.random.default_rng(0).permutation(len(tasks))
            dask.compute(*[tasks[k] for k in shuffled])
        return once(tasks, done)

    settings = {"sampling": "poisson", "sample_rate": 0.5, "count": 2}
    with deterministic_noise(1):
        wall = in_chunks(contribution=COINS, **settings)
        expected = [wall.release(Query("score", None)).value for _ in range(2)]
    monkeypatch.setattr(chunked, "_computed", several_times)
    with deterministic_noise(1):
        wall = in_chunks(contribution=COINS, **settings)
        found = [wall.release(Query("score", None)).value for _ in range(2)]
    np.testing.assert_array_equal(found, expected)


# --- faults --------------------------------------------------------------------------------------


def of_fewer_rows(answers, earlier):
    return [answers[0]._replace(number=2), *answers[1:]]


WRONG = {
    "doubled": lambda answers, earlier: [*answers[:3], answers[2], *answers[4:]],
    "dropped": lambda answers, earlier: answers[:-1],
    "of an earlier release": lambda answers, earlier: [*earlier[:1], *answers[len(earlier[:1]) :]],
    "of fewer rows": of_fewer_rows,
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_answers_end_the_release(fault, monkeypatch):
    genuine, earlier = chunked._computed, []

    def computed(tasks, done):
        answers = genuine(tasks, done)
        if isinstance(answers[0], bool):
            return answers
        given = WRONG[fault](answers, earlier)
        earlier[:] = answers
        return given

    monkeypatch.setattr(chunked, "_computed", computed)
    wall = in_chunks(count=3)
    if fault == "of an earlier release":
        wall.release(Query("score", None))
    booked = len(wall.made)
    with pytest.raises(ReleaseError, match="did not answer once each"):
        wall.release(Query("score", None))
    assert len(wall.made) == booked + 1


def test_a_partition_beyond_its_bound_ends_the_release():
    def too_long(batch, context, weights):
        return 2 * (weights @ batch["x"]) + (len(weights) == 2) * 100.0

    wall = in_chunks(X, (46, 2), vectors(3)._replace(weighted_sum=too_long))
    with pytest.raises(ReleaseError, match="beyond its bound"):
        wall.release(Query("score", None))


def test_a_partition_that_fails_is_booked_and_not_repeated():
    tried = []

    def fails(batch, context):
        tried.append(len(batch["x"]))
        raise ValueError("secret 98765")

    wall = in_chunks(X, (40, 8), vectors(3)._replace(norms=fails))
    with pytest.raises(ReleaseError, match="failed with ValueError. .* is spent, and nothing"):
        wall.release(Query("score", None))
    assert len(wall.made) == 1
    assert tried in ([8], [40], [8, 40], [40, 8])  # threads stop at the first that fails
    with pytest.raises(ReleaseError, match="no further release"):
        wall.release(Query("score", None))


@pytest.mark.parametrize("error", [MemoryError, type("KilledWorker", (Exception,), {})])
def test_a_release_that_ran_out_of_memory_is_not_tried_again(error, monkeypatch):
    def killed():
        raise error("secret 98765")

    wall = in_chunks()
    monkeypatch.setattr(chunked, "_client", killed)
    with pytest.raises(ReleaseError, match="smaller partitions") as failure:
        wall.release(Query("score", None))
    assert not isinstance(failure.value, UnreadableError)  # which a checkpoint tries again
    assert "98765" not in str(failure.value)


def test_a_partition_that_cannot_be_read_ends_the_release(tmp_path):
    da = pytest.importorskip("dask.array")
    for k in range(4):
        np.save(tmp_path / f"{k}.npy", X[12 * k : 12 * k + 12])
    parts = [
        da.from_delayed(dask.delayed(np.load)(tmp_path / f"{k}.npy"), (12, 3), "float64")
        for k in range(4)
    ]
    x = da.concatenate(parts)
    blocks = Blocks(tuple(x.to_delayed().ravel()), (12,) * 4, (48, 3), np.dtype("float64"))
    wall = wall_of({"x": Column(blocks, 0, "float64")}, vectors(3), count=2)
    wall.release(Query("score", None))
    os.remove(tmp_path / "2.npy")
    with pytest.raises(ReleaseError, match=r"could not be read, .* \(FileNotFoundError\)"):
        wall.release(Query("score", None))
    assert len(wall.made) == 2


def persons_in_chunks(codes, numbers):
    """Hold persons of two records each, in partitions of four rows."""
    x = Column(blocks_of(X[: len(codes)], (4,) * (len(codes) // 4)), 0, "float64")
    units = UnitBlocks("id", blocks_of(codes, x.values.lengths), numbers)
    release = release_from("score", "full", 1.0, 1.0, 1.0, 2)
    plan = plan_from((release,), "add_remove", 1e-5, "pld", unit="id")
    return PrivacyWall(PrivateData({"x": x}, units), {"score": vectors(3)}, plan)


LARGE_CODES = np.uint64(2**60) + np.repeat(np.arange(8), 2).astype("uint64")


def test_codes_of_every_whole_kind_tell_persons_apart():
    expected = before_noise(persons_in_chunks(LARGE_CODES.astype("int64"), (2,) * 4)).total
    found = before_noise(persons_in_chunks(LARGE_CODES, (2,) * 4)).total
    np.testing.assert_array_equal(found, expected)


def test_persons_that_are_merged_end_the_release(monkeypatch):
    def compared_as_floats(codes, name):
        order = np.argsort(codes, kind="stable")
        firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        return Units(name, order, np.append(firsts, len(codes)))

    monkeypatch.setattr(chunked, "units_of", compared_as_floats)
    with pytest.raises(ReleaseError, match="unit=`id` has a partition with other codes"):
        persons_in_chunks(LARGE_CODES, (2,) * 4).release(Query("score", None))


def test_codes_that_change_between_two_reads_end_the_release():
    codes = np.repeat(np.arange(8), 2)
    wall = persons_in_chunks(codes, (2,) * 4)
    wall.release(Query("score", None))
    codes[:4] = 1  # blocks are views: the first partition now holds one person
    with pytest.raises(ReleaseError, match="unit=`id` has a partition with other codes"):
        wall.release(Query("score", None))


ASK = Ask(0, "score", np.array([98765]), 98765, 98765.0)
HELD = {
    "question": Sealed((ASK, 0, b"98765")),
    "sum": Total(np.full(2, 98765.0), 98765),
    "answer": Answer(0, 0, 98765, np.full(2, 98765.0)),
    "ask": ASK,
    "units": units_of(np.array([98765]), "98765"),
}


@pytest.mark.parametrize("held", HELD)
def test_what_the_wall_and_its_tasks_hold_prints_nothing(held):
    assert repr(HELD[held]).strip("<>").isalpha()


def test_what_reads_all_records_at_once_is_refused():
    da = pytest.importorskip("dask.array")
    model = zoo.mean(np.zeros(2), name="b")
    data = {"y": da.from_array(X[:, 0], chunks=10)}
    with pytest.raises(ValueError, match="reads all records at once"):
        pymc_dp.fit(model=model, data=data, method="dp_ops", epsilon=1, delta=1e-5)


@pytest.mark.parametrize("taken", [pickle.dumps, copy.copy])
def test_what_holds_chunks_is_not_pickled(taken):
    column = Column(blocks_of(X, LENGTHS["one"]), 0, "float64")
    for held in (column.values, PrivateData({"x": column}), in_partitions({"x": column})):
        assert "48" not in re.sub("0x[0-9a-f]+", "", repr(held))
        with pytest.raises(TypeError):
            taken(held)


def test_two_threads_have_compiled_functions_of_their_own():
    recipe = packed(lambda: {"score": vectors(3)})
    with borrowed(recipe) as one, borrowed(recipe) as other:
        assert one is not other
    with borrowed(recipe) as again:
        assert again is one or again is other


# --- workers -------------------------------------------------------------------------------------


@contextmanager
def cluster_of_two(**more):
    distributed = pytest.importorskip("distributed")
    settings = {"host": "127.0.0.1", "dashboard_address": ":0", "silence_logs": "CRITICAL"}
    settings |= {"n_workers": 2, "threads_per_worker": 1, **more}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 10}),
        distributed.LocalCluster(**settings) as cluster,
        distributed.Client(cluster),
    ):
        yield cluster


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_cluster_without_workers_ends_the_release(monkeypatch):
    monkeypatch.setattr(chunked, "NO_WORKERS_SECONDS", 0.2)
    with cluster_of_two(processes=False, protocol="tcp://") as cluster:  # which starts at once
        wall = in_chunks(count=2)
        wall.release(Query("score", None))
        cluster.scale(0)
        with pytest.raises(UnreadableError, match=r"its worker was lost \(WorkerStartTimeoutErr"):
            wall.release(Query("score", None))
    assert len(wall.made) == 2


def totals(contribution, count=3):
    with deterministic_noise(1):
        wall = in_chunks(
            contribution=contribution, sampling="poisson", sample_rate=0.5, count=count
        )
        return [wall.release(Query("score", None)).value for _ in range(count)]


def disturbed(fault, folder):
    """Contribute as `COINS` does, after a fault of the first task to get there."""
    flag = folder / uuid.uuid4().hex

    def prepare(batch, context):
        if not flag.exists():
            flag.touch()
            fault()
        return batch

    return COINS._replace(prepare=prepare)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_workers_answer_as_threads_do_and_faults_change_nothing(tmp_path):
    on_threads = totals(COINS)
    faults = lambda: os._exit(1), lambda: time.sleep(0.3)
    with cluster_of_two():
        found = [totals(COINS)]
        found += [totals(disturbed(fault, tmp_path)) for fault in faults]
    for each in found:
        np.testing.assert_allclose(each, on_threads, rtol=0, atol=1e-12)
