"""VIPS (Park, Foulds, Chaudhuri and Welling): private variational Bayes in closed form."""

from pymc_dp.methods.conjugate.exponential import NORMAL
from pymc_dp.methods.linear.predictor import is_near_regression
from pymc_dp.methods.method import Method, OnRealLine
from pymc_dp.methods.model_class import MethodSpec, ModelClass, build_matching
from pymc_dp.methods.vips import regression
from pymc_dp.methods.vips.conjugate import conjugate
from pymc_dp.methods.vips.conjugate import model as conjugate_model
from pymc_dp.methods.vips.factors import factors
from pymc_dp.methods.vips.factors import model as factor_model
from pymc_dp.methods.vips.settings import DEFAULTS, Settings
from pymc_dp.methods.vips.topics import model as topic_model
from pymc_dp.methods.vips.topics import topics
from pymc_dp.model import Records

NEVER_RELEASED = "it fits the latents of single records in closed form, and never releases them"


def _better_for_blocks(structure: conjugate_model.Structure) -> str:
    known = structure.has_probabilities_alone or NORMAL in structure.in_likelihood.values()
    if structure.mixtures and (structure.starts_apart or not known):
        return ""  # sums are clipped without being centred, and intervals are too narrow
    if structure.mixtures and structure.has_probabilities_alone:
        return "it keeps the posterior of the components' weights and probabilities"
    if structure.mixtures:
        return (
            "it tells components apart that start alike. Components that are started apart by "
            "public initial values (initval=) have better intervals by dp_advi"
        )
    if structure.has_probabilities_alone:
        return "one release is enough, and the posterior of its noisy sums is exact"
    return ""


def _better_for_factors(structure: factor_model.FactorModel) -> str:
    if structure.latent.binary:
        return NEVER_RELEASED
    if structure.starts_apart:
        return ""  # dp_advi integrates the latents out, and its intervals are right
    return (
        f"{NEVER_RELEASED}, and finds loadings that start alike. Its intervals are too narrow: "
        "from public initial loadings that differ (initval=) those of dp_advi are right"
    )


# in the order in which they are tried
MODEL_CLASSES = (
    ModelClass(
        "linear predictors",
        regression.recognise,
        regression.build,
        regression.roles,
        forms=tuple(regression.FORMS),
        options=("feature_bound", "tau0", "kappa"),
        near=is_near_regression,
    ),
    ModelClass(
        "conjugate blocks and mixtures",
        conjugate_model.recognise,
        conjugate.build,
        conjugate_model.roles,
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
        forms=tuple(topics.FORMS),
        options=("iterations", "tau0", "kappa"),
        near=topic_model.is_near,
        better=lambda structure: NEVER_RELEASED,
    ),
    ModelClass(
        "factor models",
        factor_model.recognise,
        factors.build,
        factor_model.roles,
        forms=("residual",),
        options=("iterations",),
        near=factor_model.is_near,
        better=_better_for_factors,
    ),
)


def build(records: Records, options: Settings) -> Method | OnRealLine:
    """Build VIPS for one model.

    **Privacy.** Every release is one clipped sum of the records' vectors. Latents of single
    records are optimised behind the wall and never released.
    """
    built = build_matching("vips", MODEL_CLASSES, records, options)
    if isinstance(built, OnRealLine):
        return built
    return built._replace(defaults=(*built.defaults, DEFAULTS))


VIPS = MethodSpec(
    name="vips",
    build=build,
    options=Settings,
    fits="conjugate models, regressions, mixtures, topics, factors",
    by="private expected statistics, with Pólya-Gamma variables for logistic links",
    source="Park et al. 2020",
    page="vips",
    constrained=True,
    model_classes=MODEL_CLASSES,
)
