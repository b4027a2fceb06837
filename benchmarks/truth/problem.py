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
    """One model of the benchmark, as its user would write it."""

    name: str
    group: str
    # every latent, and the reported deterministics: a draw of the prior, or always the same
    truth: Callable[[np.random.Generator], Truth]
    # by the names of pm.Data and of observed variables
    data: Callable[[Truth, np.random.Generator], Arrays]
    describe: Callable[[Arrays], None]  # adds the variables to the model of the context
    methods: tuple[str, ...] = ANY  # those that have updates for the model
    # variables that are compared with their truth; all of the truth if empty
    reported: tuple[str, ...] = ()
    # the unconstrained latent that the reference takes on a grid: it is skewed, with a pole at 0
    spread: str = ""
    backend: str = "jax"  # what compiles the reference; Python where JAX does not know an operation
    # the same posterior for the reference, in coordinates in which it is nearer to normal
    regular: Callable[[Arrays], None] | None = None
    unit: str = ""  # the array that says which person a record belongs to, if not one a record
    draws: int = 1000  # that sum up a private posterior
    # data are a table's own, and the posterior without privacy stands in for the truth
    real: bool = False

    def model(self, data: Arrays) -> pm.Model:
        """Build the model on data."""
        with pm.Model() as model:
            self.describe(data)
        return model

    def regular_model(self, data: Arrays) -> pm.Model:
        """Build the model of the reference."""
        with pm.Model() as model:
            (self.regular or self.describe)(data)
        return model


class DataSet(NamedTuple):
    """A truth and data from it."""

    # every latent, and the reported deterministics: a draw of the prior, or always the same
    truth: Truth
    data: Arrays  # by the names of pm.Data and of observed variables

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
