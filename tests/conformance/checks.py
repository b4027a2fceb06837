"""What every private method must satisfy on every class of model that it fits.

Each check raises AssertionError where the method breaks it; `test_planted_faults` shows that each
of them can fail.
"""

import numpy as np
from scipy import stats

import pymc_dp
from pymc_dp import Ledger
from tests.conformance.model_classes import draw_data, model_of
from tests.conformance.recording import record, replayed_total

ROWS, OTHER_ROWS = 29, 37
ALPHA = 1e-6
EXTREMES = (0.0, -0.0, 3.0, 1e25, -1e300, 1e308, 1e-23, 5e-324, np.nan, np.inf, -np.inf)
INTEGERS = (0, 1, 2, -5, 400, 2**40)


def check_noise(found):
    """Every release has the noise that the plan says, and the result claims the plan's epsilon."""
    claimed = found.idata["privacy"].attrs
    assert claimed["epsilon"] == found.plan.epsilon()
    assert claimed["releases_made"] == len(found.exchanges) == found.plan.total
    standard = []
    for (query, total, sd, answer), release in found.planned():
        bound = release.clip_norm if query.clip_norm is None else query.clip_norm
        assert sd >= release.noise_multiplier * bound * (1 - 1e-12)
        assert answer.sd == sd
        standard.append((answer.value - total[: answer.value.size]) / sd)
    pooled = np.concatenate(standard)
    tail = stats.chi2(pooled.size).cdf(pooled @ pooled)
    assert ALPHA / 2 < tail < 1 - ALPHA / 2
    assert np.unique(pooled).size == pooled.size


def check_data_enter_through_releases_alone(found, method, name, **settings):
    """Other data with the same answers from the wall give the same queries and the same result."""
    other = model_of(name, draw_data(OTHER_ROWS, seed=5), **settings)
    answers = [exchange.answer for exchange in found.exchanges]
    check_same_result(found, record(other, method, answers, **settings))


def check_same_result(found, again):
    """Two recordings with the same answers have the same queries and the same result."""
    for first, second in zip(found.exchanges, again.exchanges, strict=True):
        assert same(first.query, second.query)
    assert found.idata.children.keys() == again.idata.children.keys()
    for group in found.idata.children:
        assert found.idata[group].to_dataset().identical(again.idata[group].to_dataset())


def same(first, second):
    """Compare two values of public numbers, arrays, and tuples and mappings of them."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(same, first, second))
    if hasattr(first, "__dataclass_fields__"):
        return same(vars(first), vars(second))
    return bool(np.array_equal(first, second, equal_nan=np.asarray(first).dtype.kind == "f"))


def check_sensitivity(found, name, unit=False):
    """No record or unit moves a sum by more than the clip norm; return the largest move over it.

    Neighbours differ by one record more, or by one record in place of another. Each is replayed at
    the first and at the last query of every kind of release.
    """
    data = draw_data(ROWS, seed=0)
    largest = 0.0
    neighbours = [
        joined(data, records) for records in distinct(records_of(data, 7 if unit else 1), found)
    ]
    for exchange, release in found.first_and_last():
        bound = exchange.sd / release.noise_multiplier
        base = replayed_total(found, data, exchange.query)
        moved = [replayed_total(found, neighbour, exchange.query) for neighbour in neighbours]
        for number, total in enumerate(moved):
            largest = max(largest, float(np.linalg.norm(total - base)) / bound)
            assert np.linalg.norm(total - base) <= bound * (1 + 1e-9)
            assert np.linalg.norm(total - moved[number - 1]) <= 2 * bound * (1 + 1e-9)
    return largest


def distinct(each, found):
    """Leave out records that equal others in all that a fit reads."""
    read = sorted({name.rpartition("/")[2] for name in found.spec})
    return {tuple(records[name].tobytes() for name in read): records for records in each}.values()


def records_of(data, rows):
    """Make up records with extreme entries: everywhere, or in one column each."""
    rng = np.random.default_rng(11)
    yield {name: extreme(values, rows, rng, every=True) for name, values in data.items()}
    for column in data:
        for _ in range(2):
            ordinary = {name: values[:rows] for name, values in data.items()}
            yield {**ordinary, column: extreme(data[column], rows, rng, every=False)}
    loud = 10.0 ** rng.uniform(-3, 6, size=6)
    for scale in loud:
        yield {name: (values[:rows] * scale).astype(values.dtype) for name, values in data.items()}
    # rows of predictors of any length and direction, and outcomes that are far off
    for first in np.arange(30) % (ROWS - rows):
        scale = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-1, 2.5)
        far = {"real": 1e3, "count": 1e3, "words": 1e3, "weight": 1e3}
        for name in ("X", "pair"):
            far[name] = scale * 10.0 ** rng.uniform(-0.5, 0.5, data[name].shape[1:])
        yield {
            name: (values[first : first + rows] * far.get(name, 1.0)).astype(values.dtype)
            for name, values in data.items()
        }


def extreme(values, rows, rng, every):
    choices = EXTREMES if values.dtype.kind == "f" else INTEGERS
    shape = (rows, *values.shape[1:])
    drawn = rng.choice(np.array(choices, values.dtype), size=shape)
    chosen = every | (rng.random(shape) < 0.5)
    return np.where(chosen, drawn, values[:rows])


def joined(data, records):
    """Append records; they are one new person."""
    more = {name: np.concatenate([values, records[name]]) for name, values in data.items()}
    new = np.full(len(records["person_id"]), 10_000)
    return {**more, "person_id": np.concatenate([data["person_id"], new])}


def check_nothing_of_the_data_is_saved(found, folder):
    """Neither a column, nor a record's entry, nor the number of records is in the saved file."""
    path = folder / "result.nc"
    pymc_dp.save(found.idata, path)
    content = path.read_bytes()
    data = draw_data(ROWS, seed=0)
    for values in data.values():
        assert values.tobytes() not in content
    numbers = [data["real"], data["X"].ravel(), data["pair"].ravel(), data["weight"]]
    for number in np.concatenate([*numbers, data["weight"] / 2]):  # the largest one is 2
        assert number.tobytes() not in content
        assert repr(float(number)).encode() not in content
    for node in found.idata.subtree:
        assert ROWS not in node.sizes.values()


def check_stopping(found, spent, model, method, folder, **settings):
    """A fit that stops after one release claims its whole plan, and owes its ledger that one."""
    ledger = new_ledger(folder, settings.get("unit"))
    stopped = record(model, method, ledger=ledger, callbacks=[stop], **settings)
    assert len(stopped.exchanges) == 1 < len(found.exchanges)
    claimed = stopped.idata["privacy"].attrs
    assert claimed["epsilon"] == found.idata["privacy"].attrs["epsilon"] > 0
    assert claimed["releases_made"] == 1
    [(_, release)] = stopped.planned()
    assert ledger.spent.amount == ledger._filter.price(stopped.plan).amounts[release] > 0
    assert ledger.spent.amount < spent.amount


def new_ledger(folder, unit=None):
    folder.mkdir()
    return Ledger(folder / "ledger", epsilon=40.0, delta=1e-3, dataset="conformance", unit=unit)


def stop(*_):
    raise StopIteration
