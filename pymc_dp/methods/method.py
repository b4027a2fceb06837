"""What a method gives to the driver loop, and what it says about itself.

A `Method` is a value: what it asks to release, compiled contributions, pure functions of released
states. Its algorithms depend on the model and on the options too; none names a paper for what is
not the paper's. `chain` makes one method of stages of a fit.
"""

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dp.accounting.plan import ReleaseSpec
from pymc_dp.contributions.polya_gamma_and_sites import POLYA_GAMMA, SITES, Estimating
from pymc_dp.contributions.scores import has_one_predictor, is_yes_no
from pymc_dp.model import Records
from pymc_dp.privacy.contribution import Contributions, Noisy, Query

# --- algorithms, with their sources ------------------------------------------------------------

NEWTON = (
    "Newton steps on clipped, noisy scores, averaged over the posterior for one or two predictors "
    "(pymc_dp, after Khan and Rue 2023; centred as in Künsch et al. 1989)"
)
POLYA_GAMMA_NEWTON = (
    "Newton steps on clipped, noisy expected scores with Pólya-Gamma variables "
    "(pymc_dp, after Park et al. 2020; centred as in Künsch et al. 1989)"
)
SITES_NEWTON = (
    "Newton steps on clipped, noisy sites of stochastic expectation propagation (pymc_dp, after "
    "Vinaroz and Park 2022 and Li et al. 2015; centred as in Künsch et al. 1989)"
)
ADVI = (
    "stochastic gradient ascent on the evidence lower bound with aligned gradients "
    "(Jälkö et al. 2017, 2022)"
)
VARIATIONAL_BAYES = (
    "stochastic variational Bayes on noisy expected sufficient statistics (Park et al. 2020)"
)
BELIEF_NETS = (
    "damped steps of variational Bayes on noisy expected sufficient statistics "
    "(pymc_dp, after Park et al. 2020)"
)
TOPICS = (
    "stochastic variational Bayes on noisy expected word counts, with shrinkage "
    "(pymc_dp, after Park et al. 2020)"
)
EXPECTATION_PROPAGATION = (
    "stochastic expectation propagation on noisy averages of sites "
    "(pymc_dp, after Vinaroz and Park 2022)"
)
BACKPROPAGATION = (
    "stochastic expectation propagation through a network "
    "(pymc_dp, after Vinaroz and Park 2022 and Hernández-Lobato and Adams 2015)"
)
NOT_PRIVATE_EP = "stochastic expectation propagation (Li et al. 2015)"
SGLD = "stochastic gradient Langevin dynamics (Wang et al. 2015)"
POSTERIOR_SAMPLING = (
    "posterior sampling with bounded log likelihoods, by a Markov chain (Wang et al. 2015)"
)


# --- doubts about a posterior ------------------------------------------------------------------


class Kind(StrEnum):
    """What is doubtful."""

    UNCENTRED = "uncentred"  # clipping may bias the posterior
    MISFIT = "misfit"  # outcomes are not distributed as the model says
    HIDDEN = "hidden"  # noise hides the curvature
    MERGED = "merged"  # components of a mixture may have become one, or have no records
    UNFINISHED = "unfinished"  # the mode may not have been reached
    MIXING = "mixing"  # Markov chains did not move
    TOO_NARROW = "too narrow"  # updates leave variance out
    INCOMPLETE = "incomplete"  # the result lacks variables


class Doubt(NamedTuple):
    """What is doubtful about a posterior; programs read kind and names, people the text."""

    kind: Kind
    names: tuple[str, ...]  # of the variables, or elements of them, that it is about
    text: str  # a sentence or more: what is doubtful, and what to do


# what to do about it, for methods that clip to a norm of the caller's
BY_ROUNDS = (
    "A larger clip_norm= clips less. method='dp_advi' centres contributions, where outcomes have "
    "distributions, in place of potentials, and a CustomDist a random= that public= names."
)

MOST_NAMED = 6  # more elements of one array than these are not named one by one

# --- a method, and stages of one ---------------------------------------------------------------

Draws = dict[str, np.ndarray]

# with the width of the privacy noise, and without: None where draws are too few to say
Both = tuple[Draws, Draws | None]


def draw_nothing(state: Any, draws: int, rng: np.random.Generator) -> None:
    """Draw nothing: of a method that does not know its noise, or leaves it out."""


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


