"""VIPS for topic models: private latent Dirichlet allocation."""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from pymc_dp.methods.conjugate.description import dims_of
from pymc_dp.methods.conjugate.exponential import DIRICHLET
from pymc_dp.methods.conjugate.noise_aware import NoisyBlock, draw
from pymc_dp.methods.method import Compiled, Method
from pymc_dp.methods.vips.settings import Settings
from pymc_dp.methods.vips.topics.defaults import DEFAULTS
from pymc_dp.methods.vips.topics.documents import topic_counts, word_counts
from pymc_dp.methods.vips.topics.forms import Form, absolute_form, shrunk_form
from pymc_dp.methods.vips.topics.model import TopicModel
from pymc_dp.methods.vips.topics.shrinkage import normalised
from pymc_dp.model import Records

FORMS = {"shrunk": shrunk_form, "absolute": absolute_form}
# numbers in all posterior draws together: half a gigabyte
MOST_DRAWN = 2**26


def build(records: Records, model: TopicModel, settings: Settings) -> Method:
    """Build VIPS for a topic model.

    **Privacy.** A release is a sum over documents of matrices (topics, words), each clipped in
    its Frobenius norm, or of their vectors of counts. The shares of a document's topics are
    fitted behind the wall by a fixed number of steps, and never released.
    """
    name = settings.form or "shrunk"
    form = FORMS[name](model.eta, settings)
    counts = topic_counts(model, settings.iterations or DEFAULTS.iterations)
    # documents are sparse, and no backend of PyTensor's is: NumPy and SciPy do the work
    contributions = {"totals": word_counts(model), "topics": counts, "statistics": counts}
    used = {release.name: contributions[release.name] for release in form.releases}
    topic = dims_of(records, model.topics)[0]
    return Method(
        size=model.eta.size,
        releases=form.releases,
        compile=lambda backend: Compiled(used, form.update),
        init=form.init,
        query=lambda state, rng: form.query(state),
        posterior=partial(_posterior, model, form),
        noise_aware=partial(_noise_aware, model, form),
        describe=partial(_describe, records, model, form),
        trace=lambda state: {
            # how the released words are spread over topics
            "topic_share": ((topic,), normalised(form.mass(state)[None])[0])
        },
        settings={"form": name},
        defaults=(DEFAULTS,),
    )


def _posterior(
    model: TopicModel, form: Form, state: Any, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw topics, and fewer where they would not fit in memory: the budget is already spent."""
    eta = (form.concentration(state) - 1,)
    return {model.topics: DIRICHLET.sample(eta, _most_draws(model, draws), rng)}


def _noise_aware(
    model: TopicModel, form: Form, state: Any, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    counts = form.concentration(state) - model.eta
    block = NoisyBlock((model.eta - 1,), (counts,), (form.noise_variance(state),))
    return {model.topics: draw(DIRICHLET, block, _most_draws(model, draws), rng)}


def _most_draws(model: TopicModel, draws: int) -> int:
    return max(1, min(draws, MOST_DRAWN // model.eta.size))


def _describe(records: Records, model: TopicModel, form: Form, state: Any) -> xr.Dataset:
    dims = dims_of(records, model.topics)
    variables = {
        "concentration": (dims, form.concentration(state)),
        "document_concentration": (dims[:1], model.alpha),
    }
    for name, (axes, value) in form.details(state).items():
        variables[name] = (tuple(dims[axis] for axis in axes), value)
    coords = {dim: values for dim, values in records.outputs.coords.items() if dim in dims}
    return xr.Dataset(variables, coords)
