"""Linear predictors, recognised from the graph of one record, and the rounds that fit them.

psi = psi_0 + A v is affine in the Gaussian latents v, and the likelihood depends on v through psi
alone. First each term of the likelihood is cut at its psi; then its form in psi is compared with
the known ones, by slopes at probe rows; last the likelihood where all Gaussian latents are 0 is
compiled. At the end stand the options of methods that fit linear predictors by rounds.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType
from scipy.special import log_ndtr

from pymc_dp.accounting.plan import LARGEST
from pymc_dp.contributions.polya_gamma_and_sites import AVERAGED, Estimating
from pymc_dp.engine.method import RoundTerms, check_length, default_length, whitened_method
from pymc_dp.methods.conjugate import (
    GAMMA,
    INVERSE_GAMMA,
    at_point,
    for_each_row,
    gaussian_latents,
    nearly_equal,
    ones,
    precision_family,
    probe_rows,
)
from pymc_dp.methods.method import FindStart, OnScale
from pymc_dp.methods.normal import GaussianPrior, gaussian_prior
from pymc_dp.methods.options import (
    NOISE_AWARE,
    BatchOptions,
    NotConjugateError,
    option,
    refuse_local_latents,
)
from pymc_dp.methods.prior import two_derivatives
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable, Tensor, pt
from pymc_dp.privacy.contribution import Batch

GAUSSIAN, LOGISTIC, PROBIT, OTHER = "Gaussian", "logistic", "probit", "other"
PROBIT_SLOPE = (2 / np.pi) ** 0.5  # slope of log Phi(psi) at psi = 0
# absolute slope, and second derivative, of the log likelihood of one outcome, yes or no, at psi = 0
BINARY_SLOPES = {LOGISTIC: (0.5, -0.25), PROBIT: (PROBIT_SLOPE, -(PROBIT_SLOPE**2))}
POINTS = 4  # random values of psi at which a likelihood is compared with a form
SMALL = 1e-6  # below it tanh(c/2) / c is its limit


class Predictor(NamedTuple):
    """One term of the likelihood as a function of its predictor, for one record."""

    psi: Tensor  # the predictor; J entries
    cut: Tensor  # what stands for psi in ``log_likelihood``, a scalar
    log_likelihood: Tensor
    precision: str | None  # the Gamma latent that multiplies it, or inverse gamma that divides it
    shape: tuple[int, ...]  # the shape of psi
    form: str = OTHER  # of the likelihood in psi: `GAUSSIAN`, `LOGISTIC`, `PROBIT` or `OTHER`
    single: bool = False  # whether the likelihood is that of one number, as in `form_of`

    @property
    def augmented(self) -> bool:
        """Whether Pólya-Gamma variables make the likelihood quadratic."""
        return self.form == LOGISTIC


class Structure(NamedTuple):
    """A model with linear predictors and conjugate priors."""

    predictors: tuple[Predictor, ...]
    prior: GaussianPrior


def recognise(find: Callable[[Records, Tensor], Predictor], records: Records) -> Structure:
    """Find the linear predictor of every term of the likelihood, or raise NotConjugateError."""
    refuse_local_latents(records)
    terms = zip(records.term_names, records.single.terms, strict=True)
    predictors = [of_outcome(name, partial(find, records, term)) for name, term in terms]
    return Structure(tuple(predictors), gaussian_prior(records))


def of_outcome(name: str, find: Callable[[], Predictor]) -> Predictor:
    """Find the predictor of an outcome, which a refusal names."""
    try:
        return find()
    except NotConjugateError as reason:
        raise NotConjugateError(f"the likelihood of `{name}` {reason}") from None


def is_near_regression(records: Records) -> bool:
    """Whether every term has a predictor that is linear in Gaussian latents."""
    return not records.local_latents and all(_affine(records, x) for x in records.single.terms)


def predictor_of(
    records: Records, term: Tensor, excluded: Collection[AnyVariable] = ()
) -> Predictor:
    """Find the `linear_predictor` of a term that is quadratic in it, if need be by augmentation."""
    predictor = linear_predictor(records, term, excluded)
    if predictor.form not in (GAUSSIAN, LOGISTIC):
        raise NotConjugateError("is neither Gaussian nor logistic in its linear predictor")
    return predictor


def linear_predictor(
    records: Records, term: Tensor, excluded: Collection[AnyVariable] = ()
) -> Predictor:
    """Find the linear predictor of one term, which depends on no variable in ``excluded``."""
    if not _reached(records, gaussian_latents(records), term):
        raise NotConjugateError("has no latent with a Gaussian prior")
    affine = _affine(records, term, excluded)
    if not affine:
        raise NotConjugateError("has no predictor that is linear in the Gaussian latents")
    rows = probe_rows(records, np.random.default_rng(0), [1])
    [psi] = at_point(records, records.single, affine[:1])(rows, records.point)
    predictor = predictor_at(records, term, affine[0], psi.shape)
    if predictor.precision and predictor.form != GAUSSIAN:
        raise NotConjugateError(_why_not_gaussian(records, predictor, predictor.precision))
    return predictor


def _why_not_gaussian(records: Records, predictor: Predictor, scale: str) -> str:
    """Say whether a likelihood would be Gaussian if a latent were known."""
    known = {records.latents[scale]: pt.ones(records.point[scale].shape)}
    [given] = clone_replace([predictor.log_likelihood], known, rebuild_strict=False)
    if form_of(records, predictor._replace(log_likelihood=given, precision=None))[0] != GAUSSIAN:
        return f"is not Gaussian, and depends on `{scale}`"
    return (
        f"is Gaussian, but `{scale}` is no Gamma precision of it: with tau=pm.Gamma(...) in place "
        "of sigma= the updates are exact"
    )


def bottlenecks(
    records: Records, term: AnyVariable, excluded: Collection[AnyVariable] = ()
) -> Iterator[AnyVariable]:
    """Find what separates a term from its Gaussian latents and reads nothing ``excluded``."""
    names = gaussian_latents(records)
    gaussian = {records.latents[name] for name in names}
    others = {v for name, v in records.latents.items() if name not in names}.union(excluded)
    for variable in ancestors([term]):
        if isinstance(variable.type, TensorType) and variable.type.dtype.startswith("float"):
            above = set(ancestors([variable]))
            beside = set(ancestors([term], blockers=[variable]))
            if gaussian & above and not others & above and not gaussian & beside:
                yield variable


def _affine(
    records: Records, term: AnyVariable, excluded: Collection[AnyVariable] = ()
) -> list[AnyVariable]:
    """Find bottlenecks f for which f(u + v) = f(u) + f(v) - f(0) at random u and v."""
    candidates = list(bottlenecks(records, term, excluded))
    if not candidates:
        return []
    evaluate, rng = at_point(records, records.single, candidates), np.random.default_rng(0)
    rows = probe_rows(records, rng, [1])
    u, v = ({n: rng.normal(size=x.shape) for n, x in records.point.items()} for _ in range(2))
    both, zeros = {name: u[name] + v[name] for name in u}, {name: 0 * u[name] for name in u}
    at_u, at_v, at_both, at_0 = (evaluate(rows, z) for z in (u, v, both, zeros))
    return [
        f
        for f, a, b, ab, z in zip(candidates, at_u, at_v, at_both, at_0, strict=True)
        if np.isfinite([*map(np.sum, (a, b, ab, z))]).all()
        and nearly_equal(ab - z, (a - z) + (b - z))
        and not nearly_equal(a, z)
    ]


def predictor_at(
    records: Records, term: Tensor, psi: AnyVariable, shape: tuple[int, ...]
) -> Predictor:
    """Cut a term at a variable psi, and compare it with the known forms."""
    cut = psi.type.clone(dtype="float64")("psi")
    [log_likelihood] = clone_replace([term.sum()], {psi: cut}, rebuild_strict=False)
    gaussian = gaussian_latents(records)
    others = [name for name in records.latents if name not in gaussian]
    precisions = _reached(records, others, log_likelihood)
    if len(precisions) > 1 or any(records.point[name].size > 1 for name in precisions):
        raise NotConjugateError(f"has a noise precision that is not one number (`{precisions[0]}`)")
    precision = precisions[0] if precisions else None
    predictor = Predictor(psi, cut, log_likelihood, precision, shape)
    form, single = form_of(records, predictor)
    return predictor._replace(form=form, single=single)


def _reached(records: Records, names: Collection[str], graph: AnyVariable) -> list[str]:
    """Names of the latents that a graph depends on."""
    above = set(ancestors([graph]))
    return [name for name in names if records.latents[name] in above]


def _probit_slope(psi: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    # log Phi(c psi): PyMC's inverse link scales psi by 1 / sqrt 2
    c = first / PROBIT_SLOPE
    z = c * psi
    return np.asarray(c * np.exp(-(z**2) / 2 - log_ndtr(z)) / np.sqrt(2 * np.pi))


# the slope of a log likelihood at psi, given slope and second derivative at psi = 0
SLOPES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    GAUSSIAN: lambda psi, first, second: first + second * psi,
    LOGISTIC: lambda psi, first, second: first + 2 * second * np.tanh(psi / 2),
    PROBIT: _probit_slope,
}


class _Probe(NamedTuple):
    """A likelihood at one probe row and a random psi; slopes are over the noise precision."""

    psi: np.ndarray
    slope: np.ndarray  # at psi
    slope_at_0: np.ndarray
    second_at_0: np.ndarray  # the second derivative
    statistics: list[np.ndarray]  # shape and rate of the noise precision, at a random one
    is_conjugate: bool  # whether they are the same at a noise precision of 1


def form_of(records: Records, predictor: Predictor) -> tuple[str, bool]:
    """Find a likelihood's form in psi, and whether it is that of one Normal or Bernoulli outcome.

    The predictor's precision may multiply it, or divide it where it is a variance.
    """
    with np.errstate(all="ignore"):
        probes = list(_probes(records, predictor))
        for form in SLOPES if predictor.precision is None else (GAUSSIAN,):
            expected = (SLOPES[form](p.psi, p.slope_at_0, p.second_at_0) for p in probes)
            pairs = zip(probes, expected, strict=True)
            if all(p.is_conjugate and nearly_equal(p.slope, slope) for p, slope in pairs):
                return form, all(_is_single(form, probe) for probe in probes)
    return OTHER, False


def _probes(records: Records, predictor: Predictor) -> Iterator[_Probe]:
    graph, precision, shape = predictor.log_likelihood, predictor.precision, predictor.shape
    family = precision_family(records, precision) if precision else GAMMA
    statistics = family.statistics(graph, records.latents[precision]) if precision else ()
    graphs, one = [*two_derivatives(graph, predictor.cut), *statistics], ones(records)
    evaluate = at_point(records, records.single, graphs, [predictor.cut])
    for whole in (0, 1):
        rng = np.random.default_rng(whole)
        rows = probe_rows(records, rng, [whole])
        slope_at_0, second_at_0, *_ = evaluate(rows, one, np.zeros(shape))
        for _ in range(POINTS):
            at, value = 3 * rng.normal(size=shape), rng.uniform(0.5, 2.0)
            point = {name: value * x for name, x in one.items()}
            slope, _, *at_value = evaluate(rows, point, at)
            _, _, *at_1 = evaluate(rows, one, at)
            is_conjugate = all(map(nearly_equal, at_value, at_1))
            scale = 1.0 if not precision else 1 / value if family is INVERSE_GAMMA else value
            yield _Probe(at, slope / scale, slope_at_0, second_at_0, at_value, is_conjugate)


def _is_single(form: str, probe: _Probe) -> bool:
    """Whether the slope is that of one Normal or Bernoulli outcome."""
    slope, second = probe.slope_at_0, probe.second_at_0
    if probe.psi.size > 1:
        return False
    if form != GAUSSIAN:
        of_one = BINARY_SLOPES[form]
        return nearly_equal(np.abs(slope), of_one[0]) and nearly_equal(second, of_one[1])
    if not (second < 0).all():
        return False
    # the noise precision then has the statistics 1/2 and (y - psi)^2 / 2
    energy = (slope + second * probe.psi) ** 2 / (-2 * second)
    return all(map(nearly_equal, probe.statistics, (np.full_like(energy, 0.5), energy)))


def pg_weight(c: np.ndarray) -> np.ndarray:
    """Mean of a Pólya-Gamma variable PG(1, c) over 1/4 (Polson, Scott and Windle 2013)."""
    c = np.maximum(np.abs(c), SMALL)
    return np.asarray(2 * np.tanh(c / 2) / c)


def at_zero(predictor: Predictor) -> list[Tensor]:
    """Graphs of the log likelihood's slope, its second derivative and itself, at psi = 0."""
    value, zeros = predictor.log_likelihood, pt.constant(np.zeros(predictor.shape))
    graphs = [*two_derivatives(value, predictor.cut), value]
    return list(clone_replace(graphs, {predictor.cut: zeros}, rebuild_strict=False))


