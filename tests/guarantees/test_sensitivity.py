"""Six statements about every contribution, and the faults that they must catch.

A record's norm is that of what it adds; it adds the same whatever is beside it; it moves no sum by
more than the clip norm; some record reaches that; two that are opposite reach it twice; and a unit
of a thousand records has no more than one. Guard 2 of the tests of a guarantee. Soundness, rule 5:
one record is its row in all leaves; rules 6 to 10: what a record adds is clipped as one vector.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pymc_dp.contributions import layout
from pymc_dp.contributions.gradients import gradient
from pymc_dp.errors import ReleaseError
from pymc_dp.methods.sep import network as networks
from pymc_dp.methods.sep.network_fit import Context, bounded_layout
from pymc_dp.methods.sep.network_fit import contribution as sites_of_network
from pymc_dp.methods.vips import belief_nets
from pymc_dp.methods.vips.topics import TopicModel, topic_counts, word_counts
from pymc_dp.model import Column, constrained
from pymc_dp.papers import regression as of_papers
from pymc_dp.privacy.contribution import Contribution, FactoredContribution
from pymc_dp.privacy.norms import row_norms
from tests.guarantees import toys, vips_toys
from tests.guarantees.toys import before_noise, columns_of_rows, vectors, wall_of
from tests.guarantees.vips_toys import dense
from tests.zoo import build as model_of
from tests.zoo import separated

C = 1.5
NOISE = 0.7
# neighbours of toy records: every planted fault below is caught within a third of them
EXAMPLES = 200
EXTREMES = (0.0, -0.0, 1e300, -1e300, 1e25, -1e25, 1e-23, 5e-324, np.nan, np.inf, -np.inf)


class Case(NamedTuple):
    """A contribution, what it is asked at, and records of it."""

    contribution: Contribution
    columns: dict[str, Column]
    context: Any
    records: dict[str, Any]  # of each leaf, what one record may hold
    loud: dict[str, Any]  # a record that reaches the clip norm, where the context lets any
    opposite: dict[str, Any] | None = None  # of the loud one
    clip_norm: float = C
    examples: int = 20
    dropped: tuple[dict[str, Any], ...] = ()  # records that must add nothing


# --- models and their records --------------------------------------------------------------------


RNG = np.random.default_rng(4)
NUMBERS = RNG.normal(size=(20, 3))


def logistic():
    X, group = pm.Data("X", NUMBERS[:, :2]), pm.Data("group", np.repeat(np.arange(4), 5))
    a, b, sd = pm.Normal("a"), pm.Normal("b", shape=2), pm.HalfNormal("sd")
    eta = a + X @ b + sd * pm.Normal("g", shape=4)[group]
    pm.Bernoulli("y", logit_p=eta, observed=np.arange(20) % 2)


def two_outcomes():
    x = pm.Data("x", NUMBERS[:, 0])
    a, b, sd = pm.Normal("a"), pm.Normal("b"), pm.HalfNormal("sd")
    pm.Gamma("cost", mu=pm.math.exp(a + b * x), sigma=sd, observed=np.exp(NUMBERS[:, 1]))
    pm.Normal("weight", b * x, sd, observed=NUMBERS[:, 2])


number = st.one_of(st.floats(-3, 3), st.sampled_from(EXTREMES))
PAIR = st.tuples(number, number)
WHOLE = st.sampled_from([0, 1, 5, -3, 2**40, -(2**62)])
# what pm.Data holds in 32 bits
SHORT = st.sampled_from([0, 1, 2, 7, -3, 2**31 - 1])
MODELS = {  # one record's part of every leaf; -9 and 7 point outside the four groups
    "logistic": {
        "X": PAIR,
        "group": st.sampled_from([0, 1, 2, 3, -9, 7]),
        "y": st.sampled_from([0, 1, -5, 2**40]),
    },
    "two_outcomes": {"x": number, "cost": number, "weight": number},
    "toy": {"x": st.tuples(number, number, number)},
}
RECORDS = {name: st.fixed_dictionaries(record) for name, record in MODELS.items()}
LOUD = {
    "logistic": {"X": (900.0, -400.0), "group": 2, "y": 0},
    "two_outcomes": {"x": 3.0, "cost": 1e4, "weight": -1e3},
}


def by_gradient(build, at):
    records, columns = separated(model_of(build))
    name, context = build.__name__, np.full((1, records.size), at)
    contribution = gradient(records, "python")
    return Case(contribution, columns, context, MODELS[name], LOUD[name], examples=80)


def by_toy(kind):
    return Case(
        kind(3),
        {"x": Column(np.arange(60.0).reshape(20, 3), 0, "float64")},
        None,
        MODELS["toy"],
        {"x": (3.0, 0.0, 4.0)},
        {"x": (-3.0, 0.0, -4.0)},
        examples=EXAMPLES,
    )


# of updates in closed form, and of sites: by the name of their model
OF_TOYS = {
    "gaussian": {"X": PAIR, "y": number},
    "logistic": {"X": PAIR, "y": WHOLE},
    "binomial": {"X": PAIR, "y": WHOLE, "trials": SHORT},
    "two_columns": {"X": PAIR, "y": PAIR},
    "two_outcomes": {"X": PAIR, "y": number, "z": WHOLE},
    "categorical": {"group": SHORT, "y": WHOLE},
    "poisson": {"exposure": number, "y": WHOLE},
    "mixture": {"y": number},
    "probit": {"X": PAIR, "y": WHOLE},
    "log_link": {"X": PAIR, "group": SHORT, "y": WHOLE},
    "student": {"X": PAIR, "y": number},
    "unknown_shares": {"y": number},
    "known_covariance": {"y": PAIR},
}
LOUD_VALUES = {"X": (30.0, -40.0), "y": 1, "trials": 9, "z": 0, "group": 2, "exposure": 50.0}
REAL = ("mixture", "two_outcomes", "unknown_shares")
LOUD_OUTCOMES = dict.fromkeys(REAL, 900.0) | {"poisson": 9, "binomial": 9}
LOUD_OUTCOMES |= dict.fromkeys(["two_columns", "known_covariance"], (900.0, 3.0))


toy = cache(vips_toys.toy)


def by_updates(build, method, later, **terms):
    found, name = toy(build, method=method, **terms), build.__name__
    context = found.contexts[later]
    records = OF_TOYS[name]
    values = LOUD_VALUES | {"y": LOUD_OUTCOMES.get(name, 1)}
    loud, opposite = {leaf: values[leaf] for leaf in records}, None
    if name == "gaussian":
        loud, opposite = ({"X": (1.0, 0.0), "y": sign * 1e6} for sign in (1, -1))
    clip_norm = found.clip_norms[later]
    return Case(found.contribution, found.columns, context, records, loud, opposite, clip_norm)


ROWS, UNITS = 40, 3
X = RNG.normal(size=(ROWS, 2)) * np.geomspace(0.01, 100, ROWS)[:, None]


def output():
    z = pm.math.maximum(0, pm.math.dot(pm.Data("X", X), pm.Normal("W", shape=(2, UNITS))))
    return pm.math.dot(z, pm.Normal("w", shape=UNITS)) + pm.Normal("b")


def regression():
    pm.Normal("y", output(), tau=pm.Gamma("tau", 2, 1), observed=RNG.normal(size=ROWS) * 5)


def classes():
    pm.Bernoulli("y", logit_p=output(), observed=np.arange(ROWS) % 2)


# the cavity; units that cancel leave classes open, where a record says most
CAVITIES = {
    "regression": (0.1, np.linspace(0.2, 1, 2 * UNITS), np.ones(UNITS), 0.5),
    "classes": (1e-6, np.full(2 * UNITS, 0.5), np.array([1.0, -1.0, 0.0]), 0.0),
}
IN_NETWORKS = {
    "regression": ({"X": PAIR, "y": number}, {"X": (300.0, -400.0), "y": 1e4}),
    "classes": ({"X": PAIR, "y": st.sampled_from([0, 1, -5, 2**40])}, {"X": (30.0, 400.0), "y": 0}),
}
NOT_FINITE = tuple({"X": (bad, 1.0), "y": 0.0} for bad in (np.nan, np.inf, 1e200))


@cache
def network(build):
    """Return the sites of a network, the bounds of their parts, and where they are asked."""
    records, columns = separated(constrained(model_of(build)))
    found = networks.recognise(records)
    d = found.prior.d
    scales = bounded_layout(C, 1.0, d, build is regression)
    variance, *means = CAVITIES[build.__name__]
    named = dict(zip(("W", "w", "b"), means, strict=True))
    mean = np.concatenate([np.ravel(named[name]) for name in found.prior.shapes])
    asked = Context(mean, np.full(d, variance), 30.0, 20.0)
    return sites_of_network(records, found, scales, "python"), columns, asked, scales, d


def by_network(build):
    sites, columns, asked, *_ = network(build)
    records, loud = IN_NETWORKS[build.__name__]
    dropped = NOT_FINITE if build is regression else ({"X": (0.3, -0.2), "y": 2},)
    return Case(sites, columns, asked, records, loud, examples=80, dropped=dropped)


ITEMS = 4


def belief_net():
    W, c = pm.Normal("W", shape=(ITEMS, 2)), pm.Normal("c", shape=ITEMS)
    z = pm.Bernoulli("z", p=0.3, shape=(60, 2))
    bits = np.random.default_rng(5).integers(0, 2, (60, ITEMS))
    pm.Bernoulli("y", logit_p=z @ W.T + c, observed=bits)


def by_belief_net(scale):
    """Latents that are inferred behind the wall, at loadings of some size."""
    records, columns = separated(constrained(model_of(belief_net)))
    net, rng = belief_nets.recognise(records), np.random.default_rng(6)
    slopes = belief_nets.scores_at_zero(records, net, "python")
    sums = belief_nets.contribution(net, slopes, None)
    mean, variance = scale * rng.normal(size=(ITEMS, 3)), rng.uniform(0.01, 1, (ITEMS, 3))
    context = belief_nets.Context(mean, variance, net.latent.parameter)
    record = {"y": st.tuples(*[st.sampled_from([0, 1, -5, 7])] * ITEMS)}
    return Case(sums, columns, context, record, {"y": (1, 0, 1, 1)}, examples=40)


K, V = 3, 9
EVEN = np.full((K, V), 1 / V)
DRAW = np.random.default_rng(5)
POINTS = {
    "even": EVEN,
    "sparse": DRAW.dirichlet(np.full(V, 0.05), size=K),
    "tiny": DRAW.dirichlet(np.full(V, 0.5), size=K) * 1e-150,
    "a word that no topic has": np.where(np.arange(V) == 2, 0.0, EVEN),
    "topics apart": np.kron(np.eye(K), np.full(V // K, 1 / 3)),
}
FEW, MANY_WORDS = DRAW.poisson(0.3, (60, V)), DRAW.poisson(30, (20, V))
DOCUMENTS = np.concatenate([FEW, MANY_WORDS, 10**9 * np.eye(V)[:4], np.zeros((2, V))])
COUNT = st.one_of(
    st.sampled_from([0.0, 0.0, 0.0]),
    st.integers(0, 9).map(float),
    st.sampled_from([2.0**40, 1e15, 1e150, 1e200, 1e308, -1.0, 0.5, np.nan, np.inf, -np.inf]),
)
TOPICS = TopicModel("beta", "theta", "w", np.full((K, V), 0.1), np.array([0.1, 0.2, 0.3]))


def by_topics(kind, point):
    """Documents that are sparse: their matrices of counts by topic are never formed."""
    contribution = topic_counts(TOPICS, 20) if kind == "topics" else word_counts(TOPICS)
    return Case(
        contribution,
        {"w": Column(DOCUMENTS, 0, "float64")},
        POINTS[point],
        {"w": st.tuples(*[COUNT] * V)},
        {"w": (1e12, *[0.0] * (V - 1))},
        clip_norm=7.0,
        examples=40 if point == "sparse" else 10,
        dropped=tuple({"w": (3.0, bad, *[1.0] * (V - 2))} for bad in (-1, 0.5, np.nan, 1e300)),
    )


# --- the list of contributions -------------------------------------------------------------------

UPDATES = [(build, "vips", {"form": "absolute"}) for build in vips_toys.REGRESSIONS]
UPDATES += [(vips_toys.logistic, "vips", {"form": "absolute"}), (vips_toys.gaussian, "vips", {})]
UPDATES += [(vips_toys.logistic, "vips", {"form": "paper"})]
UPDATES += [(build, "vips", {}) for build in vips_toys.BLOCKS]
UPDATES += [(build, "dp_sep", {}) for build in (*vips_toys.PREDICTORS, *vips_toys.MIXTURES)]
UPDATES += [(vips_toys.gaussian, "dp_sep", {})]

CASES: dict[str, Callable[[], Case]] = {
    **{
        f"gradients {build.__name__} at {at}": partial(by_gradient, build, at)
        for build in (logistic, two_outcomes)
        for at in (0.3, -30.0)
    },
    "vectors": partial(by_toy, vectors),
    "rows": partial(by_toy, toys.rows),
    **{
        f"{method} {build.__name__} {terms.get('form', 'by default')} {later}": partial(
            by_updates, build, method, later, **terms
        )
        for build, method, terms in UPDATES
        for later in (0, 1)
    },
    **{f"network {build.__name__}": partial(by_network, build) for build in (regression, classes)},
    **{f"belief net of {scale}": partial(by_belief_net, scale) for scale in (0.0, 0.1, 1.0, 30.0)},
    **{
        f"{kind} {point}": partial(by_topics, kind, point)
        for kind in ("topics", "words")
        for point in POINTS
    },
}
EVERY = pytest.mark.parametrize("name", CASES)
# a category is one unit vector; elsewhere a context lets no record say much
QUIET = ("categorical", "at -30", " 1", "of 0", "even", "sparse", "tiny", "a word")
LOUD_ONES = [name for name in CASES if not any(part in name for part in QUIET)]
OPPOSITES = ["rows", "vips gaussian by default 0", "dp_sep gaussian by default 0"]


@cache
def case(name) -> Case:
    return CASES[name]()


# --- what is checked -----------------------------------------------------------------------------


def check_norms(found):
    norms, alone = dense(found.contribution, found.columns, found.context)
    assert np.isfinite(norms).all()
    np.testing.assert_allclose(norms, row_norms(alone), rtol=1e-9)


def check_neighbours(covered, record, examples=80, most=6):
    """Compare a data set with one record more, and with that record replaced by another."""

    @seed(1)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(record, max_size=most), record, record, st.integers(0, most))
    def check(rows, new, other, place):
        without = covered(rows)
        added = covered([*rows[:place], new, *rows[place:]])
        replaced = covered([*rows[:place], other, *rows[place:]])
        assert np.linalg.norm(added - without) <= 1
        assert np.linalg.norm(added - replaced) <= 2

    check()


def covered_by(contribution, columns, context, clip_norm=C):
    """Map records to the vector that a full-batch release of them adds noise to, over C."""

    def covered(rows):
        held = columns_of_rows(columns, rows)
        wall = wall_of(held, contribution, clip_norm=C, noise_multiplier=NOISE)
        total, sd = before_noise(wall, context, clip_norm=clip_norm)
        return total / (sd / NOISE)

    return covered


def covered_in(found, **changed):
    found = found._replace(**changed)
    return covered_by(found.contribution, found.columns, found.context, clip_norm=found.clip_norm)


# --- six statements ------------------------------------------------------------------------------


@EVERY
def test_a_records_norm_is_that_of_the_vector_that_is_summed(name):
    check_norms(case(name))


@EVERY
def test_a_record_adds_the_same_alone_and_among_others(name):
    found = case(name)
    norms, among = dense(found.contribution, found.columns, found.context)
    for i in range(3, len(norms), 7):
        one = {
            leaf: column._replace(values=column.values[i : i + 1])
            for leaf, column in found.columns.items()
        }
        norm, alone = dense(found.contribution, one, found.context)
        np.testing.assert_allclose(norm, norms[i], rtol=1e-9)
        np.testing.assert_allclose(alone[0], among[i], rtol=1e-9, atol=1e-9 * norms[i])


@EVERY
def test_no_record_moves_a_sum_beyond_the_clip_norm(name):
    found = case(name)
    check_neighbours(covered_in(found), st.fixed_dictionaries(found.records), found.examples)
    for record in found.dropped:
        np.testing.assert_array_equal(covered_in(found)([record]), 0)
        alone, beside = (covered_in(found)([found.loud, *more]) for more in ([], [record]))
        np.testing.assert_allclose(beside, alone, atol=1e-12)


@pytest.mark.parametrize("name", LOUD_ONES)
def test_some_record_reaches_the_clip_norm(name):
    found = case(name)
    covered = covered_in(found)
    assert 0.99 <= np.linalg.norm(covered([found.loud]) - covered([])) <= 1


@pytest.mark.parametrize("name", OPPOSITES)
def test_a_record_and_its_opposite_are_twice_the_clip_norm_apart(name):
    found = case(name)
    covered = covered_in(found)
    assert 1.98 <= np.linalg.norm(covered([found.loud]) - covered([found.opposite])) <= 2


# --- units: the sixth statement ------------------------------------------------------------------

MANY, OTHERS = 1000, np.arange(12)
THEIR_CODES = OTHERS // 3
OF_UNITS = ["gradients two_outcomes at 0.3", "dp_sep log_link by default 1"]


def summed(name, rows, codes):
    """Sum some rows of the case's data, possibly repeated, by unit; in clip norms."""
    found = case(name)
    held = {leaf: c._replace(values=c.values[rows]) for leaf, c in found.columns.items()}
    wall = wall_of(held, found.contribution, clip_norm=C, codes=codes)
    return before_noise(wall, found.context).total / C


