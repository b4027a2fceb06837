"""Gradient steps of DP-ADVI (Jälkö et al. 2017, equations 1 and 2), aligned (Jälkö et al. 2022).

A record's contribution is d log p(record | z) / dz, d numbers; all else is post-processing.

`by_steps` plans the releases. Each step draws z from a Gaussian family in PyMC's parameterisation,
releases the sum of the records' clipped gradients there, and moves the parameters uphill: by an
Adam whose rates fall (Kingma and Ba 2015), or by any optimizer of PyMC. The posterior is the family
at a weighted average of the parameters.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import shared
from scipy.special import expit

from pymc_dp.accounting.plan import ReleaseSpec, checked_number
from pymc_dp.contributions.gradients import gradient, plain_gradient
from pymc_dp.contributions.local_latents import integrated
from pymc_dp.methods.advi import AdviOptions
from pymc_dp.methods.method import ADVI, Compiled, Draws, Method, uncentred
from pymc_dp.methods.normal import describe_gaussian
from pymc_dp.methods.options import DEFAULTS as OF_GRADIENTS
from pymc_dp.methods.options import Options, Schedule
from pymc_dp.methods.prior import prior_gradient
from pymc_dp.model import Records
from pymc_dp.model.compilation import function
from pymc_dp.privacy.contribution import Noisy, Query


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    releases: int = 200
    learning_rate: float = 0.08
    last_rate: float = 0.1  # learning rates fall linearly to this share of their first values
    # share of the rate that entries of a full-rank factor take: they share the noise of d numbers
    factor_rate: float = 0.1
    start_sd: float = 0.1
    # weights of the average grow like t^4: half of it comes from the last eighth of the steps
    average_power: int = 4


PLAIN_ADVI = "stochastic gradient ascent on the evidence lower bound (Jälkö et al. 2017)"

DEFAULTS = Defaults()

BY_STEPS = (
    "Rounds, which noise_aware=False leaves out, centre them where outcomes have distributions, in "
    "place of potentials, and a CustomDist a random= that public= names; or a larger clip_norm= "
    "clips less."
)

Params = dict[str, np.ndarray]


class Family(NamedTuple):
    """A family of distributions of z as functions of its parameters."""

    init: Callable[[np.ndarray, float], Params]  # (mean (d,), sd) -> params
    sample: Callable[[Params, np.ndarray], np.ndarray]  # (params, eps (k, d)) -> z (k, d)
    # (params, eps (k, d), g (k, d)) -> params: the gradient of E[log p(z)] + entropy, where g are
    # the gradients of log p at the draws
    gradient: Callable[[Params, np.ndarray, np.ndarray], Params]
    covariance: Callable[[Params], np.ndarray]  # params -> (d, d), or its diagonal (d,)
    pace: dict[str, float]  # the share of the learning rate that each parameter takes


class Optimizer(NamedTuple):
    """``init(params) -> state``; ``step(state, params, gradient, t) -> state, params``, uphill."""

    init: Callable[[Params], Any]
    step: Callable[[Any, Params, Params, int], tuple[Any, Params]]


class State(NamedTuple):
    """State of a fit: released values and public draws alone."""

    t: int
    params: Params
    average: Params
    optimizer: Any
    noise_to_signal: float


def default_clip_norm(size: int, draws: int = 1) -> float:
    """Return about the norm of ``draws`` scores whose features have unit scale."""
    least, most = OF_GRADIENTS.clip_norm_range
    return min(max(least, OF_GRADIENTS.clip_norm * float(size**0.5)), most) * float(draws**0.5)


def default_sample_rate(options: Options) -> float:
    """Return the share of records in a batch of gradients."""
    limits = (OF_GRADIENTS.least_sample_rate, OF_GRADIENTS.sample_rate)
    return options.batch_share(OF_GRADIENTS.batch, limits, OF_GRADIENTS.sample_rate)


def schedule(options: AdviOptions, size: int, count: int) -> list[tuple[float, float]]:
    """Return the sample rate and the clip norm of every step, for ``size`` latents."""
    clip, rate = options.clip_norm, options.sample_rate
    if clip is None:
        clip = options.default_clip_norm(default_clip_norm(size, options.obj_n_mc))
    if rate is None:
        rate = default_sample_rate(options)
    return [(_at("sample_rate", rate, t), _at("clip_norm", clip, t)) for t in range(count)]


def _at(name: str, schedule: Schedule, t: int) -> float:
    value = checked_number(name, schedule(t) if callable(schedule) else schedule)
    return math.nan if value is None else value


def by_steps(family: Family, records: Records, options: AdviOptions) -> Method:
    """Release gradients, as the papers do; the releases of rounds are left for later.

    **Privacy.** Steps release the sum of the records' gradients, each clipped to ``clip_norm`` in
    L2 norm, which is the sensitivity (twice that under replace-one neighbours). Prior, entropy,
    steps, averages and draws are post-processing.
    """
    if not options.aligned and family is FULL_RANK:
        raise ValueError("aligned=False is the paper's mean-field form: use method='dp_advi'.")
    draws, aligned, rounds = options.obj_n_mc, options.aligned, options.releases_of_rounds
    count = (DEFAULTS.releases if options.n is None else options.n) - rounds
    steps = schedule(options, records.size, count)
    releases = tuple(  # equal neighbours are one kind, with their count
        ReleaseSpec("score", options.sampling(rate), clip, len(list(equal)))
        for (rate, clip), equal in groupby(steps)
    )
    rates = {name: pace * DEFAULTS.learning_rate for name, pace in family.pace.items()}
    optimizer = (
        from_pymc(options.obj_optimizer)
        if options.obj_optimizer
        else decaying_adam(rates, len(steps))
    )
    params = family.init(records.start, DEFAULTS.start_sd)
    contribute = gradient if aligned else plain_gradient
    clip_norms = tuple(clip for _, clip in steps)
    clipped = not all(map(math.isinf, clip_norms))

    def compile_parts(backend: str) -> Compiled:
        score = contribute(records, backend, draws)
        update = partial(_update, family, optimizer, prior_gradient(records, backend), options)
        return Compiled({"score": score}, update)

    return Method(
        size=records.size * draws * (1 if aligned else 2),
        releases=releases,
        compile=compile_parts,
        init=lambda rng: State(0, params, params, optimizer.init(params), np.nan),
        query=partial(_query, family, options, clip_norms),
        posterior=partial(_posterior, records, family),
        describe=lambda state: describe_gaussian(
            state.average["mu"], family.covariance(state.average), records.labels
        ),
        trace=lambda state: {
            "mean_path": (("rows",), state.params["mu"]),
            "noise_to_signal": ((), state.noise_to_signal),
        },
        settings={"aligned": str(aligned), "obj_n_mc": draws} | integrated(records),
        algorithms=(ADVI if aligned else PLAIN_ADVI,),
        doubts=lambda state: (uncentred(records.term_names, BY_STEPS),) if clipped else (),
        defaults=(DEFAULTS, OF_GRADIENTS),
    )


# --- Gaussian families -------------------------------------------------------------------------


def softplus(rho: np.ndarray) -> np.ndarray:
    """PyMC's map from rho to a standard deviation."""
    return np.asarray(np.logaddexp(0.0, rho))


