"""Advice on the data that a model is meant for: on one row, one group and what is withheld."""

from collections.abc import Collection, Mapping

import numpy as np
import pymc as pm
from pymc.distributions.multivariate import DirichletMultinomialRV
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import BetaBinomialRV, BinomialRV, MultinomialRV, PoissonRV
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.accounting.plan import unit_label
from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.model import Records
from pymc_dp.model.graph_types import AnyVariable, Node

# distributions with a number of trials
TRIALS = (BinomialRV, BetaBinomialRV, MultinomialRV, DirichletMultinomialRV)


def advice_on_rows(unit: str | None) -> tuple[str, ...]:
    """Say what the rows of a unit must not depend on: clipping is centred at the rows there are."""
    if unit is None:
        return ()
    whom = unit_label(unit)
    return (
        f"How many rows a {whom} has must not depend on its outcomes: where an event ends them "
        "(survival by months), write one row each, with the month as its outcome.",
    )


def advice_on_groups(records: Records, unit: str | None) -> tuple[str, ...]:
    """Say which latents have so many groups that these may be persons; the model's shapes tell."""
    if unit is not None:
        return ()
    columns = {variable: name for name, variable in records.batch.inputs.items()}
    found: dict[str, list[str]] = {}
    for node in toposort(records.batch.terms):
        if isinstance(node.op, AdvancedSubtensor):
            base, *rest = node.inputs
            read = [f"`{columns[v]}`" for v in ancestors(rest) if v in columns]
            groups = set(ancestors([base]))
            for name, latent in records.latents.items():
                if read and latent in groups and _length(records.point[name]) > MANY_LATENTS:
                    found[name] = list(dict.fromkeys([*found.get(name, []), *read]))
    return tuple(
        f"`{name}` has {_length(records.point[name])} entries, which {' and '.join(read)} picks "
        "for a record. Where these belong to private persons, name that array in unit=: dp_advi "
        "then integrates them out. As groups they are released one by one, with noise on each, and "
        "a fit takes the longer the more there are."
        for name, read in found.items()
    )


def _length(array: np.ndarray) -> int:
    return array.shape[0] if array.ndim else 0


def advice_on_counts(model: pm.Model, unit: str | None) -> tuple[str, ...]:
    """Say of which outcomes a row may count several persons, by their distributions alone.

    A number of trials is read where the author wrote it as one number; no data are.
    """
    whom = "person" if unit is None else unit_label(unit)
    found = []
    for rv in model.observed_RVs:
        latents = [other for other in model.basic_RVs if other is not rv]
        # with what draws the components of a mixture, or stands inside a bound
        nodes = [v.owner for v in ancestors([rv], blockers=latents) if v.owner and v not in latents]
        kinds = {_kind(node) for node in nodes} - {""}
        found += [
            f"`{rv.name}` counts {kind} in a row. A row must be of one {whom}: where it adds up "
            f"several, expand the counts to one row for each, or epsilon protects less than a "
            f"{whom}."
            for kind in sorted(kinds)
        ]
    return tuple(found)


def _kind(node: Node) -> str:
    if isinstance(node.op, TRIALS):
        return "" if _is_one(node.op.dist_params(node)[0]) else "several trials"
    return "events, or cells of a table," if isinstance(node.op, PoissonRV) else ""


def _is_one(number: AnyVariable) -> bool:
    # an array of numbers may be data, which are not read
    while isinstance(number.owner_op, DimShuffle):
        number = number.owner.inputs[0]
    return isinstance(number, Constant) and np.size(number.data) == 1 and number.data.item() == 1


def withheld_in_words(declarable: Mapping[str, Collection[str]]) -> str:
    """Say which deterministics the result will lack, of those that ``public=`` would let go.

    Those with dimensions are withheld for their labels, the others for a number.

    >>> withheld_in_words({"total": []})
    'The result will lack `total`: a number in it may come from the data. If it does not, name ...'
    """
    if not declarable:
        return ""
    reasons: dict[str, list[str]] = {}
    for name, dims in declarable.items():
        labels = f"the labels of its dimension {' and '.join(f'`{dim}`' for dim in sorted(dims))}"
        reasons.setdefault(labels if dims else "a number in it", []).append(f"`{name}`")
    lacks = [f"{', '.join(names)}: {why} may come from the data" for why, names in reasons.items()]
    return (
        f"The result will lack {'; '.join(lacks)}. If it does not, name the variable in "
        "public=[...]; or compute it from the draws."
    )