@pytest.mark.parametrize("name", OF_UNITS)
def test_a_unit_of_a_thousand_records_moves_a_sum_by_at_most_the_clip_norm(name):
    without = summed(name, OTHERS, THEIR_CODES)
    for records in (np.arange(MANY) % 20, np.full(MANY, 5)):  # all sorts; one record repeated
        rows = np.concatenate([records, OTHERS])
        codes = np.concatenate([np.full(MANY, 9), THEIR_CODES])
        shuffled = np.random.default_rng(0).permutation(len(rows))
        moved = np.linalg.norm(summed(name, rows[shuffled], codes[shuffled]) - without)
        assert 0.01 < moved <= 1


@pytest.mark.parametrize("name", OF_UNITS)
def test_clipping_records_in_place_of_units_is_caught(name):
    rows = np.concatenate([np.full(MANY, 5), OTHERS])
    assert np.linalg.norm(summed(name, rows, None) - summed(name, OTHERS, None)) > 1


# --- planted faults: norms of something else -----------------------------------------------------


def a_triangle_without_sqrt_2(patch, found):
    patch.setattr(layout, "svec", lambda m: m[..., *np.triu_indices(m.shape[-1])])
    return found


def norms_without_the_second_part(patch, found):
    """Leave out the curvature of a regression, or the precisions of sites."""
    norms = of_papers.part_norms
    patch.setattr(of_papers, "part_norms", lambda *args: norms(*args)[::2])
    return found