class Method(NamedTuple):
    """A private method for one model: pure functions of released states."""

    size: int  # length of the vector that a release hands out
    releases: tuple[ReleaseSpec, ...]  # what the method will ask for
    compile: Callable[[str], Compiled]  # backend -> Compiled
    init: Callable[[np.random.Generator], Any]  # rng -> state
    query: Callable[..., Query]  # (state, rng) -> Query
    # (state, draws, rng) -> {value variable: (draws, ...)}: as wide as the records alone make it
    posterior: Callable[[Any, int, np.random.Generator], Draws]
    # state -> Dataset: the ``fit`` group: the released parameters
    describe: Callable[[Any], xr.Dataset]
    # state -> {name: (dims, array)}: what of a state goes to ``fit_stats`` after a release
    trace: Callable[[Any], dict[str, tuple[tuple[str, ...], Any]]]
    settings: dict[str, Any]  # the method's own settings, for the result
    # what it computes, in the order in which they run; not what only chooses where they begin
    algorithms: tuple[str, ...]
    # the same with the privacy noise: None where the caller declined it, or it is not known, as
    # after an early stop
    noise_aware: Callable[[Any, int, np.random.Generator], Both | None] = draw_nothing
    # rng -> states: one for each kind of release, to try its graphs at; the initial one if None
    rehearsal: Callable[[np.random.Generator], Sequence[Any]] | None = None
    # how many posterior draws there are where the releases themselves are the draws
    most_draws: int | None = None
    # state -> what is doubtful about its posterior, from released or public numbers
    doubts: Callable[[Any], tuple[Doubt, ...]] = lambda state: ()
    # the tuned constants that it read, for the result; public numbers
    defaults: tuple[Any, ...] = ()

    def draw(self, state: Any, draws: int, rng: np.random.Generator) -> Draws:
        """Draw the posterior with the privacy noise, where it is asked for and known."""
        aware = self.noise_aware(state, draws, rng)
        return aware[0] if aware else self.posterior(state, draws, rng)

    def constants(self) -> dict[str, dict[str, Any]]:
        """Return the tuned constants by the part of `pymc_dp` that they belong to."""
        parts = (type(table).__module__.removeprefix("pymc_dp.") for table in self.defaults)
        each = zip(parts, self.defaults, strict=True)
        return {part.removeprefix("methods."): table._asdict() for part, table in each}

    def trials(self, rng: np.random.Generator) -> Sequence[Any]:
        """States at which each kind of release can be tried before the first is made."""
        return self.rehearsal(rng) if self.rehearsal else (self.init(rng),)


class OnScale(NamedTuple):
    """A method that is built from the model with its latents on another scale."""

    constrained: bool  # whether every latent has its own scale, in place of the whole real line
    build: Callable[[Records], "Method | OnScale"]


class Stage(NamedTuple):
    """A part of a chain: a method that starts where the one before it ends."""

    method: Method  # shares of its releases are of the budget of the whole chain
    # last state of the method before -> first state; the first method has its own initial state
    hand_over: Callable[[Any], Any] = lambda state: state


Values = Mapping[str, np.ndarray]  # {name of a latent: its value, on its own scale}


class PrivateStart(NamedTuple):
    """Releases that find where rounds begin, in place of the model's initial point."""

    share: float  # of the budget
    fields: Mapping[str, Any]  # of its method: how it makes them
    values: Callable[[Any], Values]  # state -> estimates of latents; others begin as they are

    def stages(self, method: Method, begin: Callable[[Values], Any]) -> tuple[Stage, Stage]:
        """Return what releases the start, with states reported as the method's, and the method."""

        def hand_over(state: Any) -> Any:
            return begin(self.values(state))

        own = reported_as(method._replace(**self.fields), method, hand_over)
        return Stage(own._replace(noise_aware=draw_nothing)), Stage(method, hand_over)


# compiles what it needs: None where rounds begin at the initial point
FindStart = Callable[[], PrivateStart | None]


class Staged(NamedTuple):
    """A state of a chain."""

    stage: int  # which stage it belongs to, from 0 on
    left: int  # how many releases the stage has before it hands over
    state: Any  # that of the stage


# --- what the values say in words --------------------------------------------------------------


def of_rounds(records: Records, asked: Estimating | None) -> str:
    """Return the algorithm of rounds that make this of the scores of a model."""
    if asked == POLYA_GAMMA and is_yes_no(records):
        return POLYA_GAMMA_NEWTON
    return SITES_NEWTON if asked == SITES and has_one_predictor(records) else NEWTON


def uncentred(names: Iterable[str], advice: str) -> Doubt:
    """Say that clipping may bias a posterior, and what to do about it."""
    names = tuple(names)
    text = (
        f"Contributions of {quoted(names)} are clipped without being centred: no draws of outcomes "
        "say what their clipped mean should be, so where they are skewed the posterior is biased. "
        f"{advice}"
    )
    return Doubt(Kind.UNCENTRED, names, text)


def too_narrow(names: Iterable[str], why: str) -> Doubt:
    """Say that intervals are too narrow, and why."""
    names = tuple(names)
    return Doubt(Kind.TOO_NARROW, names, f"Intervals of {quoted(names)} are too narrow{why}.")


