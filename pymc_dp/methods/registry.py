"""The methods of `pymc_dp.fit`, by name, and the part of its help that is made from them.

First what `vips` and `dp_sep` make of regressions, and the classes of models that each fits; then
the methods, and at the end their tables. The algorithms to the letter of their papers
(`pymc_dp.papers`) are loaded when one is asked for; the options of those that are methods by
themselves stand here, for the help.
"""

import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import cleandoc
from typing import Any

import numpy as np

from pymc_dp.accounting.plan import LARGEST, MOST, SMALLEST
from pymc_dp.contributions.polya_gamma_and_sites import AVERAGED, POLYA_GAMMA, SITES, Estimating
from pymc_dp.methods import advi
from pymc_dp.methods.linear import (
    GAUSSIAN,
    LOGISTIC,
    PROBIT,
    STEP_DOC,
    Predictor,
    SepOptions,
    Structure,
    VipsOptions,
    is_near_regression,
    linear_predictor,
    predictor_of,
    recognise,
)
from pymc_dp.methods.method import (
    ADVI,
    BACKPROPAGATION,
    BELIEF_NETS,
    NEWTON,
    NOT_PRIVATE_EP,
    POLYA_GAMMA_NEWTON,
    POSTERIOR_SAMPLING,
    SGLD,
    SITES_NEWTON,
    TOPICS,
    VARIATIONAL_BAYES,
    Method,
    OnScale,
    of_rounds,
)
from pymc_dp.methods.mixture import model as mixture_model
from pymc_dp.methods.mixture.sketch import sketch_start
from pymc_dp.methods.options import (
    SAMPLE_RATE,
    BatchOptions,
    MethodSpec,
    ModelClass,
    NotConjugateError,
    Options,
    build_matching,
    option,
)
from pymc_dp.methods.sep import mixture, network, network_fit
from pymc_dp.methods.vips import belief_nets, conjugate, topics
from pymc_dp.model import Records
from pymc_dp.model.graphs import Tensor


@dataclass(frozen=True, kw_only=True)
class SgldOptions(BatchOptions):
    """The options of `dp_sgld`."""

    released = "score"

    step: float | None = option(
        None,
        "first step size, in squared units of the unconstrained latents",
        (SMALLEST, LARGEST),
    )


@dataclass(frozen=True, kw_only=True)
class OpsOptions(Options):
    """The options of `dp_ops`."""

    loglik_bound: float | None = option(
        None,
        "bound that a record's log likelihood is clipped to; 5 for each outcome, and without noise "
        "none",
        (SMALLEST, math.inf),
    )
    transitions: int = option(
        1000, "steps of PyMC's NUTS behind a draw, the first half of which adapt", (100, MOST)
    )


@dataclass(frozen=True, kw_only=True)
class PlainOptions(Options):
    """The options of `sep`, which neither clips nor adds noise."""

    sample_rate: float | None = option(None, SAMPLE_RATE)
    step: float | None = option(None, STEP_DOC)


def of_paper(file: str, name: str) -> Callable[..., Any]:
    """Return a function of `pymc_dp.papers`, whose file is loaded when it is called."""
    return lambda *terms: getattr(import_module(f"pymc_dp.papers.{file}"), name)(*terms)


# --- regressions -------------------------------------------------------------------------------


def roles_of(
    how: Mapping[str, str], otherwise: str, records: Records, structure: Structure
) -> dict[str, str]:
    """Say what each latent is to the updates, and ``how`` terms of a form are treated."""
    roles = dict.fromkeys(structure.prior.shapes, "one Gaussian vector with full covariance")
    roles |= {name: structure.prior.role(name) for name in structure.prior.gammas}
    for name, predictor in zip(records.term_names, structure.predictors, strict=True):
        if predictor.precision:
            roles[predictor.precision] = structure.prior.role(predictor.precision, "the noise")
        treated = how.get(predictor.form, otherwise)
        roles[name] = f"linear predictor, by rounds; without privacy {treated}"
    return roles


def vips_estimating(structure: Structure) -> Estimating:
    """What a record adds in rounds of `vips`."""
    return POLYA_GAMMA if all(p.augmented for p in structure.predictors) else AVERAGED


def vips_algorithm(records: Records, structure: Structure) -> str:
    """Return what fits a regression by default."""
    return of_rounds(records, vips_estimating(structure))


def vips_roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    yes_no = vips_algorithm(records, structure) == POLYA_GAMMA_NEWTON
    logistic = "by rounds, too" if yes_no else "Pólya-Gamma variables make it quadratic"
    return roles_of({LOGISTIC: logistic}, "in closed form", records, structure)


