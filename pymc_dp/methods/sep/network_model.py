"""Bayesian networks, recognised from the graph of one record.

All Gaussian latents pass through one output f, on which the likelihood depends as a Normal with
known or Gamma precision does, or a Bernoulli with a logistic or probit link. The latents are
independent given precisions, and every Op on the way to f has a rule of moments.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from scipy.special import log_ndtr

from pymc_dp.compile import function
from pymc_dp.contributions.contribution import Batch
from pymc_dp.methods.blocks.exponential import GAMMA, slopes
from pymc_dp.methods.blocks.families import gaussian_latents
from pymc_dp.methods.blocks.gaussian_prior import GaussianPrior, gaussian_prior
from pymc_dp.methods.blocks.made_up import agree, made_up_rows
from pymc_dp.methods.refusal import NotConjugateError, refuse_local_latents
from pymc_dp.methods.sep.independent_prior import check_independent
from pymc_dp.methods.sep.moments import Moments
from pymc_dp.methods.sep.propagation import propagate
from pymc_dp.records import Records

# values of the output at which a likelihood is compared with the forms that have a log Z
TRIALS = (0.0, -1.3, 0.4, 2.1)
TITLES = {"normal": "Gaussian", "logistic": "logistic", "probit": "probit"}


class Output(NamedTuple):
    """What the likelihood sees of the latents.

    Attributes
    ----------
    variable : Variable
        The output of the network, in the graph of one record; one entry.
    cut : Variable
        What stands for it in ``log_likelihood``, a scalar.
    precision : str or None
        The Gamma latent that is the noise's precision.
    link : {"normal", "logistic", "probit"}
    """

    variable: Variable
    cut: Variable
    log_likelihood: Variable
    precision: str | None
    link: str


class Network(NamedTuple):
    """A Bayesian network.

    Attributes
    ----------
    prior : GaussianPrior
        Of all Gaussian latents; independent entries given the precisions.
    output : Output
    moments : Moments
        Of the output: graphs of the latents, which stand for their means, and of ``variances``.
    variances : {latent: Variable}
    """

    prior: GaussianPrior
    output: Output
    moments: Moments
    variances: dict[str, Variable]


def recognise(records: Records) -> Network:
    """Prove, at made-up points, that the model is a network with independent weights.

    Raises
    ------
    NotConjugateError
        With what does not fit.
    """
    refuse_local_latents(records)
    if len(records.term_names) > 1:
        raise NotConjugateError(f"`{records.term_names[1]}` is a second outcome")
    if not gaussian_latents(records):
        raise NotConjugateError("no latent has a Gaussian prior, so there are no weights")
    output = _output(records)
    prior = gaussian_prior(records)
    check_independent(prior)
    latents = {name: records.latents[name] for name in prior.shapes}
    variances = {name: x.type.clone()(f"{name}_variance") for name, x in latents.items()}
    given = {x: Moments(x, variances[name], frozenset([name])) for name, x in latents.items()}
    return Network(prior, output, propagate(output.variable, given), variances)


def roles(records: Records, network: Network) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    told = dict.fromkeys(network.prior.shapes, "weights, independent Gaussians")
    told |= dict.fromkeys(network.prior.gammas, "Gamma block: precision of weights")
    if network.output.precision:
        told[network.output.precision] = "Gamma block: noise precision"
    return told | dict.fromkeys(
        records.term_names, f"network, {TITLES[network.output.link]}: moments through its graph"
    )


def _output(records: Records) -> Output:
    """Find the variable nearest to the likelihood in which it has one of the known forms."""
    [term] = records.single.terms
    for variable in _candidates(records, term):
        cut = variable.type.clone(dtype="float64")("output")
        [log_likelihood] = clone_replace([term.sum()], {variable: cut}, rebuild_strict=False)
        reached = set(ancestors([log_likelihood]))
        others = [name for name, v in records.latents.items() if v in reached]
        if len(others) > 1 or any(records.point[name].size > 1 for name in others):
            continue
        precision = others[0] if others else None
        link = _link(records, Output(variable, cut, log_likelihood, precision, ""))
        if link:
            return Output(variable, cut, log_likelihood, precision, link)
    raise NotConjugateError(
        f"the likelihood of `{records.term_names[0]}` has no single output in which it is Normal "
        "or Bernoulli with a logistic or probit link"
    )


def _candidates(records: Records, term: Variable) -> Iterator[Variable]:
    """Variables of one entry that all Gaussian latents, and no others, pass through."""
    names = gaussian_latents(records)
    gaussian = {records.latents[name] for name in names}
    others = set(records.latents.values()) - gaussian
    for variable in ancestors([term]):
        above = set(ancestors([variable]))
        if (
            variable.dtype.startswith("float")
            and all(length == 1 for length in variable.type.shape)
            and gaussian <= above
            and not others & above
            and not gaussian & set(ancestors([term], blockers=[variable]))
        ):
            yield variable


class _Slopes(NamedTuple):
    """What a likelihood says about its output at the values `TRIALS`, at a noise precision of 1.

    ``noise`` holds the statistics (shape, energy) of the noise precision, if it is a latent.
    """

    first: np.ndarray
    second: np.ndarray
    noise: list[np.ndarray]


def _link(records: Records, output: Output) -> str | None:
    """Compare slopes in the output with those of the known forms."""
    evaluate = _evaluator(records, output)
    batches = [made_up_rows(records, np.random.default_rng(n), [n]) for n in (0, 1)]
    with np.errstate(all="ignore"):
        found = {_form(evaluate(batch, tau)) for batch in batches for tau in (1.0, 1.7)}
    return found.pop() if len(found) == 1 else None


def _evaluator(records: Records, output: Output) -> Callable[[Batch, float], _Slopes]:
    names = [output.precision] if output.precision else []
    gamma = [records.latents[name] for name in names]
    graphs = [
        *slopes(output.log_likelihood, output.cut),
        *[s for tau in gamma for s in GAMMA.statistics(output.log_likelihood, tau)],
    ]
    leaves = list(records.single.inputs.values())
    fn = function([output.cut, *gamma, *leaves], [graph.sum() for graph in graphs], "python")

    def evaluate(batch: Batch, precision: float) -> _Slopes:
        tau = [np.full(records.point[name].shape, precision) for name in names]
        shape = output.cut.type.shape
        values = [fn(np.full(shape, u), *tau, *batch.values()) for u in TRIALS]
        first, second, *noise = np.array(values, "float64").T
        scale = precision if names else 1.0
        return _Slopes(first / scale, second / scale, noise)

    return evaluate


def _form(at: _Slopes) -> str | None:
    """Tell which likelihood has these slopes."""
    if not np.isfinite(at.first).all():
        return None
    u, start, b = np.array(TRIALS), at.first[0], -at.second[0]
    if b > 0 and agree(at.first, start - b * u):
        of_noise = (np.full(len(u), 0.5), (start - b * u) ** 2 / (2 * b))
        return "normal" if not at.noise or all(map(agree, at.noise, of_noise)) else None
    if at.noise:
        return None
    if agree(at.first, start - np.tanh(u / 2) / 2) and agree(start**2, np.array(0.25)):
        return "logistic"
    sign = np.sign(start)
    density = np.exp(-(u**2) / 2 - log_ndtr(sign * u)) / np.sqrt(2 * np.pi)
    return "probit" if agree(at.first, sign * density) else None
