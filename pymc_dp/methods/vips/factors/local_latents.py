"""Latents of single records whose priors allow closed-form updates: Gaussian, or binary."""

from typing import NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BernoulliRV, NormalRV

from pymc_dp.methods.conjugate.blocks import at_point, gaussian_latents, nearly_equal, probe_rows
from pymc_dp.methods.conjugate.exponential import gradients
from pymc_dp.methods.refusal import NotConjugateError
from pymc_dp.model import Records
from pymc_dp.model.graph_types import AnyVariable, Tensor


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


def latent_prior(records: Records) -> LatentPrior:
    """Read the prior of the one variable that belongs to single records."""
    if len(records.local_latents) != 1:
        found = ", ".join(f"`{name}`" for name in records.local_latents) or "no latent"
        raise NotConjugateError(f"{found} belong to single records, where there must be one")
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
