"""Why a model does not fit a kind of update."""

from pymc_dp.records import Records


class NotConjugateError(Exception):
    """A kind of update does not fit; the text is a clause that says why, without a full stop."""


def refuse_local_latents(records: Records) -> None:
    """Refuse latents of single records, where a kind of update has none."""
    for name in records.local_latents:
        raise NotConjugateError(f"`{name}` belongs to single records")
