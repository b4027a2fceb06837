"""Why a model does not fit a method, or a kind of update."""

from pymc.util import get_untransformed_name, is_transformed_name

from pymc_dp.contributions.local_latents import MOST_LATENTS, size_of_locals
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import Records


class NotConjugateError(Exception):
    """A kind of update does not fit; the text is a clause that says why, without a full stop."""


def _as_written(name: str) -> str:
    """Quote a latent by the name that the model gives it."""
    return f"`{get_untransformed_name(name) if is_transformed_name(name) else name}`"


def refuse_local_latents(records: Records) -> None:
    """Refuse latents of single records, where a kind of update has none."""
    for name in records.local_latents:
        raise NotConjugateError(f"{_as_written(name)} belongs to single records")


RELEASED_ONE_BY_ONE = (
    ": it is a local latent, which would have to be released record by record. method='dp_advi' "
    "integrates it out; or marginalise it (pm.NegativeBinomial, pm.BetaBinomial, pm.Mixture)."
)


def require_shared_latents(records: Records, consequence: str = RELEASED_ONE_BY_ONE) -> None:
    """Refuse latents of single records for a whole method, with what they would mean to it."""
    for name in records.local_latents:
        raise NotSeparableError(f"{_as_written(name)} has an entry for every record{consequence}")


def require_integrable(records: Records) -> None:
    """Refuse latents of single records or units that cannot be integrated out."""
    if not records.latents:
        names = ", ".join(map(_as_written, records.local_latents))
        raise NotSeparableError(
            f"Each record or unit has its own {names}, and records share no latent: there is "
            "nothing that a fit may release. Where a row is the total of a group, give each member "
            "of the group a row, and index the latent by group; else give its prior a latent mean "
            "or scale."
        )
    for name in records.local_latents:
        if not records.batch.inputs[name].type.dtype.startswith("float"):
            raise NotSeparableError(
                f"`{name}` is a discrete latent of single records. Marginalise it: pm.Mixture and "
                "pm.ZeroInflatedPoisson do so, for example."
            )
    size = size_of_locals(records)
    if size > MOST_LATENTS:
        names = ", ".join(map(_as_written, records.local_latents))
        raise NotSeparableError(
            f"Every single record or unit has {size} latents of its own, {names}, and dp_advi "
            f"integrates out at most {MOST_LATENTS}: use fewer, or method='vips' for factors and "
            "topics."
        )