def with_norms(norms):
    """Replace the norms of a contribution; what it adds stays as it is."""
    return lambda patch, found: replaced(found, norms=lambda at, context: norms(at))


def replaced(found, **parts):
    """Give a contribution other parts."""
    genuine = found.contribution
    same = {name: getattr(genuine, name) for name in ("norms", "weighted_sum", "prepare")}
    faulty = FactoredContribution(genuine.size, genuine.width, **{**same, **parts})
    return found._replace(contribution=faulty)


# what a record says of two components on a line
PARTS = np.repeat(["score", "precision", "weights", "count"], [2, 2, 2, 1])


def without_the_weights(rows):
    return row_norms(rows[:, PARTS != "weights"])


def of_the_counts(at):
    return row_norms(at.documents.counts.toarray())


def as_if_latents_were_known(moments):
    """Leave out what the covariance of a belief net's latents adds."""
    lengths = row_norms(moments.features)
    return np.hypot(row_norms(moments.residual) * lengths, 0.3 * lengths**2)


FAULTS = [
    ("vips logistic absolute 0", a_triangle_without_sqrt_2),
    ("vips logistic absolute 0", norms_without_the_second_part),
    ("dp_sep log_link by default 1", norms_without_the_second_part),
    ("dp_sep unknown_shares by default 1", with_norms(without_the_weights)),
    ("topics sparse", with_norms(of_the_counts)),
    ("belief net of 1.0", with_norms(as_if_latents_were_known)),
]


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_a_norm_of_something_else_is_caught(name, fault, monkeypatch):
    with pytest.raises(AssertionError):
        check_norms(fault(monkeypatch, case(name)))