def vips_rounds(records: Records, structure: Structure, settings: VipsOptions) -> OnScale | None:
    """Build rounds for linear predictors; None where an option asks for the paper's updates."""
    yes_no = vips_algorithm(records, structure) == POLYA_GAMMA_NEWTON
    return settings.rounds_from(estimating=vips_estimating(structure), noiseless_too=yes_no)


def site_predictor(records: Records, term: Tensor) -> Predictor:
    """Find the linear predictor of a term: one number, or any where its sites are exact."""
    predictor = linear_predictor(records, term)
    if predictor.form != GAUSSIAN and np.prod(predictor.shape) != 1:
        raise NotConjugateError("has several predictors, and is not Gaussian")
    return predictor


# --- classes of models, in the order in which they are tried -----------------------------------

PARTS_COMPONENTS = (
    "a release before its rounds finds components that start alike, and dp_advi leaves these "
    "together. Components that public initial values (initval=) set apart are fitted by dp_advi as "
    "well"
)
NEVER_RELEASED = "it fits the latents of single records in closed form, and never releases them"


def _better_for_blocks(records: Records, structure: conjugate.Structure) -> str:
    if structure.mixtures:
        # dp_advi makes the same rounds, from where components start
        return "" if structure.starts_distinct else PARTS_COMPONENTS
    if structure.has_probabilities_alone:
        return "one release is enough, and the posterior of its noisy sums is exact"
    return ""


OF_VIPS = (
    ModelClass(
        "linear predictors",
        partial(recognise, predictor_of),
        vips_rounds,
        vips_roles,
        vips_algorithm,
        options=("tau0", "kappa"),
        near=is_near_regression,
        of_papers={form: of_paper("regression", form) for form in ("absolute", "paper")},
    ),
    ModelClass(
        "conjugate blocks and mixtures",
        conjugate.recognise,
        conjugate.build,
        conjugate.roles,
        conjugate.algorithm,
        forms=("absolute",),
        options=("tau0", "kappa"),
        near=lambda records: not records.local_latents,
        better=_better_for_blocks,
    ),
    ModelClass(
        "topic models",
        topics.recognise,
        topics.build,
        topics.roles,
        lambda records, structure: TOPICS,
        forms=("shrunk",),
        options=("iterations", "tau0", "kappa"),
        near=topics.is_near,
        better=lambda records, structure: NEVER_RELEASED,
        of_papers={"absolute": of_paper("regression", "absolute_topics")},
    ),
    ModelClass(
        "belief nets",
        belief_nets.recognise,
        belief_nets.build,
        belief_nets.roles,
        lambda records, structure: BELIEF_NETS,
        options=("iterations",),
        near=belief_nets.is_near,
        better=lambda records, structure: NEVER_RELEASED,
    ),
)

OF_SEP = (
    ModelClass(
        "linear predictors",
        partial(recognise, site_predictor),
        lambda records, structure, settings: settings.rounds_from(estimating=SITES),
        partial(
            roles_of,
            {GAUSSIAN: "exact sites", PROBIT: "tilted moments in closed form"},
            "tilted moments by quadrature",
        ),
        lambda records, structure: of_rounds(records, SITES),
        options=("step",),
        near=is_near_regression,
        of_papers={form: of_paper("regression", form) for form in ("damped", "algorithm3")},
    ),
    ModelClass(
        "mixtures of Gaussians",
        mixture_model.recognise,
        mixture.build,
        mixture_model.roles,
        lambda records, model: NEWTON,
        forms=("damped",),
        options=("step",),
        near=mixture_model.is_near,
        better=lambda records, model: (
            "a sketch of the records finds components that start alike, as it does in dp_advi"
            if sketch_start(records, model, None)
            else ""
        ),
    ),
    ModelClass(
        "Bayesian networks",
        network.recognise,
        network_fit.build,
        network.roles,
        lambda records, structure: BACKPROPAGATION,
        forms=("damped",),
        options=("step",),
        near=network.is_near,
        better=lambda records, structure: (
            "on all data sets that were tried its test errors were lower than those of dp_advi"
        ),
    ),
)


def _without_privacy(records: Records, options: PlainOptions) -> Method | OnScale:
    settings = SepOptions(**vars(options), clip_norm=math.inf)
    built = build_matching("dp_sep", OF_SEP, records, settings)
    return built if isinstance(built, OnScale) else built._replace(algorithms=(NOT_PRIVATE_EP,))


# --- the methods -------------------------------------------------------------------------------

