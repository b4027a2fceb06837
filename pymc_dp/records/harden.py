"""Turn every array that a model holds into a named leaf, before anything is derived from it.

PyTensor folds expressions of constants: ``x - x.mean()`` over a NumPy array would arrive as one
harmless-looking array, and a model that couples its records would pass for one that does not.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.model.fgraph import ModelObservedRV, fgraph_from_model, model_from_fgraph
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph


class DataLeaf(NamedTuple):
    """An array of the model: its name, the variable that stands for it, and its value.

    ``declared`` says whether the author named it (``pm.Data`` or ``observed=``).
    """

    name: str
    variable: SharedVariable
    value: np.ndarray
    declared: bool


class HardenedModel(NamedTuple):
    """A copy of a model in which every non-scalar array is a `DataLeaf`.

    ``initvals`` keeps the initial values that the author gave, by the name of the variable.
    """

    model: pm.Model
    leaves: tuple[DataLeaf, ...]
    initvals: dict[str, object]


def is_structural(value: np.ndarray) -> bool:
    """Say whether an array tells at most two numbers: a fill, an even sequence, an identity.

    Libraries make such arrays by themselves: ``np.ones(3)``, the frequencies of a basis, a jitter
    on a diagonal, the row numbers of a packed Cholesky factor.

    >>> import numpy as np
    >>> is_structural(np.ones(3)), is_structural(np.arange(4.0)), is_structural(np.r_[1.0, 5, 2])
    (True, True, False)
    """
    value = np.asarray(value)
    flat = value.ravel()
    if flat.size < 2:
        return True
    if value.ndim == 2 and np.array_equal(value, flat[0] * np.eye(*value.shape)):
        return True
    if flat.dtype.kind not in "iuf":
        return bool((flat == flat[0]).all())
    steps = np.diff(flat.astype(float))
    return bool(np.allclose(steps, steps[0], rtol=1e-12, atol=0)) or _is_triangle(flat)


def _is_triangle(flat: np.ndarray) -> bool:
    side = int((2 * flat.size) ** 0.5)
    return any(np.array_equal(flat, numbers) for numbers in np.tril_indices(side))


def harden(model: pm.Model) -> HardenedModel:
    """Copy ``model`` with every non-scalar constant lifted to a shared variable.

    The author's model is left as it was.
    """
    given = {rv.name: value for rv, value in model.rvs_to_initial_values.items()}
    with _no_initvals(model):
        fgraph, _ = fgraph_from_model(model)
    names = (name for i in count() if (name := f"array_{i}") not in model.named_vars)
    lifted = [_lift(fgraph, constant, next(names)) for constant in _array_constants(fgraph)]
    hardened = model_from_fgraph(fgraph, mutate_fgraph=True)
    data = [
        DataLeaf(variable.name, variable, variable.get_value(borrow=True), True)
        for variable in hardened.data_vars
        if isinstance(variable, SharedVariable)
    ]
    initvals = {name: value for name, value in given.items() if value is not None}
    return HardenedModel(hardened, (*data, *lifted), initvals)


def constrained(model: pm.Model) -> pm.Model:
    """Copy ``model`` with every latent on its own scale, not on the whole real line."""
    with _no_initvals(model):
        copy = remove_value_transforms(model)
    given = {rv.name: value for rv, value in model.rvs_to_initial_values.items()}
    copy.rvs_to_initial_values.update({rv: given[rv.name] for rv in copy.free_RVs})
    return copy


@contextmanager
def _no_initvals(model: pm.Model) -> Iterator[None]:
    """PyMC copies a model to a graph only where no initial values are set: lift them for the time.

    Its warning about variables of Gaussian processes is for people who keep using the old objects.
    """
    kept = dict(model.rvs_to_initial_values)
    try:
        model.rvs_to_initial_values.update(dict.fromkeys(kept))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Detected variables likely created by GP")
            yield
    finally:
        model.rvs_to_initial_values.update(kept)


def _array_constants(fgraph: FunctionGraph) -> list[Constant]:
    inputs = [variable for node in fgraph.toposort() for variable in node.inputs]
    return [
        variable
        for variable in dict.fromkeys(inputs)  # in an order that is the same every time
        if isinstance(variable, Constant)
        and isinstance(variable.type, pt.TensorType)
        and np.size(variable.data) > 1
        and not all(_is_size(node, variable) for node, _ in fgraph.clients[variable])
    ]


def _is_size(node: Apply, variable: Variable) -> bool:
    """Whether the variable is the shape of a random variable, which PyTensor must know."""
    sizes = getattr(node.op, "size_param", None)
    return sizes is not None and sizes(node) is variable


def _lift(fgraph: FunctionGraph, constant: Constant, name: str) -> DataLeaf:
    observed = [
        node.op.name
        for node, _ in fgraph.clients[constant]
        if node != "output" and isinstance(node.op, ModelObservedRV)
    ]
    name = observed[0] if observed else name
    # lengths must not be static, or PyTensor would fold them; only length 1 matters to broadcasting
    shape = tuple(1 if length == 1 else None for length in constant.data.shape)
    leaf = pytensor.shared(constant.data, name=name, shape=shape, borrow=True)
    fgraph.replace(constant, leaf, import_missing=True)
    return DataLeaf(name, leaf, constant.data, bool(observed))
