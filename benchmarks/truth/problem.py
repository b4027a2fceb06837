"""A problem of the benchmark: where the truth comes from, what data it makes, and a PyMC model."""

import hashlib
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm

Truth = dict[str, np.ndarray]
Arrays = dict[str, np.ndarray]

ANY = ("dp_advi",)
CONJUGATE = ("dp_advi", "vips")
ALL = ("dp_advi", "vips", "dp_sep")


class Problem(NamedTuple):
    """One model of the benchmark, as its user would write it.

    Attributes
    ----------
    name, group : str
    truth : rng -> {variable: value}
        Every latent, and the reported deterministics: a draw from the prior, or always the same.
    data : (truth, rng) -> {name of a pm.Data or observed variable: values}
    model : data -> pm.Model
    methods : those that have updates for the model
    reported : variables that are compared with their truth; all of the truth if empty
    spread : name of the unconstrained latent that the reference takes on a grid
        It is skewed, and at 0 the density of equal groups is infinite.
    backend : what compiles the reference; JAX, or Python where JAX does not know an operation
    regular : data -> pm.Model
        The same posterior for the reference, in coordinates in which it is nearer to normal.
    unit : name of the array that says which person a record belongs to, if not one a record
    draws : how many draws sum up a private posterior
    real : whether data are a table's own, and the posterior without privacy of the same rows stands
        in for the truth
    """

    name: str
    group: str
    truth: Callable[[np.random.Generator], Truth]
    data: Callable[[Truth, np.random.Generator], Arrays]
    model: Callable[[Arrays], pm.Model]
    methods: tuple[str, ...] = ANY
    reported: tuple[str, ...] = ()
    spread: str = ""
    backend: str = "jax"
    regular: Callable[[Arrays], pm.Model] | None = None
    unit: str = ""
    draws: int = 1000
    real: bool = False


class DataSet(NamedTuple):
    """A truth and data from it."""

    truth: Truth
    data: Arrays

    @property
    def digest(self) -> str:
        """Short name of the values, by which stored fits of other data are told apart."""
        found = hashlib.sha256()
        for name, value in (self.truth | self.data).items():
            found.update(name.encode() + np.ascontiguousarray(value).tobytes())
        return found.hexdigest()[:16]


def data_set(problem: Problem, number: int) -> DataSet:
    """Generate a data set; its number fixes it."""
    rng = np.random.default_rng((number, zlib.crc32(problem.name.encode())))
    truth = {name: np.asarray(value, float) for name, value in problem.truth(rng).items()}
    return DataSet(truth, problem.data(truth, rng))


def reported(problem: Problem, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Pick the variables that are compared with their truth."""
    return {name: values[name] for name in problem.reported or values}


def labels(truth: Truth) -> list[str]:
    """Name every coefficient: ``b[0]``, ``s``."""
    return [
        name + (str(list(index)) if index else "")
        for name, value in truth.items()
        for index in np.ndindex(value.shape)
    ]


def flat(values: dict[str, np.ndarray], names: Truth, draws: int = 1) -> np.ndarray:
    """Put draws of every coefficient of ``names`` side by side, shape (draws, coefficients)."""
    return np.column_stack([np.reshape(values[name], (draws, -1)) for name in names])
