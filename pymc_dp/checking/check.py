"""What a result says about its own quality, without a look at the data."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from textwrap import fill

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.traversal import ancestors

from pymc_dp.methods.method import Doubt, Kind, doubts_in, without_transform
from pymc_dp.methods.prior import draw_of_prior
from pymc_dp.model.graphs import unproved_in
from pymc_dp.postprocess.predict import declared_in, refuse_another_model
from pymc_dp.results.report import by_label, leaves_noise_out, noise_sd_of, share_of
from pymc_dp.results.tree import privacy_of

# where a value becomes worth a look; `check` says what each is
LIMITS = {"steps": 1.0, "noise": 0.5, "hidden": 0.0, "clipping": 0.5, "outcomes": 1.0, "prior": 0.9}
UNKNOWN, FINE, LOOK = "not known", "fine", "look"
NAMED = 4  # how many names a sentence lists
PRIOR_DRAWS = 500


@dataclass(frozen=True)
class Check:
    """One check: a number, what it means, and what to do.

    Attributes
    ----------
    name : str
        ``steps``, ``noise``, ``hidden``, ``clipping``, ``outcomes`` or ``prior``.
    value : float
        The worst number; nan where it is not known.
    verdict : {"fine", "look", "not known"}
    finding, advice : str
        A sentence each; there is no advice where nothing is to be done.
    values : mapping of str to float
        The numbers by variable, where there are several.
    """

    name: str
    value: float
    verdict: str
    finding: str
    advice: str = ""
    values: Mapping[str, float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Checks:
    """All checks of a result, each by its name; prints as a table."""

    checks: tuple[Check, ...]

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self.checks if check.name == name)

    def __str__(self) -> str:
        rows = []
        for one in self.checks:
            value = "" if math.isnan(one.value) else f"{one.value:.2g}"
            lead = f"{one.name:<9} {value:>7}  {one.verdict:<9}  "
            text = f"{one.finding} {one.advice}".strip()
            rows.append(fill(text, 100, initial_indent=lead, subsequent_indent=" " * len(lead)))
        return "\n".join(rows)

    __repr__ = __str__


def check(idata: xr.DataTree, model: pm.Model | None = None) -> Checks:
    """Check a fit by what it released: there is no loss to look at.

    Parameters
    ----------
    idata : DataTree
        A result of `pymc_dp.fit`.
    model : pymc.Model, optional
        The model that was fitted, to compare the posterior with its prior. Inside ``with model:``
        it may be left out.

    Returns
    -------
    Checks
        A table, with a sentence and advice for each of these; ``checks["noise"]`` is one of them.

        * ``steps``: the largest move of a mean in the last tenth of the releases, in posterior
          standard deviations. Below 1 it is within what noise does.
        * ``noise``: the largest share of a posterior variance that is privacy noise.
        * ``hidden``: the share of directions of the latents in which noise hides the data's
          curvature. Known of fits by rounds, as the next two.
        * ``clipping``: the share of the scores' variance that clipping takes.
        * ``outcomes``: how far outcomes are from the model's, over the critical value of a test.
        * ``prior``: the largest width of a posterior over that of the prior, as 90% intervals. Not
          known of priors that are flat, or drawn by a Python function that is not public.

    Raises
    ------
    ValueError
        The tree was not made by pymc_dp, or the model is another one.

    Notes
    -----
    **Privacy.** Reads the result, and draws from the prior: post-processing, at no cost.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=np.repeat([0, 1], [300, 700]))
    >>> idata = pymc_dp.fit(model=model, epsilon=1, delta=1e-5, progressbar=False)
    >>> pymc_dp.check(idata, model)["noise"].verdict
    'fine'
    """
    privacy_of(idata)
    if "posterior" not in idata.children:
        raise ValueError("This result holds no posterior: give a result of pymc_dp.fit.")
    model = pm.Model.get_context(error_if_none=False) if model is None else model
    of_result = (_steps, _noise, _hidden, _clipping, _outcomes)
    return Checks((*(one(idata) for one in of_result), _prior(idata, model)))


def _steps(idata: xr.DataTree) -> Check:
    fit, stats = (idata[name].to_dataset() for name in ("fit", "fit_stats"))
    means, width = stats.get("mean_path"), fit.get("standard_deviation")
    if means is None or width is None or len(means) < 2 or means.shape[1:] != width.shape:
        finding = "The result holds no path of means in coordinates that have a width."
        return Check("steps", math.nan, UNKNOWN, finding)
    path, variance = means.to_numpy(), width.to_numpy() ** 2
    if "noise_covariance" in fit:
        variance = variance + np.diag(fit["noise_covariance"].to_numpy())
    elif "noise_sd" in fit:
        variance = variance + fit["noise_sd"].to_numpy() ** 2
    moves = np.abs(path[-1] - path[-1 - max(1, len(path) // 10)]) / np.sqrt(variance)
    labels = [str(x) for x in fit[means.dims[1]].to_numpy()]
    labels = _as_in_posterior(labels, idata["posterior"].to_dataset())
    values = dict(zip(labels, moves.tolist(), strict=True))
    return _judged(
        "steps",
        values,
        "The last steps moved a mean by at most {value:.2g} posterior standard deviations{names}.",
        "The mode may not have been reached: make more releases (n=), or spend more.",
    )


def _as_in_posterior(labels: list[str], posterior: xr.Dataset) -> list[str]:
    """Label coordinates as entries of the posterior are, where there are as many of a variable."""
    label_of: dict[str, str] = {}
    for name in posterior.data_vars:
        own = [x for x in labels if without_transform(x).partition("[")[0] == name]
        entries = by_label(posterior[[name]].isel(chain=0, draw=0, drop=True)).index
        if len(own) == len(entries):
            label_of |= dict(zip(own, entries, strict=True))
    return [label_of.get(x, x) for x in labels]


def _noise(idata: xr.DataTree) -> Check:
    if leaves_noise_out(idata):
        return Check("noise", math.nan, UNKNOWN, "The posterior leaves the privacy noise out.")
    shares = by_label(share_of(idata, noise_sd_of(idata))).dropna()
    return _judged(
        "noise",
        shares.to_dict(),
        "Privacy noise is at most {value:.0%} of a posterior variance{names}.",
        "More records, a larger epsilon or fewer latents would narrow these intervals; they are "
        "honest as they are.",
    )


def _hidden(idata: xr.DataTree) -> Check:
    fit = idata["fit"].to_dataset()
    if "hidden_directions" not in fit:
        return Check("hidden", math.nan, UNKNOWN, "This method does not measure the curvature.")
    hidden, whole = int(fit["hidden_directions"]), int(fit["directions"])
    finding = f"Noise hides the data's curvature in {hidden} of {whole} directions of the latents"
    if hidden and not _doubts(idata, Kind.HIDDEN):
        share = hidden / whole
        return Check("hidden", share, FINE, f"{finding}, where scores alone tell enough.")
    return _judged(
        "hidden",
        {"": hidden / whole},
        f"{finding}.",
        "There the posterior is the prior's and its width a guess: give informative priors, use "
        "fewer latents, or spend more.",
    )


def _doubts(idata: xr.DataTree, kind: Kind) -> list[Doubt]:
    return [one for one in doubts_in(privacy_of(idata).attrs["doubts"]) if one.kind is kind]


def _clipping(idata: xr.DataTree) -> Check:
    fit = idata["fit"].to_dataset()
    taken = 1 - float(fit["variance_share"]) if "variance_share" in fit else math.nan
    if uncentred := _doubts(idata, Kind.UNCENTRED):
        return Check("clipping", taken, LOOK, uncentred[0].text)
    if math.isnan(taken):
        return Check("clipping", taken, UNKNOWN, "This method does not measure what it clips.")
    return _judged(
        "clipping",
        {"": taken},
        "Clipping takes {value:.0%} of the variance of scores.",
        "Intervals are wider than the data's: outliers or a small epsilon make clip norms short. "
        "Rescale predictors, or use a likelihood with heavier tails.",
    )


def _outcomes(idata: xr.DataTree) -> Check:
    fit = idata["fit"].to_dataset()
    value = float(fit["misfit"]) if "misfit" in fit else math.nan
    if math.isnan(value):
        said = "No release compared outcomes with the model's, or the mode may have been far away."
        return Check("outcomes", value, UNKNOWN, said)
    return _judged(
        "outcomes",
        {"": value},
        "Chi squared of outcomes beside the model's is {value:.2g} of its critical value.",
        "An intercept, a scale or a shape may be biased."
        + "".join(f" {doubt.text}" for doubt in _doubts(idata, Kind.MISFIT)),
    )


def _prior(idata: xr.DataTree, model: pm.Model | None) -> Check:
    if model is None:
        return Check("prior", math.nan, UNKNOWN, "Give the model as well: check(idata, model).")
    posterior = idata["posterior"].to_dataset()
    public, _ = declared_in(idata)
    try:
        drawn = prior_draws(model, posterior, public)
    except NotImplementedError as reason:
        return Check("prior", math.nan, UNKNOWN, str(reason))
    ratios = by_label(widths(posterior[[*drawn]]) / widths(drawn))
    return _judged(
        "prior",
        ratios.to_dict(),
        "A posterior is at most {value:.0%} as wide as its prior{names}.",
        "The data, through the noise, say next to nothing about these: their intervals are the "
        "prior's.",
    )


def _judged(name: str, values: Mapping[str, float], finding: str, advice: str) -> Check:
    """Judge a check by its worst value, and name where it is beyond the limit."""
    worst = max(values.values(), default=0.0)
    beyond = [label for label, value in values.items() if value > LIMITS[name]]
    beyond.sort(key=lambda label: -values[label])
    names = ", ".join(f"`{label}`" for label in beyond[:NAMED])
    more = f" and {len(beyond) - NAMED} more" if len(beyond) > NAMED else ""
    text = finding.format(value=worst, names=f" ({names}{more})" if names else "")
    verdict = LOOK if beyond else FINE
    return Check(name, worst, verdict, text, advice if beyond else "", dict(values))


def widths(values: xr.Dataset) -> xr.Dataset:
    """Return the lengths of central intervals of 90 percent of draws."""
    ends = values.quantile([0.05, 0.95], ("chain", "draw"))
    return ends.diff("quantile").squeeze("quantile", drop=True).astype("float64")


def prior_draws(model: pm.Model, posterior: xr.Dataset, public: Collection[str] = ()) -> xr.Dataset:
    """Draw the prior of the latents that a posterior holds; ``public`` is what the fit declared."""
    latents = [rv for rv in model.free_RVs if rv.name in posterior]
    if not latents:
        refuse_another_model([str(rv.name) for rv in model.free_RVs], ())
    read = set(ancestors(latents)).intersection(model.data_vars)
    for name in sorted({str(variable.name) for variable in read}.difference(public)):
        raise ValueError(
            f"A prior reads the data `{name}`, which the fit did not declare public: give the "
            "model that was fitted."
        )
    own = unproved_in(latents)  # a fit checks the operations of draws that it makes itself
    for name in sorted(own.keys() - set(public)):
        raise NotImplementedError(
            f"A prior is drawn by `{name}`, which may hold private records. Fit it written as a "
            f"distribution of PyMC's{own[name]}."
        )
    try:
        values = draw_of_prior(latents, PRIOR_DRAWS)
    except NotImplementedError as error:
        raise NotImplementedError("The prior is flat: nothing can be drawn from it.") from error
    drawn = {str(rv.name): each[None] for rv, each in zip(latents, values, strict=True)}
    fitting = [n for n, each in drawn.items() if each.shape[2:] == posterior[n].shape[2:]]
    refuse_another_model(drawn, fitting)
    return xr.Dataset({name: (posterior[name].dims, each) for name, each in drawn.items()})
