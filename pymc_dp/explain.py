"""Which method fits which part of a model, and why."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pymc as pm

from pymc_dp.methods.kinds import Kind, find
from pymc_dp.methods.sep.sep import KINDS as SEP_KINDS
from pymc_dp.methods.vips.vips import KINDS as VIPS_KINDS
from pymc_dp.prepare import model_of
from pymc_dp.records import Records, constrained, separate


class Fits(NamedTuple):
    """Whether a method has updates for a model.

    Attributes
    ----------
    why : str
    roles : {variable: role}
        What each latent and each term of the likelihood is to these updates; empty where there
        are none.
    """

    why: str
    roles: dict[str, str]

    def __str__(self) -> str:
        return "\n".join([self.why, *(f"    {name}: {role}" for name, role in self.roles.items())])


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation:
    """What `explain` found; prints as a text.

    Attributes
    ----------
    records : tuple of str
        The data that go by records.
    dp_advi : str
        Why the gradient methods and posterior sampling fit or do not fit.
    vips, dp_sep : Fits
        The kind of model that has updates of its own, or why there is none.
    """

    records: tuple[str, ...]
    dp_advi: str
    vips: Fits
    dp_sep: Fits

    def __str__(self) -> str:
        lines = [
            f"Records: one row of {', '.join(f'`{name}`' for name in self.records)}.",
            f"dp_advi, dp_fullrank_advi, dp_sgld, dp_ops: {self.dp_advi}",
            f"vips: {self.vips}",
            f"dp_sep: {self.dp_sep}",
        ]
        return "\n".join(lines)

    __repr__ = __str__


def explain(
    model: pm.Model | None = None,
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
) -> Explanation:
    """Say which method fits which part of a model, and why.

    Parameters
    ----------
    model : pymc.Model, optional
        Inside ``with model:`` it may be left out.
    public, data
        As in `pymc_dp.fit`.

    Returns
    -------
    Explanation
        Print it, or one of its parts.

    Raises
    ------
    NotSeparableError
        No method fits: the likelihood is not proved to be one term per record.

    Notes
    -----
    **Privacy.** Spends nothing. What fits is decided at made-up rows and points; the data are read
    only to check that the model can be fitted.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    >>> print(pymc_dp.explain(model).vips)
    fits, as a model of conjugate blocks and mixtures.
        p: Beta block
        y: conjugate likelihood
    """
    records, columns = separate(constrained(model_of(model)), public=public, data=data)
    found = (_fits(kinds, records) for kinds in (VIPS_KINDS, SEP_KINDS))
    return Explanation(tuple(columns), _advi(records), *found)


def _advi(records: Records) -> str:
    if not records.local_latents:
        return "fit, as any model does that has no latent of single records."
    name = next(iter(records.local_latents))
    return f"do not fit: `{name}` has an entry for every record. Marginalise it."


def _fits(kinds: Sequence[Kind], records: Records) -> Fits:
    kind, structure, reasons = find(kinds, records)
    if kind is not None:
        return Fits(f"fits, as a model of {kind.title}.", kind.roles(records, structure))
    told = ";".join(f"\n    not of {title}: {reason}" for title, reason in reasons.items())
    return Fits(f"does not fit:{told}.", {})