# --- planted faults: other ways to clip and to sum -----------------------------------------------


def clipped(rows):
    return np.fmin(1, 1 / norms_of(rows))[:, None] * rows


def norms_of(rows):
    return row_norms(rows) if len(rows) else np.zeros(0)


def clip_every_part(rows):
    parts = np.split(rows, [2], axis=1)
    return np.concatenate([clipped(part).sum(axis=0) for part in parts])


def of_finite(clip):
    def covered(records):
        rows = np.array([record["x"] for record in records]).reshape(-1, 3)
        return clip(rows[np.isfinite(norms_of(rows))])

    return covered


def weigh_bad_rows_by_zero(records):
    rows = np.array([record["x"] for record in records]).reshape(-1, 3)
    norms = norms_of(rows)
    return np.where(np.isfinite(norms), np.fmin(1, 1 / norms), 0) @ rows


OF_VECTORS = {
    "clip after the sum": lambda rows: clipped(rows.sum(axis=0, keepdims=True))[0],
    "clip every part": clip_every_part,
    "scale by the batch": lambda rows: clipped(rows).sum(axis=0) * 20 / max(len(rows), 1),
    "add the prior for every record": lambda rows: (clipped(rows) - 0.3).sum(axis=0),
}
TOY_FAULTS = {name: of_finite(clip) for name, clip in OF_VECTORS.items()}
TOY_FAULTS |= {"weigh bad rows by zero": weigh_bad_rows_by_zero}


