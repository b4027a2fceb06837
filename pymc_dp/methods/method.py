"""What a method gives to the driver loop."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.accounting.plan import ReleaseSpec
from pymc_dp.methods.algorithm import Algorithm
from pymc_dp.methods.doubts import Doubt
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Contributions
from pymc_dp.privacy.query import Noisy, Query

Draws = dict[str, np.ndarray]
# draws as wide as records and privacy noise together make them, and the same without the noise's
# width: None where they are too few to say
Both = tuple[Draws, Draws | None]
Trace = dict[str, tuple[tuple[str, ...], Any]]  # {name: (dims, array)}


class Compiled(NamedTuple):
    """The parts of a method that need compiled functions."""

    contributions: Contributions
    update: Callable[[Any, Query, Noisy], Any]  # (state, query, noisy) -> state
    # the backend of all contributions, where it is not the one that was asked for
    runs_on: str | None = None
    # compiles the contributions once more; the driver sets it
    again: Callable[[], Contributions] | None = None
    # whether the guarantee is proved for the arithmetic of the machine; the driver sets it
    is_exact: bool = False


class OnRealLine(NamedTuple):
    """A method that takes latents on the whole real line, where others of its name do not."""

    build: Callable[[Records], "Method"]  # records of the model as it was written -> method


class OnOwnScale(NamedTuple):
    """A method that looks first at the model with every latent on its own scale."""

    # records of that model -> method, or one that takes those of the model as it was written
    build: Callable[[Records], "Method | OnRealLine"]


def beside(
    posterior: Callable[..., Draws], aware: Callable[..., Draws]
) -> Callable[[Any, int, np.random.Generator], Both]:
    """Draw with the noise and without it, from the same random numbers: they differ by it alone."""

    def both(state: Any, draws: int, rng: np.random.Generator) -> Both:
        same = copy.deepcopy(rng)
        return aware(state, draws, same), posterior(state, draws, rng)

    return both


class Method(NamedTuple):
    """A private method for one model: pure functions of released states."""

    size: int  # length of the vector that a release hands out
    releases: tuple[ReleaseSpec, ...]  # what the method will ask for
    compile: Callable[[str], Compiled]  # backend -> Compiled
    init: Callable[[np.random.Generator], Any]  # rng -> state
    query: Callable[..., Query]  # (state, rng) -> Query
    # (state, draws, rng) -> {latent's value variable: (draws, ...) array}: as wide as the records
    # alone make it
    posterior: Callable[[Any, int, np.random.Generator], Draws]
    # state -> Dataset: the ``fit`` group: the released parameters
    describe: Callable[[Any], xr.Dataset]
    # state -> {name: (dims, array)}: what of a state goes to ``fit_stats`` after a release
    trace: Callable[[Any], Trace]
    settings: dict[str, Any]  # the method's own settings, for the result
    # what it computes, in the order in which the algorithms run; none of a release by itself. What
    # only chooses where an algorithm begins is not listed.
    algorithms: tuple[Algorithm, ...]
    # None where the caller declined it; it returns None for states of which the noise is not known,
    # as after an early stop.
    noise_aware: Callable[[Any, int, np.random.Generator], Both | None] | None = None
    # rng -> states: one state for each kind of release, to try its graphs at; the initial one if
    # None
    rehearsal: Callable[[np.random.Generator], Sequence[Any]] | None = None
    # how many posterior draws there are where the releases themselves are the draws
    most_draws: int | None = None
    # state -> what is doubtful about its posterior, from released or public numbers
    doubts: Callable[[Any], tuple[Doubt, ...]] = lambda state: ()
    # the tuned constants that it read, for the result; public numbers
    defaults: tuple[Any, ...] = ()

    def draw(self, state: Any, draws: int, rng: np.random.Generator) -> Draws:
        """Draw the posterior with the privacy noise, where it is asked for and known."""
        aware = self.noise_aware and self.noise_aware(state, draws, rng)
        return aware[0] if aware else self.posterior(state, draws, rng)

    def constants(self) -> dict[str, dict[str, Any]]:
        """Return the tuned constants by the part of `pymc_dp` that they belong to."""

        def part(found: Any) -> str:
            name = type(found).__module__.removeprefix("pymc_dp.").removeprefix("methods.")
            return name.removesuffix(".defaults")

        return {part(found): found._asdict() for found in self.defaults}

    def trials(self, rng: np.random.Generator) -> Sequence[Any]:
        """States at which each kind of release can be tried before the first is made."""
        return self.rehearsal(rng) if self.rehearsal else (self.init(rng),)