DP_ADVI = MethodSpec(
    name="dp_advi",
    build=partial(advi.build, of_paper("elbo_gradient_steps", "mean_field")),
    options=advi.AdviOptions,
    fits="any model; integrates latents of single records out",
    integrates=True,
    by=f"{NEWTON}; with options of gradient steps also {ADVI}",
    algorithm=NEWTON,
    page="dp_advi",
)

# **Privacy.** Every release of vips and dp_sep is one clipped sum of the records' vectors. Latents
# and sites of single records are optimised behind the wall and never released. Without
# ``num_records`` the cavity of dp_sep takes out one of as many sites as the releases count.
DP_SEP = MethodSpec(
    name="dp_sep",
    build=partial(build_matching, "dp_sep", OF_SEP),
    options=SepOptions,
    fits="regressions, Gaussian mixtures, Bayesian neural networks",
    by=f"regressions with one predictor: {SITES_NEWTON}; others and mixtures: as dp_advi; "
    f"networks: {BACKPROPAGATION}",
    page="dp_sep",
    constrained=True,
    model_classes=OF_SEP,
)

METHODS: dict[str, MethodSpec] = {
    spec.name: spec
    for spec in (
        DP_ADVI,
        DP_ADVI._replace(
            name="dp_fullrank_advi",
            build=partial(advi.build, of_paper("elbo_gradient_steps", "full_rank")),
            fits="the same, with all correlations from the first step on",
        ),
        MethodSpec(
            name="vips",
            build=partial(build_matching, "vips", OF_VIPS),
            options=VipsOptions,
            fits="conjugate models, regressions, mixtures, topics, belief nets",
            by=f"yes-no regressions: {POLYA_GAMMA_NEWTON}; others and mixtures: as dp_advi; "
            f"counts: {VARIATIONAL_BAYES}; topics: {TOPICS}; "
            f"belief nets: {BELIEF_NETS}",
            page="vips",
            constrained=True,
            model_classes=OF_VIPS,
        ),
        DP_SEP,
        DP_SEP._replace(
            name="sep",
            build=_without_privacy,
            options=PlainOptions,
            fits="the same without privacy, to compare with; takes no budget",
            by=f"without privacy: {NOT_PRIVATE_EP}",
            private=False,
            model_classes=tuple(
                each._replace(algorithm=lambda records, structure: NOT_PRIVATE_EP)
                for each in OF_SEP
            ),
        ),
        MethodSpec(
            name="dp_sgld",
            build=of_paper("sampling", "build_sgld"),
            options=SgldOptions,
            integrates=True,
            fits="as dp_advi, a baseline: posterior draws, released one by one",
            by=SGLD,
            algorithm=SGLD,
            page="posterior_sampling",
        ),
        MethodSpec(
            name="dp_ops",
            build=of_paper("sampling", "build_ops"),
            options=OpsOptions,
            fits="no latents of single records; private if its draws are exact",
            by=POSTERIOR_SAMPLING,
            algorithm=POSTERIOR_SAMPLING,
            page="posterior_sampling",
        ),
    )
}


def method_named(name: str) -> MethodSpec:
    """Return the method of a name, in any case of letters."""
    spec = METHODS.get(name.lower()) if isinstance(name, str) else None
    if spec is None:
        raise ValueError(f"method={name!r} is unknown: use one of {sorted(METHODS)}.")
    return spec


def described(doc: str) -> str:
    """Fill a docstring's ``{methods}`` with their table, and ``{options}`` with their keywords."""
    doc = cleandoc(doc).replace("{methods}", methods_table())
    return doc.replace("{options}", textwrap.indent(options_list(), "    ").lstrip())


def methods_table() -> str:
    """Return a table of the methods, and of what each fits."""
    rows = [("method", "fits"), *((f"``{name}``", spec.fits) for name, spec in METHODS.items())]
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    line = f"{'=' * first}  {'=' * second}"
    head, *body = [f"{name:{first}}  {fits}" for name, fits in rows]
    return "\n".join([line, head, line, *body, line])


def options_list() -> str:
    """Return a list of the methods' keywords; those that mean the same stand together."""
    takers: dict[tuple[str, str], list[str]] = {}
    for name, spec in METHODS.items():
        for keyword, field in spec.options.keywords().items():
            takers.setdefault((keyword, field.metadata["doc"]), []).append(name)
    lines = [
        f"* ``{keyword}`` ({', '.join(names)}): {doc}" for (keyword, doc), names in takers.items()
    ]
    return "\n".join(textwrap.fill(line, 96, subsequent_indent="  ") for line in lines)