def where_zero(
    records: Records, graphs: Sequence[Tensor], backend: str
) -> Callable[[Batch], tuple[np.ndarray, ...]]:
    """Compile graphs of one record, for every row, where all Gaussian latents are 0."""
    evaluate = for_each_row(records, graphs, backend)
    zeros = {name: np.zeros(records.point[name].shape) for name in gaussian_latents(records)}
    point = ones(records) | zeros
    return lambda batch: evaluate(batch, point)


# --- rounds ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RoundOptions(BatchOptions):
    """The options of a method that fits linear predictors by rounds, or as its paper does."""

    noise_aware: bool = option(True, NOISE_AWARE)

    def rounds_from(
        self,
        find_start: FindStart = lambda: None,
        estimating: Estimating = AVERAGED,
        noiseless_too: bool = False,
    ) -> OnScale | None:
        """Return rounds in the place of own updates, unless options or no noise ask for these."""
        if self.rules_out_rounds or not (self.noise_aware if self.noisy else noiseless_too):
            return None
        n = default_length(self.noisy) if self.n is None else check_length(self.n)
        terms = RoundTerms.of(self, n)._replace(estimating=estimating)
        return OnScale(False, lambda records: whitened_method(records, terms, find_start))


@dataclass(frozen=True, kw_only=True)
class VipsOptions(RoundOptions):
    """The options of `vips`; None stands for the default of the model's class."""

    released = "statistics"

    form: str | None = option(
        None,
        "``absolute`` or ``paper`` for linear predictors, ``shrunk`` or ``absolute`` for topics",
    )
    iterations: int | None = option(
        None, "updates of the latents of single records before a release"
    )
    tau0: float = option(
        1.0, "released sums are averaged with steps (tau0 + t)^-kappa", (1, LARGEST)
    )
    kappa: float | None = option(None, "see ``tau0``", (0, 1))

    def rate(self, t: int, kappa: float = 0.7) -> float:
        """Step size rho_t = (tau0 + t)^-kappa of release t = 0, 1, ...; the first is at most 1."""
        kappa = kappa if self.kappa is None else self.kappa
        return min(1.0, float((self.tau0 + t) ** -kappa))


STEP = 0.7  # h in lambda <- (1 - h) lambda + h (sum of sites)
STEP_DOC = "damping h in ``lambda <- (1 - h) lambda + h (sum of sites)``"


@dataclass(frozen=True, kw_only=True)
class SepOptions(RoundOptions):
    """The options of `dp_sep`; None stands for the default of the model's class."""

    released = "sites"

    form: str | None = option(None, "``damped``, or the paper's ``algorithm3`` for reproduction")
    step: float | None = option(None, STEP_DOC)

    def __post_init__(self) -> None:
        super().__post_init__()
        # gamma of Algorithm 3 is divided by the number of records
        literal = self.form == "algorithm3"
        longest = (self.num_records or math.inf) if literal else 1
        if self.step is not None and not 0 < self.step <= longest:
            raise ValueError(f"step={self.step!r} must lie above 0, and be at most {longest}.")

    def rate(self, t: int) -> float:
        """Weight of the sites of release t = 0, 1, ... in lambda; the first replaces the start."""
        return 1.0 if t == 0 else (STEP if self.step is None else self.step)