@pytest.mark.parametrize("fault", TOY_FAULTS.values(), ids=TOY_FAULTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_faulty_sum_is_caught(fault):
    with pytest.raises(AssertionError):
        check_neighbours(fault, RECORDS["toy"], examples=EXAMPLES)


def a_count_that_is_left_out(patch, found):
    """Count records of a network by a number that no norm covers."""

    def prepare(batch, asked):
        rows = found.contribution.prepare(batch, asked)
        rows[:, -1] = 1
        return rows

    return replaced(found, prepare=prepare, norms=lambda rows, asked: row_norms(rows[:, :-1]))


def means_over_the_batch(patch, found):
    mean = lambda rows, asked, weights: weights @ rows * 20 / len(rows)  # noqa: E731
    return replaced(found, weighted_sum=mean)


OF_SUMS = [
    FAULTS[1],
    ("network regression", a_count_that_is_left_out),
    ("network regression", means_over_the_batch),
]


@pytest.mark.parametrize(("name", "fault"), OF_SUMS)
def test_a_record_that_moves_a_sum_beyond_the_clip_norm_is_caught(name, fault, monkeypatch):
    found = case(name)
    record = st.one_of(st.fixed_dictionaries(found.records), st.just(found.loud))
    check_neighbours(covered_in(found), record, examples=20)
    faulty = fault(monkeypatch, found)
    with pytest.raises((AssertionError, ReleaseError)):  # the wall checks its sums, too
        check_neighbours(covered_in(faulty), record, examples=2000)
