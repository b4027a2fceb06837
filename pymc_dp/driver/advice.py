"""What is refused and advised about a model's priors, densities and rows, before a fit spends."""

import itertools
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import Interpolated
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import BetaBinomialRV, BinomialRV, MultinomialRV, PoissonRV
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dp.accounting.plan import unit_label
from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.errors import NotSeparableError
from pymc_dp.model import Records
from pymc_dp.model.compilation import as_written, function
from pymc_dp.model.graphs import AnyVariable, Node, Tensor, all_variables, pt, tensor_constants
from pymc_dp.model.split import simplify
from pymc_dp.privacy.contribution import rows_along
from pymc_dp.privacy.private_data import ColumnSpec
from pymc_dp.privacy.probe import probe_records

MOST_ENTRIES = 10**7
TRIED = 8  # made-up records, each at a point of its own
TRIALS = (BinomialRV, BetaBinomialRV, MultinomialRV, DirichletMultinomialRV)


def refuse_unfit(model: pm.Model) -> None:
    """Refuse latents that would take gigabytes, and those whose density is in no graph."""
    for rv in model.free_RVs:
        if math.prod(length or 1 for length in rv.type.shape) > MOST_ENTRIES:
            raise ValueError(f"`{rv.name}` has more than {MOST_ENTRIES} entries: give it fewer.")
        if isinstance(rv.owner_op, Interpolated.rv_type):
            raise NotSeparableError(
                f"`{rv.name}` is a pm.Interpolated, whose points are outside of the graph: take "
                "a distribution of a few public parameters in its place, or a pm.Mixture of some."
            )


def refuse_bad_priors(model: pm.Model, records: Records) -> None:
    """Refuse priors without a density at the start."""
    point = [records.point[name].astype(x.type.dtype) for name, x in records.latents.items()]
    # the graph of the whole prior is there already, and few are not finite
    [density] = as_written([*records.latents.values()], [records.prior])(*point)
    if np.isfinite(density) and not records.observes_public:
        return
    latents = [rv for rv in model.free_RVs if model.rvs_to_values[rv].name in records.latents]
    values = [model.rvs_to_values[rv] for rv in latents]
    # PyMC raises where a parameter is none of its distribution's, and does not say of which
    terms: list[Any] = simplify(model.logp(vars=latents, sum=False))
    densities = as_written(values, [term.sum() for term in terms])
    point = [records.point[value.name].astype(value.dtype) for value in values]
    with np.errstate(all="ignore"):
        at_start = densities(*point)
    for rv, density in zip(latents, at_start, strict=True):
        if not np.isfinite(density):
            raise ValueError(
                f"The prior of `{rv.name}` has no finite density at its initial value: give it "
                "parameters such as a positive sd, and an initial value within its support."
            )


def refuse_bad_start(model: pm.Model, start: Mapping[str, Any]) -> None:
    """Refuse literal initial values that are not finite values of their latents."""
    latents = [rv.name for rv in model.free_RVs]
    if others := [name for name in start if name not in latents]:
        raise ValueError(f"public_start= names `{others[0]}`, but the latents are {latents}.")
    given = {str(rv.name): x for rv, x in model.rvs_to_initial_values.items() if x is not None}
    given |= start
    literal = {name: x for name, x in given.items() if not isinstance(x, str | Variable)}
    shapes = model.eval_rv_shapes() if literal else {}
    for name, value in literal.items():
        needed, array = tuple(map(int, shapes[name])), np.asarray(value)
        numbers = array.dtype.kind in "iuf" and not np.ma.isMaskedArray(value)
        if array.shape != needed or not numbers or not np.isfinite(array).all():
            raise ValueError(
                f"The initial value of `{name}` has the shape {array.shape}, or entries that are "
                f"no finite numbers in double precision; it needs {needed} of them."
            )


def refuse_scores_that_are_nan(model: pm.Model, records: Records) -> None:
    """Refuse densities whose gradient is no number where distributions put atoms or limits."""
    for rv in model.observed_RVs:
        name, leaf = str(rv.name), str(model.rvs_to_values[rv].name)
        is_number = records.shapes.get(leaf) == (None,) and rv.dtype.startswith("float")
        atoms = _atoms(rv) if is_number and name in records.term_names else []
        if without := _without_score(records, name, leaf, atoms) if atoms else "":
            raise NotSeparableError(
                f"The gradient of the density of `{name}` is no number at {without}, where its "
                "distributions put outcomes. Let the part without them see other values in their "
                "place, by a pm.CustomDist with a pt.switch in its logp: the documentation's page "
                'on troubleshooting writes one, under "A component without a gradient".'
            )


