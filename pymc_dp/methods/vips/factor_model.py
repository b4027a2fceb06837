"""Factor models, recognised from the graph of one record.

psi = W z + c is linear in the loadings W, the intercept c and the latents z of one record. Either
z is Gaussian and the likelihood quadratic in psi (factor analysis), or z is binary and the
likelihood of the logistic kind (sigmoid belief networks). First the prior of z is read, which must
allow closed-form updates; then loadings and intercept are identified by slopes at probe records.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, MvNormalRV, NormalRV

from pymc_dp.methods.conjugate.blocks import (
    ConjugatePrior,
    at_point,
    conjugate_prior,
    families_of,
    for_each_row,
    gaussian_latents,
    is_variance,
    nearly_equal,
    ones,
    probe_rows,
)
from pymc_dp.methods.conjugate.exponential import (
    GAMMA,
    GENERALISED_INVERSE_GAUSSIAN,
    Natural,
    gradients,
)
from pymc_dp.methods.linear.predictor import (
    Predictor,
    expansion,
    expansion_graphs,
    predictor_of,
    where_zero,
)
from pymc_dp.methods.options import NotConjugateError
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable, Tensor, pt
from pymc_dp.privacy.contribution import Batch

TRIALS = 3  # probe records at which the bilinear form is tried


class LatentPrior(NamedTuple):
    """The prior of one record's latents z."""

    name: str
    shape: tuple[int, ...]  # the shape of one record's z, with a 1 along the records' axis
    axis: int  # the records' axis
    binary: bool  # whether z is 0 or 1; else it is Gaussian with mean 0
    # prior precisions of a Gaussian z; prior log odds of a binary one, if they are constants
    parameter: np.ndarray
    log_odds: str | None  # name of the Gaussian block that holds the log odds instead

    @property
    def length(self) -> int:
        """The number K of a record's latents."""
        return len(self.parameter)

    def probe(self, rng: np.random.Generator) -> np.ndarray:
        """Draw one record's latents at random."""
        size = self.length
        return rng.integers(0, 2, size) if self.binary else rng.normal(size=size)

    def at_zero(self, rows: int, dtype: str) -> np.ndarray:
        """Return latents of 0 for some records; it takes no memory."""
        shape = (*self.shape[: self.axis], rows, *self.shape[self.axis + 1 :])
        return np.broadcast_to(np.zeros((), dtype), shape)


class FactorModel(NamedTuple):
    """A model psi = W z + c with latents z of single records."""

    predictor: Predictor
    latent: LatentPrior  # the latents of single records
    loadings: str  # name of W
    # whether W has a row for each latent, shape (K, J), and not one for each entry of psi
    across: bool
    intercept: str | None  # name of c
    intercept_shape: tuple[int, ...]  # its shape, with J entries
    # largest curvature of a record's log likelihood in psi, at a noise precision of 1
    curvature: np.ndarray
    prior: ConjugatePrior  # of all shared latents

    @property
    def shape(self) -> tuple[int, int]:
        """The lengths J of psi and K of z."""
        return len(self.curvature), self.latent.length

    @property
    def gain(self) -> np.ndarray:
        """Units in which outcomes are taken: known precisions of Gaussian ones, else 1."""
        return np.ones(len(self.curvature)) if self.latent.binary else np.sqrt(self.curvature)

    @property
    def moved(self) -> list[str]:
        """The blocks that releases move; the others follow from them in closed form."""
        return [name for name in (self.loadings, self.intercept, self.latent.log_odds) if name]

    def matrix(self, loadings: np.ndarray) -> np.ndarray:
        """Bring values of the loadings to shape (J, K)."""
        return loadings.T if self.across else loadings


def recognise(records: Records) -> FactorModel:
    """Prove, at probe points, that the model is a factor model with conjugate priors."""
    latent = latent_prior(records)
    predictor = _predictor(records, latent.name)
    if records.single.inputs[latent.name] in set(ancestors([predictor.log_likelihood])):
        raise NotConjugateError(f"`{latent.name}` enters the likelihood beside its predictor")
    if predictor.augmented != latent.binary:
        raise NotConjugateError(
            f"`{latent.name}` must be Gaussian where outcomes are, and binary where they are"
        )
    loadings, across, intercept = _roles(records, predictor, latent)
    curvature = curvature_at_zero(records, predictor)
    shape = records.point[intercept].shape if intercept else curvature.shape
    rng, wider = np.random.default_rng(0), {GAMMA: GENERALISED_INVERSE_GAUSSIAN}
    prior = conjugate_prior(records, families_of(records), rng, wider)
    return FactorModel(predictor, latent, loadings, across, intercept, shape, curvature, prior)


