"""Linear predictors, recognised from the graph of one record.

psi = psi_0 + A v is affine in the Gaussian latents v, and the log likelihood is quadratic in psi
(Gaussian noise) or becomes so by Pólya-Gamma augmentation (Bernoulli, binomial and negative
binomial outcomes with a logistic link). Both are decided at made-up points.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_dp.compile import function
from pymc_dp.contributions.contribution import Batch
from pymc_dp.contributions.gradients import by_record, checked
from pymc_dp.methods.vips.exponential import GAMMA, slopes
from pymc_dp.methods.vips.refusal import NotConjugateError
from pymc_dp.methods.vips.trial import agree, made_up_rows
from pymc_dp.records import Records

# made-up points at which a likelihood is compared with its quadratic or Pólya-Gamma form
TRIALS = 4
# below it tanh(c/2) / c is its limit
SMALL = 1e-6


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
    augmented : bool
        Whether the likelihood needs Pólya-Gamma variables.
    """

    psi: Variable
    cut: Variable
    log_likelihood: Variable
    precision: str | None
    augmented: bool


class Features(NamedTuple):
    """What records contribute to one predictor; nothing here depends on the latents.

    Attributes
    ----------
    design : (rows, J, d)
        Derivatives of psi with respect to the Gaussian latents.
    offset : (rows, J)
        psi where all Gaussian latents are 0.
    slope, curvature : (rows, J)
        kappa and omega of the log likelihood kappa psi - omega psi^2 / 2 + const, at a noise
        precision of 1; the curvature of an augmented likelihood is the one at psi = 0.
    shape, energy : (rows,)
        The statistics (a, b) of the noise precision where psi = 0; zero where it has none.
    """

    design: np.ndarray
    offset: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    shape: np.ndarray
    energy: np.ndarray


def gaussian_latents(records: Records) -> list[str]:
    """Names of the latents with Gaussian priors."""
    normal = (NormalRV, MvNormalRV)
    return [name for name in records.latents if isinstance(records.distributions[name], normal)]


def pg_weight(c: np.ndarray) -> np.ndarray:
    """Mean of a Pólya-Gamma variable PG(1, c) over its largest value 1/4, at c = 0.

    >>> import numpy as np
    >>> pg_weight(np.array([0.0, 2.0])).round(4)
    array([1.    , 0.7616])
    """
    c = np.maximum(np.abs(c), SMALL)
    return 2 * np.tanh(c / 2) / c


def recognise(records: Records) -> tuple[Predictor, ...]:
    """Find the linear predictor of every term of the likelihood.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
    if records.local_latents:
        name = next(iter(records.local_latents))
        raise NotConjugateError(f"`{name}` belongs to single records")
    if not gaussian_latents(records):
        raise NotConjugateError("no latent has a Gaussian prior, so there is no linear predictor")
    found = []
    for name, term in zip(records.term_names, records.single.terms, strict=True):
        try:
            found.append(predictor_of(records, term))
        except NotConjugateError as reason:
            raise NotConjugateError(f"the likelihood of `{name}` {reason}") from None
    return tuple(found)


def predictor_of(records: Records, term: Variable, apart: Iterable[Variable] = ()) -> Predictor:
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
    found = Predictor(psi, cut, log_likelihood, precision, augmented=False)
    return found._replace(augmented=_is_augmented(records, found))


def _affine_cut(records: Records, term: Variable, others: set[Variable]) -> Variable:
    """Find the last variable that all Gaussian latents pass through and that is affine in them."""
    gaussian = [records.latents[name] for name in gaussian_latents(records)]
    if not set(gaussian).intersection(ancestors([term])):
        raise NotConjugateError("has no latent with a Gaussian prior")
    candidates = [
        variable
        for variable in records.single.axis
        if variable.owner is not None
        and variable.dtype.startswith("float")
        and not others.intersection(ancestors([variable]))
        and not set(gaussian).intersection(ancestors([term], blockers=[variable]))
        and set(gaussian).intersection(ancestors([variable]))
    ]
    order = {variable: i for i, variable in enumerate(ancestors([term]))}
    candidates = sorted((c for c in candidates if c in order), key=order.__getitem__)
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


def _is_augmented(records: Records, predictor: Predictor) -> bool:
    """Tell a quadratic likelihood from one with the Pólya-Gamma form, or refuse it."""
    first, second = slopes(predictor.log_likelihood, predictor.cut)
    tau = [records.latents[predictor.precision]] if predictor.precision else []
    energy = GAMMA.statistics(predictor.log_likelihood, tau[0]) if tau else ()
    leaves = list(records.single.inputs.values())
    fn = function([predictor.cut, *tau, *leaves], [first, second, *energy], "python")
    forms = [_forms(records, predictor, fn, whole) for whole in (0, 1)]
    if all(quadratic for quadratic, _ in forms):
        return False
    if all(logistic for _, logistic in forms) and not tau:
        return True
    raise NotConjugateError("is neither Gaussian nor logistic in its linear predictor")


def _forms(records: Records, predictor: Predictor, fn: Callable, whole: int) -> tuple[bool, bool]:
    """Compare the slope in psi with that of the quadratic and of the logistic form."""
    rng = np.random.default_rng(whole)
    rows = list(made_up_rows(records, rng, [whole]).values())
    shape = psi_shape(records, predictor, rows)
    of_precision = records.point[predictor.precision].shape if predictor.precision else None

    def at(psi: np.ndarray, precision: float) -> list[np.ndarray]:
        tau = [] if of_precision is None else [np.full(of_precision, precision)]
        return fn(psi, *tau, *rows)

    slope, minus_curvature, *_ = at(np.zeros(shape), 1.0)
    quadratic = logistic = True
    for _ in range(TRIALS):
        psi, precision = 3 * rng.normal(size=shape), rng.uniform(0.5, 2.0)
        got, _, *statistics = at(psi, precision)
        straight = precision * (slope + minus_curvature * psi)
        constant = all(map(agree, statistics, at(psi, 1.0)[2:]))
        quadratic &= agree(got, straight if predictor.precision else straight / precision)
        quadratic &= constant
        logistic &= agree(got, slope + 2 * minus_curvature * np.tanh(psi / 2))
    return quadratic, logistic


def psi_shape(records: Records, predictor: Predictor, rows: list[np.ndarray]) -> tuple[int, ...]:
    """Evaluate the shape of one record's linear predictor."""
    inputs = [*records.latents.values(), *records.single.inputs.values()]
    fn = function(inputs, predictor.psi, "python")
    return fn(*records.point.values(), *rows).shape