def _atoms(rv: AnyVariable) -> list[float]:
    """Return the numbers at which a distribution has a share of outcomes, or is cut off."""
    nodes = [v.owner for v in all_variables([rv]) if v.owner is not None]
    named = [x for n in nodes if isinstance(n.op, DiracDeltaRV) for x in n.op.dist_params(n)]
    named += [x for n in nodes if isinstance(n.op, CensoredRV) for x in n.inputs[1:3]]
    named += [x for n in nodes if isinstance(n.op, TruncatedRV) for x in n.inputs[-2:]]
    single = [v.data for v in tensor_constants(ancestors(named)) if np.size(v.data) == 1]
    return sorted({float(np.squeeze(x)) for x in single if np.isfinite(x).all()})


def _without_score(records: Records, name: str, leaf: str, atoms: list[float]) -> str:
    """List the atoms at which the density is a number, and its gradient is none."""
    graph, latents = records.single, list(records.latents.values())
    own: Any = graph.terms[records.term_names.index(name)]
    term: Tensor = own.sum()
    inputs = [*graph.inputs.values(), *latents]
    gradients: list[AnyVariable] = pt.grad(term, latents, disconnected_inputs="ignore")
    compute: Any = function(inputs, [term, *gradients], "python")
    spec = {k: ColumnSpec(records.shapes[k], x.type.dtype) for k, x in graph.inputs.items()}
    rng, without = np.random.default_rng(0), []
    made = probe_records(spec, rng)
    points = records.start + 0.3 * rng.standard_normal((TRIED, records.size))
    for atom in atoms:
        made[leaf], finite = np.full_like(made[leaf], atom), []
        for row, point in enumerate(points):
            record = rows_along(graph.axes, made, np.array([row]))
            values = zip([*record.values(), *records.split(point)], inputs, strict=True)
            density, *slopes = compute(*(value.astype(x.type.dtype) for value, x in values))
            if np.isfinite(density):
                finite.append(all(np.isfinite(x).all() for x in slopes))
        if finite and not any(finite):
            without.append(f"{atom:g}")
    return ", ".join(without)


def advice_on_units(records: Records, unit: str | None) -> tuple[str, ...]:
    """Say what the rows of a unit must not depend on, or which groups may be persons."""
    if unit is not None:  # clipping is centred at the rows that there are
        return (
            f"How many rows a {unit_label(unit)} has must not depend on its outcomes: where an "
            "event ends them (survival by months), write one row each, with the month as its "
            "outcome.",
        )
    lengths = {name: len(np.atleast_1d(start)) for name, start in records.point.items()}
    picked: dict[tuple[str, str], None] = {}
    for node in toposort(records.batch.terms):
        if isinstance(node.op, AdvancedSubtensor):
            groups, index = set(ancestors(node.inputs[:1])), set(ancestors(node.inputs[1:]))
            by = [column for column, variable in records.batch.inputs.items() if variable in index]
            large = [x for x, n in lengths.items() if n > MANY_LATENTS]
            of = [name for name in large if records.latents[name] in groups]
            picked |= dict.fromkeys(itertools.product(of, by))
    return tuple(
        f"`{name}` has {lengths[name]} entries, which `{column}` picks for a record. Where these "
        "belong to private persons, name that array in unit=: dp_advi then integrates them out. As "
        "groups they are released one by one, with noise on each."
        for name, column in picked
    )


def advice_on_counts(model: pm.Model, unit: str | None) -> tuple[str, ...]:
    """Say of which outcomes a row may count several persons, by their distributions alone."""
    whom = "person" if unit is None else unit_label(unit)
    counts = []
    for rv in model.observed_RVs:
        others = [other for other in model.basic_RVs if other is not rv]
        # with what draws the components of a mixture, or stands inside a bound
        nodes = [v.owner for v in ancestors([rv], blockers=others) if v.owner and v not in others]
        counts += [(rv.name, kind) for kind in sorted({_kind(node) for node in nodes} - {""})]
    return tuple(
        f"`{name}` counts {kind} in a row. A row must be of one {whom}: where it adds up several, "
        f"expand the counts to one row for each, or epsilon protects less than a {whom}."
        for name, kind in counts
    )


def _kind(node: Node) -> str:
    if not isinstance(node.op, TRIALS):
        return "events, or cells of a table," if isinstance(node.op, PoissonRV) else ""
    number = node.op.dist_params(node)[0]
    while isinstance(number.owner_op, DimShuffle):
        number = number.owner.inputs[0]
    # an array of numbers may be data, which are not read
    single = isinstance(number, Constant) and np.size(number.data) == 1 and number.data.item()
    return "" if single == 1 else "several trials"


def withheld_in_words(declarable: Mapping[str, Collection[str]]) -> str:
    """Say which deterministics the result will lack, of those that ``public=`` would let go."""
    if not declarable:
        return ""
    lacks = []
    for name, dims in declarable.items():
        labels = f"labels of {' and '.join(f'`{dim}`' for dim in sorted(dims))}"
        lacks.append(f"`{name}`: {labels if dims else 'a number in it'} may come from the data")
    return (
        f"The result will lack {'; '.join(lacks)}. If it does not, name the variable in "
        "public=[...]; or compute it from the draws."
    )