def latent_prior(records: Records) -> LatentPrior:
    """Read the prior of the one variable that belongs to single records."""
    if len(records.local_latents) != 1:
        names = ", ".join(f"`{name}`" for name in records.local_latents) or "no latent"
        raise NotConjugateError(f"{names} belong to single records, where there must be one")
    [(name, axis)] = records.local_latents.items()
    if records.of_units:
        raise NotConjugateError(f"`{name}` belongs to units of several records")
    shape = tuple(1 if length is None else length for length in records.shapes[name])
    op = records.distributions[name]
    if op not in (NormalRV, BernoulliRV):
        raise NotConjugateError(
            f"`{name}`, which belongs to single records, is neither Gaussian nor Bernoulli"
        )
    term = records.single.terms[records.term_names.index(name)]
    _refuse_others(records, term, name)
    empty = LatentPrior(name, shape, axis, op is BernoulliRV, np.ones(int(np.prod(shape))), None)
    return _with_log_odds(records, term, empty) if empty.binary else _gaussian(records, term, empty)


def _refuse_others(records: Records, term: AnyVariable, name: str) -> None:
    """Every record must have the same prior: it is read at one probe record."""
    ancestry = set(ancestors([term]))
    for other, x in records.single.inputs.items():
        if other != name and x in ancestry:
            raise NotConjugateError(
                f"the prior of `{name}` reads `{other}`, which differs between records: give it "
                "constants without an axis of the records, of shape (K,) or (), or declare "
                f"`{other}` with public="
            )


def _gaussian(records: Records, term: Tensor, prior: LatentPrior) -> LatentPrior:
    """Read the precision off the slope, which must be -precision z."""
    z = records.single.inputs[prior.name]
    if set(ancestors([term])) & {*records.latents.values()}:
        raise NotConjugateError(f"the prior of `{prior.name}` depends on other latents")
    evaluate = at_point(records, records.single, gradients(term.sum(), [z]))
    rng = np.random.default_rng(0)
    values = [prior.probe(rng).reshape(prior.shape) for _ in range(2)]
    row = probe_rows(records, rng, [0])
    first, second = (-evaluate(row | {prior.name: z}, records.point)[0] / z for z in values)
    if not nearly_equal(first, second):
        raise NotConjugateError(f"the prior of `{prior.name}` is not Gaussian around 0")
    return prior._replace(parameter=first.ravel())


def _with_log_odds(records: Records, term: AnyVariable, prior: LatentPrior) -> LatentPrior:
    """Read the log odds off the prior's log density at 0 and 1."""
    ancestry = set(ancestors([term]))
    names = [name for name, x in records.latents.items() if x in ancestry]
    if not set(names) <= set(gaussian_latents(records)) or len(names) > 1:
        raise NotConjugateError(f"the log odds of `{prior.name}` are not one Gaussian latent")
    evaluate, rng = at_point(records, records.single, [term]), np.random.default_rng(0)
    point = records.point | {n: rng.normal(size=records.point[n].shape) for n in names}
    # probe rows have latents of one value
    none, every = (evaluate(probe_rows(records, rng, [k]), point)[0] for k in (0, 1))
    log_odds = (every - none).ravel()
    if not names:
        return prior._replace(parameter=log_odds)
    b = point[names[0]]
    if b.size != log_odds.size or not nearly_equal(b.ravel(), log_odds):
        raise NotConjugateError(f"`{names[0]}` is not the log odds of `{prior.name}`, one for each")
    return prior._replace(log_odds=names[0])


def _predictor(records: Records, latent: str) -> Predictor:
    """Find the predictor of the one term that is not the prior of the records' latents."""
    terms = dict(zip(records.term_names, records.single.terms, strict=True))
    del terms[latent]
    if len(terms) != 1:
        raise NotConjugateError("there is more than one observed variable")
    [(outcome, term)] = terms.items()
    observed = [x for name, x in records.single.inputs.items() if name != latent]
    try:
        return predictor_of(records, term, observed)
    except NotConjugateError as reason:
        raise NotConjugateError(f"the likelihood of `{outcome}` {reason}") from None


def _roles(
    records: Records, predictor: Predictor, latent: LatentPrior
) -> tuple[str, bool, str | None]:
    """Identify loadings and intercept by the slopes of u'psi, for a random u, at random latents.

    They are u z' in W and u in c: what is so for a random u is so for all.
    """
    z, u, slopes = _slopes(records, predictor, latent)
    along, across = u[:, None] * z[:, None, :], z[:, :, None] * u
    loaded = {name: [_same(slope, x) for x in (along, across)] for name, slope in slopes.items()}
    # of one number it is not known whether it is W or its transpose
    loadings = [name for name, either in loaded.items() for same in either if same]
    even = np.broadcast_to(u, (TRIALS, u.size))
    constant = [name for name, slope in slopes.items() if _same(slope.reshape(TRIALS, -1), even)]
    intercepts = [name for name in constant if name not in loadings]
    for name in slopes:
        if name not in loadings + intercepts:
            raise NotConjugateError(
                f"`{name}` is neither the loadings of `{latent.name}` nor an intercept"
            )
    if len(loadings) != 1 or len(intercepts) > 1:
        raise NotConjugateError(f"`{latent.name}` has not one matrix of loadings")
    is_along, _ = loaded[loadings[0]]
    return loadings[0], not is_along, intercepts[0] if intercepts else None


