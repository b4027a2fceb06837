"""What new records say to a released fit by vips: belief nets reconstruct, topics predict."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from scipy.sparse import csr_matrix
from scipy.special import digamma, expit, gammaln

from pymc_dp.methods.options import NotConjugateError
from pymc_dp.methods.vips.belief_nets import context_at, infer, recognise, scores_at_zero
from pymc_dp.methods.vips.topics import TINY, Documents, explain
from pymc_dp.model import Column, Records, constrained, separate_unread
from pymc_dp.model.columns import as_array
from pymc_dp.model.split import named_dims

ITERATIONS = 100  # steps that fit the shares of a new document's topics
PART = 1000  # documents in memory at a time


def reconstruct(
    idata: xr.DataTree, model: pm.Model, data: Mapping[str, Any], *, iterations: int | None = None
) -> xr.DataArray:
    """Infer the latents of new records, and return the outcomes that they predict.

    Parameters
    ----------
    idata : DataTree
        A result of ``pymc_dp.fit(method="vips")`` for a sigmoid belief network.
    model : pymc.Model
        The model that was fitted; its own data are not used.
    data : mapping
        The outcomes of the new records, by the name of the observed variable (or of its pm.Data).
    iterations : int, optional
        Rounds of updates of the latents; as in the fit.

    Returns
    -------
    DataArray
        Probabilities of a 1 at the inferred latents and the released posterior means, with the dims
        of the observed variable.

    Raises
    ------
    ValueError
        The model is no belief net, the result is not one of it, or a row lies outside the
        support of the outcomes.

    Notes
    -----
    **Privacy.** Post-processing of the released ``fit`` group, for records that were not fitted. A
    reconstruction of a record that was fitted is computed from that record again: releasing it
    is a leak that no epsilon covers.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> y = np.repeat([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], 500, axis=0)
    >>> with pm.Model() as model:
    ...     W, c = pm.Normal("W", 0, 3, shape=(6, 1)), pm.Normal("c", 0, 3, shape=6)
    ...     z = pm.Bernoulli("z", logit_p=0.0, shape=(1000, 1))
    ...     _ = pm.Bernoulli("y", logit_p=pm.math.dot(z, W.T) + c, observed=y)
    >>> idata = pymc_dp.fit(model=model, method="vips", epsilon=2, delta=1e-5, progressbar=False)
    >>> new = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]])  # each lacks a one
    >>> (pymc_dp.reconstruct(idata, model, {"y": new}) > 0.5).astype(int).values
    array([[1, 1, 1, 0, 0, 0],
           [0, 0, 0, 1, 1, 1]])
    """
    # new rows need no check that protects records: nothing is released of them
    records, _ = separate_unread(constrained(model), data=data)
    try:
        structure = recognise(records)
    except NotConjugateError as reason:
        raise ValueError(f"The model is no belief net that vips fits: {reason}.") from None
    released = idata["fit"].to_dataset()
    try:
        moments = {
            name: (released[f"{name}.mean"].to_numpy(), released[f"{name}.sd"].to_numpy())
            for name in structure.moved
        }
    except KeyError as missing:
        raise ValueError(
            f"This result is not a vips fit of the model: it lacks {missing}."
        ) from None
    context = context_at(structure, moments)
    [name] = records.shapes.keys() - records.local_latents.keys()
    axis, dtype = records.shapes[name].index(None), records.batch.inputs[name].type.dtype
    column = Column(as_array(f"data=`{name}`", data[name]), axis, dtype)
    slopes = scores_at_zero(records, structure, "python")
    batch = {name: column.take(np.arange(column.rows))}
    with np.errstate(all="ignore"):
        kappa = slopes(batch)
    bad = np.flatnonzero(~np.isfinite(kappa).all(axis=1))
    if bad.size:
        raise ValueError(
            f"data=`{name}` is outside the support of the outcomes, first in row {bad[0]} "
            f"({bad.size} in all): leave such rows out."
        )
    features = infer(structure, iterations, kappa, context).features
    return _arranged(records, model, column, expit(features @ context.mean.T))


def _arranged(
    records: Records, model: pm.Model, column: Column, values: np.ndarray
) -> xr.DataArray:
    """Bring (rows, J) to the shape and the dims of the observed variable."""
    [observed] = model.observed_RVs
    lengths = np.delete(column.values.shape, column.axis)
    array = np.moveaxis(values.reshape(len(values), *lengths), 0, column.axis)
    dims = named_dims(model.named_vars_to_dims.get(observed.name), observed.name, array.ndim)
    coords = {x: v for x, v in records.outputs.coords.items() if x in dims}
    return xr.DataArray(array, coords, dims, observed.name)


def perplexity(idata: xr.DataTree, documents: Any, given: Any = None) -> float:
    """Measure how well released topics predict new documents: the lower, the better.

    It is one over the geometric mean of the words' probabilities: topics no better than chance
    score the size of the vocabulary.

    Parameters
    ----------
    idata : DataTree
        A topic model's result of `pymc_dp.fit` with ``method="vips"``.
    documents : array_like or sparse matrix, shape (documents, words)
        How often every word occurs in every new document.
    given : array_like or sparse matrix, shape (documents, words), optional
        Other words of the same documents, to which the shares of topics are fitted (document
        completion). Without it these are fitted to ``documents``, and the score is an upper bound:
        the evidence lower bound of Hoffman et al. (2010), at the topics' posterior means.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        The result holds no topics, or an array does not hold counts of its words.

    Notes
    -----
    **Privacy.** Post-processing, for documents that were not fitted. The perplexity of fitted
    documents is computed from these documents again, and the guarantee does not cover it.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> rng = np.random.default_rng(0)
    >>> beta = rng.dirichlet(np.full(30, 0.1), size=2)
    >>> new, *old = rng.multinomial(40, rng.dirichlet([0.1, 0.1], size=500) @ beta)
    >>> with pm.Model() as model:
    ...     topics = pm.Dirichlet("topics", np.full((2, 30), 0.1))
    ...     shares = pm.Dirichlet("shares", np.full(2, 0.1), shape=(499, 2))
    ...     w = pm.Multinomial("w", 40, shares @ topics, observed=old)
    >>> idata = pymc_dp.fit(model=model, method="vips", epsilon=2, delta=1e-4, progressbar=False)
    >>> pymc_dp.perplexity(idata, new[None]) < 30
    True
    """
    fit = idata["fit"].to_dataset() if "fit" in idata.children else xr.Dataset()
    if "document_concentration" not in fit:
        raise ValueError(
            "This result holds no topics: fit a topic model by pymc_dp.fit(method='vips')."
        )
    concentration = fit["concentration"].values
    beta = concentration / concentration.sum(axis=1, keepdims=True)
    alpha = fit["document_concentration"].values
    scored = _counts("documents", documents, beta.shape[1])
    if scored.sum() == 0:
        raise ValueError("documents= holds no words.")
    known = scored if given is None else _counts("given", given, beta.shape[1])
    if known.shape != scored.shape:
        raise ValueError(f"given= holds {known.shape[0]} documents, documents= {scored.shape[0]}.")
    total = 0.0
    for part, seen in zip(_in_parts(scored), _in_parts(known), strict=True):
        gamma = explain(seen, beta, alpha, ITERATIONS).gamma
        if given is None:
            total += _bound(part, gamma, beta, alpha)
        else:
            shares = gamma / gamma.sum(axis=1, keepdims=True)
            total += part.counts.data @ _log_probabilities(part, shares, beta)
    return float(np.exp(-total / scored.sum()))


def _counts(name: str, values: Any, words: int) -> csr_matrix:
    counts = csr_matrix(values)
    if counts.shape[1] != words:
        raise ValueError(f"{name}= has {counts.shape[1]} words, the topics have {words}.")
    if not ((counts.data >= 0) & (counts.data == np.floor(counts.data))).all():
        raise ValueError(f"{name}= holds values that are not counts: 0, 1, 2 and so on.")
    counts.sum_duplicates()
    return counts.astype("float64")


def _in_parts(counts: csr_matrix) -> Iterator[Documents]:
    for start in range(0, counts.shape[0], PART):
        part = counts[start : start + PART]
        yield Documents(part, np.ones(part.shape[0], bool))


def _bound(documents: Documents, gamma: np.ndarray, beta: np.ndarray, alpha: np.ndarray) -> float:
    """Evidence lower bound of documents, as sequences of words, at one point of the topics."""
    total = gamma.sum(axis=1, keepdims=True)
    log_shares = digamma(gamma) - digamma(total)
    of_words = documents.counts.data @ _log_probabilities(documents, np.exp(log_shares), beta)
    prior = gammaln(alpha.sum()) - gammaln(alpha).sum() + log_shares @ (alpha - 1)
    posterior = gammaln(total[:, 0]) - gammaln(gamma).sum(axis=1)
    posterior += ((gamma - 1) * log_shares).sum(axis=1)
    return float(of_words + (prior - posterior).sum())


def _log_probabilities(documents: Documents, shares: np.ndarray, beta: np.ndarray) -> np.ndarray:
    p = np.vecdot(shares[documents.rows], beta.T[documents.counts.indices])
    return np.asarray(np.log(np.maximum(p, TINY)))
