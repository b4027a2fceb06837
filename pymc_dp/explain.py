"""Which method fits which part of a model, and why."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pymc as pm

from pymc_dp.methods.vips.refusal import NotConjugateError
from pymc_dp.methods.vips.vips import KINDS
from pymc_dp.records import Records, constrained, separate


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation:
    """What `explain` found; prints as a text.

    Attributes
    ----------
    records : tuple of str
        The data that go by records.
    dp_advi : str
        Why the gradient methods fit or do not fit.
    vips : str
        The kind of model that has closed-form updates, or why there is none.
    roles : {variable: role}
        What each latent and each term of the likelihood is to these updates; empty where there
        are none.
    """

    records: tuple[str, ...]
    dp_advi: str
    vips: str
    roles: dict[str, str]

    def __str__(self) -> str:
        lines = [
            f"Records: one row of {', '.join(f'`{name}`' for name in self.records)}.",
            f"dp_advi, dp_fullrank_advi: {self.dp_advi}",
            f"vips: {self.vips}",
            *(f"    {name}: {role}" for name, role in self.roles.items()),
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
        Print it.

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
    >>> print(pymc_dp.explain(model))
    Records: one row of `y`.
    dp_advi, dp_fullrank_advi: fit, as any model does that has no latent of single records.
    vips: fits, as a model of conjugate blocks and mixtures.
        p: Beta block
        y: conjugate likelihood
    """
    records, columns = separate(constrained(pm.modelcontext(model)), public=public, data=data)
    vips, roles = _vips(records)
    return Explanation(tuple(columns), _advi(records), vips, roles)


def _advi(records: Records) -> str:
    if not records.local_latents:
        return "fit, as any model does that has no latent of single records."
    name = next(iter(records.local_latents))
    return f"do not fit: `{name}` has an entry for every record. Marginalise it."


def _vips(records: Records) -> tuple[str, dict[str, str]]:
    reasons = []
    for kind in KINDS:
        try:
            structure = kind.recognise(records)
        except NotConjugateError as reason:
            reasons.append(f"\n    not of {kind.title}: {reason};")
        else:
            return f"fits, as a model of {kind.title}.", kind.roles(records, structure)
    return f"does not fit:{''.join(reasons)}".rstrip(";") + ".", {}
