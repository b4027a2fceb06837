"""Linear predictors, recognised from the graph of one record.

psi = psi_0 + A v is affine in the Gaussian latents v, which is decided at made-up points, and the
likelihood depends on v through psi alone.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_dp.compile import function
from pymc_dp.methods.blocks.families import gaussian_latents
from pymc_dp.methods.blocks.made_up import agree, made_up_rows
from pymc_dp.methods.linear.link import GAUSSIAN, LOGISTIC, Likelihood, form_of
from pymc_dp.methods.refusal import NotConjugateError, refuse_local_latents
from pymc_dp.records import Records


class Predictor(NamedTuple):
    """One term of the likelihood as a function of its linear predictor, for one record.

    Attributes
    ----------
    psi : Variable
        The linear predictor; J entries.
    cut : Variable
        What stands for psi in ``log_likelihood``, a scalar.
    precision : str or None
        Name of the Gamma block that multiplies the whole likelihood.
    shape : tuple of int
        The shape of psi.
    form : str
        How the likelihood depends on psi: `GAUSSIAN`, `LOGISTIC`, `PROBIT` or `OTHER`.
    """

    psi: Variable
    cut: Variable
    log_likelihood: Variable
    precision: str | None
    shape: tuple[int, ...]
    form: str

    @property
    def augmented(self) -> bool:
        """Whether Pólya-Gamma variables make the likelihood quadratic."""
        return self.form == LOGISTIC


Find = Callable[[Records, Variable], Predictor]


def recognise(records: Records, find: Find) -> tuple[Predictor, ...]:
    """Find the linear predictor of every term of the likelihood.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
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


def predictor_of(records: Records, term: Variable, apart: Iterable[Variable] = ()) -> Predictor:
    """Find the linear predictor of a term that is quadratic in it, if need be by augmentation.

    No variable in ``apart`` is a part of it.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
    found = linear_predictor(records, term, apart)
    if found.form not in (GAUSSIAN, LOGISTIC):
        raise NotConjugateError("is neither Gaussian nor logistic in its linear predictor")
    return found


def linear_predictor(records: Records, term: Variable, apart: Iterable[Variable] = ()) -> Predictor:
    """Find the linear predictor of one term, of which no variable in ``apart`` is a part.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
    gaussian = gaussian_latents(records)
    others = {name: v for name, v in records.latents.items() if name not in gaussian}
    psi = _affine_cut(records, term, {*others.values(), *apart})
    cut = psi.type.clone(dtype="float64")("psi")
    [log_likelihood] = clone_replace([term.sum()], {psi: cut}, rebuild_strict=False)
    reached = set(ancestors([log_likelihood]))
    precisions = [name for name, v in others.items() if v in reached]
    if len(precisions) > 1 or any(records.point[name].size > 1 for name in precisions):
        raise NotConjugateError(f"has a noise precision that is not one number (`{precisions[0]}`)")
    precision = precisions[0] if precisions else None
    shape = _shape_of(records, psi)
    form = form_of(records, Likelihood(log_likelihood, cut, precision, shape))
    if precision and form != GAUSSIAN:
        raise NotConjugateError(f"is not Gaussian, and depends on `{precision}`")
    return Predictor(psi, cut, log_likelihood, precision, shape, form)


def _affine_cut(records: Records, term: Variable, others: set[Variable]) -> Variable:
    """Find the last variable that all Gaussian latents pass through and that is affine in them."""
    gaussian = [records.latents[name] for name in gaussian_latents(records)]
    if not set(gaussian).intersection(ancestors([term])):
        raise NotConjugateError("has no latent with a Gaussian prior")
    # nearest to the likelihood first; a bare intercept is a predictor too
    candidates = [
        variable
        for variable in ancestors([term])
        if (variable.owner is not None or variable in gaussian)
        and variable.dtype.startswith("float")
        and not others.intersection(ancestors([variable]))
        and not set(gaussian).intersection(ancestors([term], blockers=[variable]))
        and set(gaussian).intersection(ancestors([variable]))
    ]
    straight = _affine(records, candidates)
    affine = [c for c, yes in zip(candidates, straight, strict=True) if yes]
    if not affine:
        raise NotConjugateError("has no predictor that is linear in the Gaussian latents")
    return affine[0]


def _affine(records: Records, candidates: list[Variable]) -> list[bool]:
    """Whether f(u + v) = f(u) + f(v) - f(0) at made-up u and v."""
    if not candidates:
        return []
    names = gaussian_latents(records)
    leaves = records.single.inputs
    inputs = [*[records.latents[name] for name in names], *leaves.values()]
    fn = function(inputs, candidates, "python")
    rng = np.random.default_rng(0)
    rows = made_up_rows(records, rng, [1])
    u, v = ([rng.normal(size=records.point[name].shape) for name in names] for _ in range(2))
    both = [a + b for a, b in zip(u, v, strict=True)]
    nothing = [np.zeros_like(a) for a in u]
    at_u, at_v, at_both, at_0 = (fn(*z, *rows.values()) for z in (u, v, both, nothing))
    return [
        agree(ab - z, (a - z) + (b - z)) and not agree(a, z)
        for a, b, ab, z in zip(at_u, at_v, at_both, at_0, strict=True)
    ]


def _shape_of(records: Records, graph: Variable) -> tuple[int, ...]:
    """Evaluate the shape of a graph of one made-up record."""
    rows = made_up_rows(records, np.random.default_rng(0), [1])
    inputs = [*records.latents.values(), *records.single.inputs.values()]
    return function(inputs, graph, "python")(*records.point.values(), *rows.values()).shape