def features(
    records: Records, predictors: tuple[Predictor, ...], backend: str
) -> Callable[[Batch], list[Features]]:
    """Compile the features of a batch, one value for each predictor."""
    graphs = [graph for predictor in predictors for graph in _feature_graphs(records, predictor)]
    rows = [checked(records, row) for row in by_record(records, graphs)]
    # also the check of indices asks for the latents' shapes
    rows = clone_replace(rows, _at_rest(records), rebuild_strict=False)
    fn = function(list(records.batch.inputs.values()), rows, backend)
    names, width = list(records.batch.inputs), len(Features._fields)

    def compute(batch: Batch) -> list[Features]:
        values = fn(*[batch[name] for name in names])
        return [_arranged(values[start : start + width]) for start in range(0, len(values), width)]

    return compute


def _at_rest(records: Records) -> dict[Variable, Variable]:
    """Where features are taken: Gaussian latents at 0, precisions at 1."""
    gaussian = gaussian_latents(records)
    return {
        v: pt.constant(np.full(records.point[name].shape, float(name not in gaussian)))
        for name, v in records.latents.items()
    }


def _feature_graphs(records: Records, predictor: Predictor) -> list[Variable]:
    """The graphs of `Features` for one record; nothing of them depends on the latents."""
    psi, cut, log_likelihood, precision, _ = predictor
    slope, minus_curvature = slopes(log_likelihood, cut)
    energy = (pt.constant(0.0), pt.constant(0.0))
    if precision:
        energy = GAMMA.statistics(log_likelihood, records.latents[precision])
    # a record outside the likelihood's support must not contribute
    shape, rate = (pt.switch(pt.isinf(log_likelihood), np.nan, e.sum()) for e in energy)
    graphs = [_design(records, predictor), psi, slope, -minus_curvature, shape, rate]
    return clone_replace(graphs, {cut: pt.zeros_like(psi)}, rebuild_strict=False)


def _design(records: Records, predictor: Predictor) -> Variable:
    """Derivatives of psi, shape (J, d); one entry of psi at a time, which keeps shapes static."""
    gaussian = [records.latents[name] for name in gaussian_latents(records)]
    rows = list(made_up_rows(records, np.random.default_rng(0), [1]).values())
    entries = [
        grad(predictor.psi[i], gaussian, disconnected_inputs="ignore", return_disconnected="zero")
        for i in np.ndindex(psi_shape(records, predictor, rows))
    ]
    return pt.stack([pt.concatenate([g.ravel() for g in blocks]) for blocks in entries])


def _arranged(values: list[np.ndarray]) -> Features:
    design, *by_entry, shape, energy = values
    offset, slope, curvature = (x.reshape(len(design), -1) for x in by_entry)
    return Features(design, offset, slope, curvature, shape, energy)