def quoted(names: Iterable[str]) -> str:
    """Join names for a sentence; of many elements of one array, say how many there are.

    >>> quoted(["a", "b[1]"])
    '`a`, `b[1]`'
    >>> quoted(["a", *[f"b[{k}]" for k in range(12)]])
    '`a`, 12 elements of `b`'
    >>> quoted(["sd_log__", "groups of z[0]"])  # as the author calls them
    '`sd`, `z[0]`'
    """
    arrays: dict[str, list[str]] = {}
    for name in map(without_transform, names):
        arrays.setdefault(name.partition("[")[0], []).append(f"`{name}`")
    return ", ".join(
        ", ".join(own) if len(own) <= MOST_NAMED else f"{len(own)} elements of `{array}`"
        for array, own in arrays.items()
    )


def without_transform(name: str) -> str:
    """Return a coordinate's name without what transforms and the search add to it."""
    return re.sub(r"_[a-z0-9]+__(?=\[|$)", "", name.removeprefix("groups of "))


def doubts_in(attribute: str) -> tuple[Doubt, ...]:
    """Read the attribute ``doubts`` of a result."""
    return tuple(
        Doubt(Kind(each["kind"]), tuple(each["names"]), each["text"])
        for each in json.loads(attribute)
    )


# --- draws with and without the noise; stages as one method ------------------------------------


def beside(
    posterior: Callable[..., Draws], aware: Callable[..., Draws]
) -> Callable[[Any, int, np.random.Generator], Both]:
    """Draw with the noise and without it, from the same random numbers: they differ by it alone."""

    def both(state: Any, draws: int, rng: np.random.Generator) -> Both:
        same = copy.deepcopy(rng)
        return aware(state, draws, same), posterior(state, draws, rng)

    return both


# what a method says of a state
REPORTS = ("posterior", "noise_aware", "describe", "trace", "doubts")


def reported_as(own: Method, method: Method, found: Callable[[Any], Any]) -> Method:
    """Let a method report its states as another does: by what ``found`` makes of them."""

    def of_found(name: str) -> Callable[..., Any]:
        return lambda state, *args: getattr(method, name)(found(state), *args)

    reports: dict[str, Any] = {name: of_found(name) for name in REPORTS}
    return own._replace(settings=method.settings, algorithms=method.algorithms, **reports)


def chain(*stages: Stage) -> Method:
    """Let stages follow each other.

    **Privacy.** The releases of all stages stand in one plan, in which each stage has its share of
    the whole budget. Handing over is post-processing.
    """
    parts = [stage.method for stage in stages]
    counts = [sum(release.count for release in part.releases) for part in parts]

    def start(stage: int, state: Any) -> Staged:
        return Staged(stage, counts[stage], state)

    def by_stage(name: str) -> Callable[..., Any]:
        return lambda at, *args, **kw: getattr(parts[at.stage], name)(at.state, *args, **kw)

    def compile_parts(backend: str) -> Compiled:
        compiled = [part.compile(backend) for part in parts]

        def update(staged: Staged, query: Query, noisy: Noisy) -> Staged:
            stage, left, state = staged
            state, left = compiled[stage].update(state, query, noisy), left - 1
            if left or stage + 1 == len(stages):
                return Staged(stage, left, state)
            return start(stage + 1, stages[stage + 1].hand_over(state))

        contributions = {k: c for part in compiled for k, c in part.contributions.items()}
        runs_on = {part.runs_on for part in compiled}
        return Compiled(contributions, update, runs_on.pop() if len(runs_on) == 1 else None)

    def rehearsal(rng: np.random.Generator) -> list[Staged]:
        tried = [start(0, state) for state in parts[0].trials(rng)]
        state = parts[0].init(rng)
        for i, stage in enumerate(stages[1:], 1):  # each begins where the first one does
            state = stage.hand_over(state)
            tried.append(start(i, state))
        return tried

    of_stages: dict[str, Any] = {name: by_stage(name) for name in ("query", *REPORTS)}
    return parts[0]._replace(
        size=max(part.size for part in parts),
        releases=with_shares(
            parts[0].releases, *(spec for part in parts[1:] for spec in part.releases)
        ),
        compile=compile_parts,
        init=lambda rng: start(0, parts[0].init(rng)),
        rehearsal=rehearsal,
        algorithms=tuple(dict.fromkeys(each for part in parts for each in part.algorithms)),
        defaults=tuple(dict.fromkeys(each for part in parts for each in part.defaults)),
        **of_stages,
    )


def with_shares(before: Iterable[ReleaseSpec], *added: ReleaseSpec) -> tuple[ReleaseSpec, ...]:
    """Append releases that take their shares of a budget from those before."""
    left = 1 - sum(spec.share or 0.0 for spec in added)
    kept = (
        spec if spec.share is None else replace(spec, share=spec.share * left) for spec in before
    )
    return (*kept, *added)
