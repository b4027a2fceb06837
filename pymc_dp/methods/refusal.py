"""Why a model does not fit a method, or a kind of update."""

from pymc_dp.errors import NotSeparableError
from pymc_dp.model import Records


class NotConjugateError(Exception):
    """A kind of update does not fit; the text is a clause that says why, without a full stop."""


def refuse_local_latents(records: Records) -> None:
    """Refuse latents of single records, where a kind of update has none."""
    for name in records.local_latents:
        raise NotConjugateError(f"`{name}` belongs to single records")


RELEASED_ONE_BY_ONE = (
    ": it is a local latent, which would have to be released record by record. Marginalise it "
    "(pm.NegativeBinomial, pm.BetaBinomial, pm.Mixture), or index it by groups."
)


def require_shared_latents(records: Records, consequence: str = RELEASED_ONE_BY_ONE) -> None:
    """Refuse latents of single records for a whole method, with what they would mean to it."""
    for name in records.local_latents:
        raise NotSeparableError(f"`{name}` has an entry for every record{consequence}")
