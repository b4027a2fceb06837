"""Linear predictors, recognised from the graph of one record.

psi = psi_0 + A v is affine in the Gaussian latents v, which is decided at probe points, and the
likelihood depends on v through psi alone.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pymc_dp.methods.conjugate.blocks import (
    at_few_points,
    gaussian_latents,
    nearly_equal,
    probe_rows,
)
from pymc_dp.methods.linear.link import GAUSSIAN, LOGISTIC, form_of
from pymc_dp.methods.refusal import NotConjugateError, refuse_local_latents
from pymc_dp.model import Records
from pymc_dp.model.graph_types import AnyVariable, Tensor, pt


class Predictor(NamedTuple):
    """One term of the likelihood as a function of its predictor, for one record."""

    psi: Tensor  # the predictor; J entries
    cut: Tensor  # what stands for psi in ``log_likelihood``, a scalar
    log_likelihood: Tensor
    # name of the Gamma latent that multiplies the whole likelihood, or of the inverse gamma latent
    # that divides it
    precision: str | None
    shape: tuple[int, ...]  # the shape of psi
    form: str  # of the likelihood in psi: `GAUSSIAN`, `LOGISTIC`, `PROBIT` or `OTHER`
    single: bool  # whether the likelihood is that of one number, as in `form_of`

    @property
    def augmented(self) -> bool:
        """Whether Pólya-Gamma variables make the likelihood quadratic."""
        return self.form == LOGISTIC


def recognise(
    records: Records, find: Callable[[Records, Tensor], Predictor]
) -> tuple[Predictor, ...]:
    """Find the linear predictor of every term of the likelihood, or raise NotConjugateError."""
    refuse_local_latents(records)
    if not gaussian_latents(records):
        raise NotConjugateError("no latent has a Gaussian prior, so there is no linear predictor")
    found = []
    for name, term in zip(records.term_names, records.single.terms, strict=True):
        try:
            found.append(find(records, term))
        except NotConjugateError as reason:
            raise NotConjugateError(f"the likelihood of `{name}` {reason}") from None
    return tuple(found)


def is_near_regression(records: Records) -> bool:
    """Whether every term has a predictor that is linear in Gaussian latents."""
    if records.local_latents:
        return False
    return all(
        any(_affine(records, list(bottlenecks(records, term)))) for term in records.single.terms
    )


def predictor_of(
    records: Records, term: Tensor, excluded: Collection[AnyVariable] = ()
) -> Predictor:
    """Find the `linear_predictor` of a term that is quadratic in it, if need be by augmentation."""
    found = linear_predictor(records, term, excluded)
    if found.form not in (GAUSSIAN, LOGISTIC):
        raise NotConjugateError("is neither Gaussian nor logistic in its linear predictor")
    return found


def linear_predictor(
    records: Records, term: Tensor, excluded: Collection[AnyVariable] = ()
) -> Predictor:
    """Find the linear predictor of one term, which depends on no variable in ``excluded``."""
    if not _reached(records, gaussian_latents(records), term):
        raise NotConjugateError("has no latent with a Gaussian prior")
    candidates = list(bottlenecks(records, term, excluded))
    affine = [c for c, yes in zip(candidates, _affine(records, candidates), strict=True) if yes]
    if not affine:
        raise NotConjugateError("has no predictor that is linear in the Gaussian latents")
    rows = probe_rows(records, np.random.default_rng(0), [1])
    [psi] = at_few_points(records, affine[:1])(rows, records.point)
    found = predictor_at(records, term, affine[0], psi.shape)
    if found.precision and found.form != GAUSSIAN:
        raise NotConjugateError(_why_not_gaussian(records, found, found.precision))
    return found


def _why_not_gaussian(records: Records, found: Predictor, scale: str) -> str:
    """Say whether a likelihood would be Gaussian if a latent were known."""
    known = {records.latents[scale]: pt.ones(records.point[scale].shape)}
    [given] = clone_replace([found.log_likelihood], known, rebuild_strict=False)
    if form_of(records, given, found.cut, None, found.shape)[0] != GAUSSIAN:
        return f"is not Gaussian, and depends on `{scale}`"
    return (
        f"is Gaussian, but `{scale}` is no Gamma precision of it: with tau=pm.Gamma(...) in place "
        "of sigma= the updates are exact"
    )


def bottlenecks(
    records: Records, term: AnyVariable, excluded: Collection[AnyVariable] = ()
) -> Iterator[AnyVariable]:
    """Find variables that separate a term from its Gaussian latents, nearest to the term first.

    None of them depends on a latent of another kind, or on a variable in ``excluded``. A latent may
    be one itself.
    """
    names = gaussian_latents(records)
    gaussian = {records.latents[name] for name in names}
    others = {v for name, v in records.latents.items() if name not in names}.union(excluded)
    for variable in ancestors([term]):
        if isinstance(variable.type, TensorType) and variable.type.dtype.startswith("float"):
            above = set(ancestors([variable]))
            beside = set(ancestors([term], blockers=[variable]))
            if gaussian & above and not others & above and not gaussian & beside:
                yield variable


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
    form, single = form_of(records, log_likelihood, cut, precision, shape)
    return Predictor(psi, cut, log_likelihood, precision, shape, form, single)


def _reached(records: Records, names: Collection[str], graph: AnyVariable) -> list[str]:
    """Names of the latents that a graph depends on."""
    above = set(ancestors([graph]))
    return [name for name in names if records.latents[name] in above]


def _affine(records: Records, candidates: list[AnyVariable]) -> list[bool]:
    """Whether f(u + v) = f(u) + f(v) - f(0) at random u and v."""
    if not candidates:
        return []
    evaluate, rng = at_few_points(records, candidates), np.random.default_rng(0)
    rows = probe_rows(records, rng, [1])
    u, v = ({n: rng.normal(size=x.shape) for n, x in records.point.items()} for _ in range(2))
    both, zeros = {name: u[name] + v[name] for name in u}, {name: 0 * u[name] for name in u}
    at_u, at_v, at_both, at_0 = (evaluate(rows, z) for z in (u, v, both, zeros))
    return [
        bool(np.isfinite([*map(np.sum, (a, b, ab, z))]).all())
        and nearly_equal(ab - z, (a - z) + (b - z))
        and not nearly_equal(a, z)
        for a, b, ab, z in zip(at_u, at_v, at_both, at_0, strict=True)
    ]