def _slopes(
    records: Records, predictor: Predictor, latent: LatentPrior
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return latents z of probe records, u, and slopes of u'psi in Gaussian latents there."""
    rng, ancestry = np.random.default_rng(0), set(ancestors([predictor.psi]))
    z = np.stack([latent.probe(rng) for _ in range(TRIALS)])
    rows = probe_rows(records, rng, [1] * TRIALS)
    by_row = np.moveaxis(rows[latent.name], latent.axis, 0)
    rows[latent.name] = np.moveaxis(z.reshape(by_row.shape), 0, latent.axis)
    u = rng.uniform(1, 2, predictor.shape)
    names = [name for name in gaussian_latents(records) if records.latents[name] in ancestry]
    graphs = gradients((predictor.psi * u).sum(), [records.latents[name] for name in names])
    offset, *slopes = where_zero(records, [predictor.psi, *graphs], "python")(rows)
    if offset.any():
        raise NotConjugateError("the predictor has an offset")
    return z, u.ravel(), dict(zip(names, slopes, strict=True))


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and nearly_equal(first, second)


def curvature_at_zero(records: Records, predictor: Predictor) -> np.ndarray:
    """Find the curvature at psi = 0, and prove that it is the same for every record.

    Prove also that the noise's precision has statistics J / 2 and half of the squared residuals.
    """
    rows = probe_rows(records, np.random.default_rng(0), [0, 1, 1])
    probe = expansion(records, predictor, "python")(rows)
    first, *others = probe.curvature
    if not all(nearly_equal(first, other) for other in others) or not (first > 0).all():
        raise NotConjugateError("the curvature of the likelihood differs from record to record")
    name, energy = predictor.precision, np.sum(probe.slope**2 / first, axis=1)
    half = np.full_like(energy, len(first) / 2)
    known = nearly_equal(probe.shape, half) and nearly_equal(probe.energy, energy / 2)
    if name and (is_variance(records, name) or not known):
        raise NotConjugateError(f"`{name}` is not the precision of the outcomes")
    return np.asarray(first)


def scores_at_zero(
    records: Records, predictor: Predictor, latent: LatentPrior, backend: str
) -> Callable[[Batch], np.ndarray]:
    """Compile the slope of each record's log likelihood at psi = 0, shape (rows, J)."""
    graphs = expansion_graphs(records, predictor)
    # a record outside the likelihood's support must not contribute
    slope = pt.switch(pt.isnan(graphs.shape), np.nan, graphs.slope.ravel())
    evaluate, inputs = for_each_row(records, [slope], backend), records.batch.inputs

    def compute(batch: Batch) -> np.ndarray:
        count = next(value.shape[records.batch.axis[inputs[name]]] for name, value in batch.items())
        leaves = {**batch, latent.name: latent.at_zero(count, inputs[latent.name].type.dtype)}
        return evaluate(leaves, ones(records))[0]

    return compute


def side_by_side(
    structure: FactorModel, values: Mapping[str, Natural]
) -> tuple[np.ndarray, np.ndarray]:
    """Arrange two values of every loading and of every intercept, each (J, K + 1); 0 for none."""
    nothing = (np.zeros(structure.shape[0]),) * 2
    intercept = values[structure.intercept] if structure.intercept else nothing
    first, second = (
        np.column_stack([structure.matrix(loadings), last.ravel()])
        for loadings, last in zip(values[structure.loadings], intercept, strict=True)
    )
    return first, second


def split(structure: FactorModel, values: np.ndarray) -> dict[str, np.ndarray]:
    """Undo `side_by_side`, for one value of each."""
    blocks = {structure.loadings: structure.matrix(values[:, :-1])}
    if structure.intercept:
        blocks[structure.intercept] = values[:, -1].reshape(structure.intercept_shape)
    return blocks


def is_near(records: Records) -> bool:
    """Whether records have Normal or binary latents of their own."""
    kinds = (NormalRV, MvNormalRV, BernoulliRV)
    near = [issubclass(records.distributions[name], kinds) for name in records.local_latents]
    return bool(near) and all(near) and not records.of_units


def starts_distinct(records: Records, structure: FactorModel) -> bool:
    """Whether initial loadings separate the latents; rounds draw those that are 0 at random."""
    initial = structure.matrix(records.point[structure.loadings])
    return bool(np.linalg.matrix_rank(initial) == initial.any(axis=0).sum())


def roles(records: Records, structure: FactorModel) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    roles = {name: f"{family.name} block" for name, family in structure.prior.families.items()}
    roles[structure.loadings] = "loadings of a factor model"
    if structure.intercept:
        roles[structure.intercept] = "intercept of a factor model"
    if structure.latent.log_odds:
        roles[structure.latent.log_odds] = f"log odds of `{structure.latent.name}`"
    kind = "binary" if structure.latent.binary else "Gaussian"
    for name in records.term_names:
        roles[name] = f"{kind} outcome of a factor model"
    roles[structure.latent.name] = f"{kind} latents of single records"
    return roles
