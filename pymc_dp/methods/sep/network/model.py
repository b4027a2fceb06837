"""Bayesian networks, recognised from the graph of one record.

All Gaussian latents pass through one output f, on which the likelihood depends as a Normal with
known or Gamma precision does, or a Bernoulli with a logistic or probit link. The latents are
independent given precisions, and every Op on the way to f has a rule of moments.
"""

from typing import NamedTuple

from pytensor.graph.traversal import ancestors

from pymc_dp.methods.conjugate.families import gaussian_latents
from pymc_dp.methods.linear.predictor import (
    Predictor,
    bottlenecks,
    is_near_regression,
    predictor_at,
)
from pymc_dp.methods.mixture.model import is_near as is_near_mixture
from pymc_dp.methods.normal import GaussianPrior, check_independent, gaussian_prior
from pymc_dp.methods.refusal import NotConjugateError, refuse_local_latents
from pymc_dp.methods.sep.network.moments import Moments
from pymc_dp.methods.sep.network.propagation import propagate
from pymc_dp.model import Records
from pymc_dp.model.graph_types import AnyVariable


class Network(NamedTuple):
    """A Bayesian network."""

    prior: GaussianPrior  # of all Gaussian latents; independent entries given the precisions
    output: Predictor  # the likelihood as a function of the network's output, one number
    # of the output: graphs of the latents, which stand for their means, and of ``variances``
    moments: Moments
    variances: dict[str, AnyVariable]  # {latent: AnyVariable}


def recognise(records: Records) -> Network:
    """Prove, at probe points, that the model is a network with independent weights."""
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
    return Network(prior, output, propagate(output.psi, given), variances)


def is_near(records: Records) -> bool:
    """Whether there are Gaussian latents in which no predictor is linear."""
    gaussian = gaussian_latents(records) and not records.local_latents
    return bool(gaussian) and not is_near_regression(records) and not is_near_mixture(records)


def roles(records: Records, network: Network) -> dict[str, str]:
    """Describe the role of each latent and each term in the updates."""
    roles = dict.fromkeys(network.prior.shapes, "weights, independent Gaussians")
    roles |= {name: network.prior.role(name, "weights") for name in network.prior.gammas}
    if network.output.precision:
        roles[network.output.precision] = network.prior.role(network.output.precision, "the noise")
    return roles | dict.fromkeys(
        records.term_names, f"network, {network.output.form}: moments through its graph"
    )


def _output(records: Records) -> Predictor:
    """Find the variable of one entry nearest to the likelihood in which it has a known form."""
    [term] = records.single.terms
    gaussian = {records.latents[name] for name in gaussian_latents(records)}
    for variable in bottlenecks(records, term):
        shape = variable.type.shape
        if any(length != 1 for length in shape) or not gaussian <= set(ancestors([variable])):
            continue
        try:
            found = predictor_at(records, term, variable, shape)
        except NotConjugateError:
            continue
        if found.single:
            return found
    raise NotConjugateError(
        f"the likelihood of `{records.term_names[0]}` has no single output in which it is Normal "
        "or Bernoulli with a logistic or probit link"
    )