def inverse_softplus(sd: float) -> float:
    """Return the rho of a standard deviation."""
    return float(np.log(np.expm1(sd)))


def _mean_field_gradient(params: Params, eps: np.ndarray, g: np.ndarray) -> Params:
    slope = expit(params["rho"])
    entropy = slope / softplus(params["rho"])
    return {"mu": g.sum(axis=0) / len(g), "rho": (g * eps).sum(axis=0) / len(g) * slope + entropy}


MEAN_FIELD = Family(
    init=lambda mean, sd: {"mu": mean.copy(), "rho": np.full(mean.size, inverse_softplus(sd))},
    sample=lambda params, eps: params["mu"] + softplus(params["rho"]) * eps,
    gradient=_mean_field_gradient,
    covariance=lambda params: softplus(params["rho"]) ** 2,
    pace={"mu": 1.0, "rho": 1.0},
)


def cholesky(params: Params) -> np.ndarray:
    """Unpack PyMC's ``L_tril``: the diagonal goes through a softplus."""
    d = params["mu"].size
    factor = np.zeros((d, d))
    factor[np.tril_indices(d)] = params["L_tril"]
    factor[np.diag_indices(d)] = softplus(np.diag(factor))
    return factor


def _full_rank_init(mean: np.ndarray, sd: float) -> Params:
    start = np.eye(mean.size) * inverse_softplus(sd)
    return {"mu": mean.copy(), "L_tril": start[np.tril_indices(mean.size)]}


def _full_rank_gradient(params: Params, eps: np.ndarray, g: np.ndarray) -> Params:
    rows, columns = np.tril_indices(params["mu"].size)
    grad = (g.T @ eps / len(g))[rows, columns]
    diagonal = rows == columns
    rho = params["L_tril"][diagonal]
    grad[diagonal] = (grad[diagonal] + 1 / softplus(rho)) * expit(rho)
    return {"mu": g.sum(axis=0) / len(g), "L_tril": grad}


FULL_RANK = Family(
    init=_full_rank_init,
    sample=lambda params, eps: params["mu"] + eps @ cholesky(params).T,
    gradient=_full_rank_gradient,
    covariance=lambda params: cholesky(params) @ cholesky(params).T,
    pace={"mu": 1.0, "L_tril": DEFAULTS.factor_rate},
)


