"""VIPS (Park, Foulds, Chaudhuri and Welling): private variational Bayes in closed form.

For linear predictors the residual form releases the score at the current mean, so that the noise of
the curvature only preconditions; the absolute form (the paper's) solves with both noisy statistics.
"""

from functools import partial

from pymc_dp.contributions.estimating import AVERAGED, POLYA_GAMMA, Estimating
from pymc_dp.methods.algorithm import (
    FACTORS,
    POLYA_GAMMA_NEWTON,
    TOPICS,
    VARIATIONAL_BAYES,
    VARIATIONAL_NEWTON,
    Algorithm,
    of_rounds,
)
from pymc_dp.methods.linear import regression
from pymc_dp.methods.linear.clipping import scaled
from pymc_dp.methods.linear.predictor import is_near_regression, predictor_of, recognise
from pymc_dp.methods.linear.quadratic import own_curvature, variational
from pymc_dp.methods.linear.regression import Form, Structure, roles_of
from pymc_dp.methods.method import Method, OnRealLine
from pymc_dp.methods.model_class import MethodSpec, ModelClass, build_matching
from pymc_dp.methods.normal import gaussian_prior
from pymc_dp.methods.vips.conjugate import conjugate
from pymc_dp.methods.vips.conjugate import model as conjugate_model
from pymc_dp.methods.vips.factors import factors
from pymc_dp.methods.vips.factors import model as factor_model
from pymc_dp.methods.vips.settings import DEFAULTS, Settings
from pymc_dp.methods.vips.topics import model as topic_model
from pymc_dp.methods.vips.topics import topics
from pymc_dp.model import Records

PARTS_COMPONENTS = (
    "a release before its rounds finds components that start alike, and dp_advi leaves these "
    "together. Components that public initial values (initval=) set apart are fitted by dp_advi as "
    "well"
)
NEVER_RELEASED = "it fits the latents of single records in closed form, and never releases them"


BOUNDED = Form(
    title="residual",
    algorithm=VARIATIONAL_NEWTON,
    expect=lambda records, predictor, backend: variational(predictor),
    next_context=lambda solved, mean, number: (mean, solved.step_covariance),
    scaled=scaled,
    step=0.7,
)
# the curvature of Pólya-Gamma variables is a bound: posteriors come out too narrow with it
OWN = BOUNDED._replace(expect=lambda records, predictor, backend: own_curvature(predictor))


def regression_roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    yes_no = _regression_algorithm(records, structure) == POLYA_GAMMA_NEWTON
    logistic = "by rounds, too" if yes_no else "Pólya-Gamma variables make it quadratic"
    return roles_of(
        records, structure, lambda found: logistic if found.augmented else "in closed form"
    )


def build_regression(
    records: Records, structure: Structure, settings: Settings
) -> Method | OnRealLine:
    """Build VIPS for linear predictors: by default rounds, else updates of its own.

    Without noise, too, rounds find the solution where outcomes are yes or no, as its own updates
    do: these are slower, and report a covariance that is too narrow.
    """
    form = OWN if settings.noise_aware else BOUNDED
    rounds = settings.rounds_from(estimating=_estimating(structure))
    if rounds is None and _regression_algorithm(records, structure) == POLYA_GAMMA_NEWTON:
        rounds = settings.rounds_without_noise(POLYA_GAMMA)
    return rounds or regression.build(records, structure, settings, form)


def _estimating(structure: Structure) -> Estimating:
    return POLYA_GAMMA if all(p.augmented for p in structure.predictors) else AVERAGED


def _regression_algorithm(records: Records, structure: Structure) -> Algorithm:
    return of_rounds(records, _estimating(structure))


def _better_for_blocks(records: Records, structure: conjugate_model.Structure) -> str:
    if structure.mixtures:
        # dp_advi makes the same rounds, from where components start
        return "" if structure.starts_distinct else PARTS_COMPONENTS
    if structure.has_probabilities_alone:
        return "one release is enough, and the posterior of its noisy sums is exact"
    return ""


def _better_for_factors(records: Records, structure: factor_model.FactorModel) -> str:
    if structure.latent.binary:
        return NEVER_RELEASED
    if factor_model.starts_distinct(records, structure):
        return ""  # dp_advi integrates the latents out, and its intervals are better
    return (
        f"{NEVER_RELEASED}, and finds loadings that start alike. Its intervals are too narrow: "
        "without initial loadings (initval=), or with public ones that differ, dp_advi has "
        "better ones"
    )


# in the order in which they are tried
MODEL_CLASSES = (
    ModelClass(
        "linear predictors",
        lambda records: Structure(recognise(records, predictor_of), gaussian_prior(records)),
        build_regression,
        regression_roles,
        _regression_algorithm,
        forms=("residual",),
        options=("feature_bound", "tau0", "kappa"),
        near=is_near_regression,
    ),
    ModelClass(
        "conjugate blocks and mixtures",
        conjugate_model.recognise,
        conjugate.build,
        conjugate_model.roles,
        conjugate.algorithm,
        forms=("absolute",),
        options=("tau0", "kappa"),
        near=lambda records: not records.local_latents,
        better=_better_for_blocks,
    ),
    ModelClass(
        "topic models",
        topic_model.recognise,
        topics.build,
        topic_model.roles,
        lambda records, structure: TOPICS,
        forms=tuple(topics.FORMS),
        options=("iterations", "tau0", "kappa"),
        near=topic_model.is_near,
        better=lambda records, structure: NEVER_RELEASED,
    ),
    ModelClass(
        "factor models",
        factor_model.recognise,
        factors.build,
        factor_model.roles,
        lambda records, structure: FACTORS,
        forms=("residual",),
        options=("iterations",),
        near=factor_model.is_near,
        better=_better_for_factors,
    ),
)


def build(
    classes: tuple[ModelClass, ...], records: Records, options: Settings
) -> Method | OnRealLine:
    """Build VIPS for one model.

    **Privacy.** Every release is one clipped sum of the records' vectors. Latents of single
    records are optimised behind the wall and never released.
    """
    built = build_matching("vips", classes, records, options)
    if isinstance(built, OnRealLine):
        return built
    return built._replace(defaults=(*built.defaults, DEFAULTS))


def vips(classes: tuple[ModelClass, ...] = MODEL_CLASSES) -> MethodSpec:
    """Return the method for models of these classes."""
    return MethodSpec(
        name="vips",
        build=partial(build, classes),
        options=Settings,
        fits="conjugate models, regressions, mixtures, topics, factors",
        by=f"yes-no regressions: {POLYA_GAMMA_NEWTON}; others and mixtures: as dp_advi; "
        f"counts: {VARIATIONAL_BAYES}; topics: {TOPICS}; "
        f"factors: {FACTORS}",
        page="vips",
        constrained=True,
        model_classes=classes,
    )
