"""Factor models, recognised from the graph of one record.

psi = W z + c is linear in the loadings W, the intercept c and the latents z of one record. Either
z is Gaussian and the likelihood quadratic in psi (factor analysis), or z is binary and the
likelihood of the logistic kind (sigmoid belief networks).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, MvNormalRV, NormalRV

from pymc_dp.methods.conjugate.expectation import ConjugatePrior
from pymc_dp.methods.conjugate.exponential import GAMMA, gradients
from pymc_dp.methods.conjugate.families import conjugate_prior, families_of, gaussian_latents
from pymc_dp.methods.conjugate.inverse_gaussian import GENERALISED_INVERSE_GAUSSIAN
from pymc_dp.methods.conjugate.probe_points import at_point, nearly_equal, probe_rows
from pymc_dp.methods.linear.predictor import Predictor, predictor_of
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.methods.vips.factors.likelihood import curvature_at_zero
from pymc_dp.methods.vips.factors.local_latents import LatentPrior, latent_prior
from pymc_dp.model import Records

# probe points at which the bilinear form is tried
TRIALS = 3


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


def is_near(records: Records) -> bool:
    """Whether records have Normal or binary latents of their own."""
    kinds = (NormalRV, MvNormalRV, BernoulliRV)
    found = [isinstance(records.distributions[name], kinds) for name in records.local_latents]
    return bool(found) and all(found) and not records.of_units


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
    """Identify loadings and intercept by the derivatives of u'psi for random u."""
    ancestry = set(ancestors([predictor.psi]))
    names = [name for name in gaussian_latents(records) if records.latents[name] in ancestry]
    trials = [_derivatives(records, predictor, latent, names, seed) for seed in range(TRIALS)]

    def follow(pattern: Callable[[_Trial, str], bool]) -> list[str]:
        return [name for name in names if all(pattern(trial, name) for trial in trials)]

    along = follow(lambda trial, name: _same(trial.slopes[name], np.outer(trial.u, trial.z)))
    across = follow(lambda trial, name: _same(trial.slopes[name], np.outer(trial.z, trial.u)))
    constant = follow(lambda trial, name: _same(trial.slopes[name].ravel(), trial.u))
    loadings = along + across
    intercepts = [name for name in constant if name not in loadings]
    for name in names:
        if name not in loadings + intercepts:
            raise NotConjugateError(
                f"`{name}` is neither the loadings of `{latent.name}` nor an intercept"
            )
    if len(loadings) != 1 or len(intercepts) > 1:
        raise NotConjugateError(f"`{latent.name}` has not one matrix of loadings")
    if any(trial.psi_at_zero.any() for trial in trials):
        raise NotConjugateError("the predictor has an offset")
    return loadings[0], bool(across), intercepts[0] if intercepts else None


class _Trial(NamedTuple):
    u: np.ndarray
    z: np.ndarray
    slopes: dict[str, np.ndarray]
    psi_at_zero: np.ndarray


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and nearly_equal(first, second)


def _derivatives(
    records: Records, predictor: Predictor, latent: LatentPrior, names: list[str], seed: int
) -> _Trial:
    rng = np.random.default_rng(seed)
    rows = probe_rows(records, rng, [1])
    z = rows[latent.name] = latent.probe(rng).reshape(rows[latent.name].shape)
    u = rng.normal(size=predictor.shape)
    values = [records.latents[name] for name in names]
    slopes = gradients((pt.constant(u) * predictor.psi).sum(), values)
    evaluate = at_point(records, records.single, [predictor.psi, *slopes])
    point = {name: rng.normal(size=x.shape) for name, x in records.point.items()}
    at_zero, *_ = evaluate(rows, {name: 0 * x for name, x in point.items()})
    _, *found = evaluate(rows, point)
    return _Trial(u.ravel(), z.ravel(), dict(zip(names, found, strict=True)), at_zero)


def roles(records: Records, structure: FactorModel) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    found = {name: f"{family.name} block" for name, family in structure.prior.families.items()}
    found[structure.loadings] = "loadings of a factor model"
    if structure.intercept:
        found[structure.intercept] = "intercept of a factor model"
    if structure.latent.log_odds:
        found[structure.latent.log_odds] = f"log odds of `{structure.latent.name}`"
    kind = "binary" if structure.latent.binary else "Gaussian"
    for name in records.term_names:
        found[name] = f"{kind} outcome of a factor model"
    found[structure.latent.name] = f"{kind} latents of single records"
    return found