# --- optimizers --------------------------------------------------------------------------------


def decaying_adam(rates: Mapping[str, float], n: int) -> Optimizer:
    """Adam (Kingma and Ba 2015) whose rates, one a parameter, fall linearly over ``n`` steps."""
    last, beta1, beta2, tiny = DEFAULTS.last_rate, 0.9, 0.999, 1e-8

    def init(params: Params) -> tuple[Params, Params]:
        zeros = {name: np.zeros_like(value) for name, value in params.items()}
        return zeros, dict(zeros)

    def step(
        state: tuple[Params, Params], params: Params, gradient: Params, t: int
    ) -> tuple[tuple[Params, Params], Params]:
        m = {k: beta1 * state[0][k] + (1 - beta1) * g for k, g in gradient.items()}
        v = {k: beta2 * state[1][k] + (1 - beta2) * g**2 for k, g in gradient.items()}
        scale = 1 - (1 - last) * t / n
        scale *= math.sqrt(1 - beta2 ** (t + 1)) / (1 - beta1 ** (t + 1))
        return (m, v), {
            k: x + rates[k] * scale * m[k] / (np.sqrt(v[k]) + tiny) for k, x in params.items()
        }

    return Optimizer(init, step)


new_variable: Callable[..., Any] = shared


def from_pymc(obj_optimizer: Callable[..., Any]) -> Optimizer:
    """Wrap an optimizer of PyMC, which keeps its state in shared variables and reads no data."""
    if not callable(obj_optimizer):
        raise TypeError(
            f"obj_optimizer={obj_optimizer!r} must be an optimizer of PyMC, such as "
            "pm.adam(learning_rate=0.05)."
        )

    def init(params: Params) -> tuple[dict[str, Any], Callable[..., Any]]:
        variables = {name: new_variable(value.copy(), name) for name, value in params.items()}
        gradients = {name: pt.vector(name, dtype="float64") for name in params}
        downhill = [-g for g in gradients.values()]
        updates = obj_optimizer(downhill, list(variables.values()))
        return variables, function(list(gradients.values()), [], "python", updates)

    def step(state: Any, params: Params, gradient: Params, t: int) -> tuple[Any, Params]:
        variables, advance = state
        for name, variable in variables.items():
            variable.set_value(params[name])
        advance(*[np.asarray(gradient[name]) for name in variables])
        return state, {name: variable.get_value() for name, variable in variables.items()}

    return Optimizer(init, step)


# of `dp_advi`, and of `dp_fullrank_advi`
mean_field, full_rank = partial(by_steps, MEAN_FIELD), partial(by_steps, FULL_RANK)


# --- a step, and the posterior -----------------------------------------------------------------


def _query(
    family: Family,
    options: AdviOptions,
    clip_norms: tuple[float, ...],
    state: State,
    rng: np.random.Generator,
) -> Query:
    eps = rng.standard_normal((options.obj_n_mc, state.params["mu"].size))
    points = family.sample(state.params, eps)
    context: Any = points
    if not options.aligned:
        context = points, eps * expit(state.params["rho"])  # d z / d rho
    return Query("score", context, clip_norms[state.t], (points, eps))


def _update(
    family: Family,
    optimizer: Optimizer,
    prior: Callable[[np.ndarray], np.ndarray],
    options: AdviOptions,
    state: State,
    query: Query,
    noisy: Noisy,
) -> State:
    """One step uphill on E[log p(z)] + entropy; prior and entropy are exact."""
    points, eps = query.draw
    slopes = np.stack([prior(z) for z in points])
    scores = noisy.value.reshape(len(points), -1, points.shape[1]) / noisy.sample_rate
    if options.aligned:
        slopes += scores[:, 0]
    ascent = family.gradient(state.params, eps, slopes)
    if not options.aligned:
        mu, rho = scores.mean(axis=0)
        ascent = {"mu": ascent["mu"] + mu, "rho": ascent["rho"] + rho}
    optimizer_state, params = optimizer.step(state.optimizer, state.params, ascent, state.t)
    weight = (DEFAULTS.average_power + 1) / (state.t + DEFAULTS.average_power + 1)
    average = {k: a + weight * (params[k] - a) for k, a in state.average.items()}
    return State(state.t + 1, params, average, optimizer_state, noisy.noise_to_signal)


def _posterior(
    records: Records, family: Family, state: State, draws: int, rng: np.random.Generator
) -> Draws:
    eps = rng.standard_normal((draws, records.size))
    values = records.split(family.sample(state.average, eps))
    return dict(zip(records.point, values, strict=True))
