"""Factor models, recognised from the graph of one record.

psi = W z + c is linear in the loadings W, the intercept c and the latents z of one record. Either
z is Gaussian and the likelihood quadratic in psi (factor analysis), or z is binary and the
likelihood of the logistic kind (sigmoid belief networks).
"""

from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.traversal import ancestors

from pymc_dp.compile import function
from pymc_dp.methods.blocks.expectation import Message, prior_messages
from pymc_dp.methods.blocks.exponential import GAMMA, ExponentialFamily
from pymc_dp.methods.blocks.families import families_of, gaussian_latents
from pymc_dp.methods.blocks.made_up import agree, made_up_point, made_up_rows
from pymc_dp.methods.linear.predictor import Predictor, predictor_of
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.methods.vips.factor_likelihood import check_noise, curvature_at_rest
from pymc_dp.methods.vips.inverse_gaussian import GENERALISED_INVERSE_GAUSSIAN
from pymc_dp.methods.vips.local_latents import LatentPrior, latent_prior
from pymc_dp.records import Records

# made-up points at which the bilinear form is tried
TRIALS = 3


class FactorModel(NamedTuple):
    """A model psi = W z + c with latents z of single records.

    Attributes
    ----------
    predictor : Predictor
    latent : LatentPrior
        The latents of single records.
    loadings : str
        Name of W.
    across : bool
        Whether W has a row for each latent, shape (K, J), and not one for each entry of psi.
    intercept : str or None
        Name of c.
    intercept_shape : tuple of int
        Its shape, with J entries.
    curvature : (J,)
        Largest curvature of a record's log likelihood in psi, at a noise precision of 1.
    families : {latent: ExponentialFamily}
    messages : {latent: Message}
    """

    predictor: Predictor
    latent: LatentPrior
    loadings: str
    across: bool
    intercept: str | None
    intercept_shape: tuple[int, ...]
    curvature: np.ndarray
    families: dict[str, ExponentialFamily]
    messages: dict[str, Message]

    @property
    def shape(self) -> tuple[int, int]:
        """The lengths J of psi and K of z."""
        return len(self.curvature), self.latent.length

    @property
    def gain(self) -> np.ndarray:
        """Units in which outcomes are taken: known precisions of Gaussian ones, else 1."""
        return np.ones(len(self.curvature)) if self.latent.binary else np.sqrt(self.curvature)

    def matrix(self, loadings: np.ndarray) -> np.ndarray:
        """Bring values of the loadings to shape (J, K)."""
        return loadings.T if self.across else loadings


def recognise(records: Records) -> FactorModel:
    """Prove, at made-up points, that the model is a factor model with conjugate priors.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
    latent = latent_prior(records)
    predictor = _predictor(records, latent.name)
    if records.single.inputs[latent.name] in set(ancestors([predictor.log_likelihood])):
        raise NotConjugateError(f"`{latent.name}` enters the likelihood beside its predictor")
    if predictor.augmented != latent.binary:
        raise NotConjugateError(
            f"`{latent.name}` must be Gaussian where outcomes are, and binary where they are"
        )
    loadings, across, intercept = _roles(records, predictor, latent)
    curvature = curvature_at_rest(records, predictor)
    check_noise(records, predictor, curvature)
    families, messages = _conjugate_priors(records)
    shape = records.point[intercept].shape if intercept else curvature.shape
    return FactorModel(
        predictor, latent, loadings, across, intercept, shape, curvature, families, messages
    )


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
    """Tell loadings and intercept by the derivatives of u'psi for random u."""
    reached = set(ancestors([predictor.psi]))
    names = [name for name in gaussian_latents(records) if records.latents[name] in reached]
    trials = [_derivatives(records, predictor, latent, names, seed) for seed in range(TRIALS)]
    along, across, once = (
        [name for name in names if all(test(trial, name) for trial in trials)]
        for test in (
            lambda trial, name: _same(trial.slopes[name], np.outer(trial.u, trial.z)),
            lambda trial, name: _same(trial.slopes[name], np.outer(trial.z, trial.u)),
            lambda trial, name: _same(trial.slopes[name].ravel(), trial.u),
        )
    )
    loadings, intercepts = along + across, [name for name in once if name not in along + across]
    for name in names:
        if name not in loadings + intercepts:
            raise NotConjugateError(
                f"`{name}` is neither the loadings of `{latent.name}` nor an intercept"
            )
    if len(loadings) != 1 or len(intercepts) > 1:
        raise NotConjugateError(f"`{latent.name}` has not one matrix of loadings")
    if any(trial.psi_at_rest.any() for trial in trials):
        raise NotConjugateError("the predictor has an offset")
    return loadings[0], bool(across), intercepts[0] if intercepts else None


class _Trial(NamedTuple):
    u: np.ndarray
    z: np.ndarray
    slopes: dict[str, np.ndarray]
    psi_at_rest: np.ndarray


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and agree(first, second)


def _derivatives(
    records: Records, predictor: Predictor, latent: LatentPrior, names: list[str], seed: int
) -> _Trial:
    rng = np.random.default_rng(seed)
    rows = made_up_rows(records, rng, [1])
    z = latent.made_up(rng).reshape(rows[latent.name].shape)
    rows[latent.name] = z
    u = rng.normal(size=predictor.shape)
    values = [records.latents[name] for name in names]
    slopes_at = grad((pt.constant(u) * predictor.psi).sum(), values)
    inputs = [*values, *records.single.inputs.values()]
    fn = function(inputs, [predictor.psi, *slopes_at], "python")
    shapes = [records.point[name].shape for name in names]
    at_rest = fn(*map(np.zeros, shapes), *rows.values())[0]
    _, *found = fn(*[rng.normal(size=shape) for shape in shapes], *rows.values())
    return _Trial(u.ravel(), z.ravel(), dict(zip(names, found, strict=True)), at_rest)


def _conjugate_priors(
    records: Records,
) -> tuple[dict[str, ExponentialFamily], dict[str, Message]]:
    """Prove the prior conjugate to every block, of its own family or of one that contains it."""
    families = families_of(records)
    messages = prior_messages(records, families)
    for name, family in families.items():
        wider = [family, GENERALISED_INVERSE_GAUSSIAN] if family is GAMMA else [family]
        found = [f for f in wider if _is_conjugate(records, families, name, f)]
        if not found:
            raise NotConjugateError(f"the prior of `{name}` is not conjugate")
        if found[0] is not family:
            families[name] = found[0]
            messages |= prior_messages(records, {name: found[0]})
    return families, messages


def _is_conjugate(
    records: Records,
    families: dict[str, ExponentialFamily],
    name: str,
    family: ExponentialFamily,
) -> bool:
    message = prior_messages(records, {name: family})[name]
    rng = np.random.default_rng(0)
    first, second = (made_up_point(records, families, rng) for _ in range(2))
    return all(map(agree, message(first), message(first | {name: second[name]})))


def roles(records: Records, structure: FactorModel) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    told = {name: f"{family.name} block" for name, family in structure.families.items()}
    told[structure.loadings] = "loadings of a factor model"
    if structure.intercept:
        told[structure.intercept] = "intercept of a factor model"
    if structure.latent.log_odds:
        told[structure.latent.log_odds] = f"log odds of `{structure.latent.name}`"
    kind = "binary" if structure.latent.binary else "Gaussian"
    for name in records.term_names:
        told[name] = f"{kind} outcome of a factor model"
    told[structure.latent.name] = f"{kind} latents of single records"
    return told
