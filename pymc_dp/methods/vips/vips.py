"""VIPS (Park, Foulds, Chaudhuri and Welling): private variational Bayes in closed form.

Updates of regressions in closed form are those of the paper, in `pymc_dp.papers.regression`.
"""

import math
from dataclasses import dataclass
from functools import partial

from pymc_dp.contributions.estimating import AVERAGED, POLYA_GAMMA, Estimating
from pymc_dp.methods.linear import (
    RoundOptions,
    Structure,
    is_near_regression,
    predictor_of,
    recognise,
    roles_of,
)
from pymc_dp.methods.method import (
    BELIEF_NETS,
    POLYA_GAMMA_NEWTON,
    TOPICS,
    VARIATIONAL_BAYES,
    Algorithm,
    OnScale,
    of_rounds,
)
from pymc_dp.methods.normal import gaussian_prior
from pymc_dp.methods.options import MethodSpec, ModelClass, build_matching, option
from pymc_dp.methods.vips import belief_nets, conjugate, topics
from pymc_dp.model import Records

KAPPA = 0.7  # where a class of models has no default of its own


@dataclass(frozen=True, kw_only=True)
class Settings(RoundOptions):
    """The options of `vips`; None stands for the default of the model's class."""

    released = "statistics"

    form: str | None = option(
        None,
        "``absolute`` or ``paper`` for linear predictors, ``shrunk`` or ``absolute`` for topics",
    )
    iterations: int | None = option(
        None, "updates of the latents of single records before a release"
    )
    tau0: float = option(1.0, "released sums are averaged with steps (tau0 + t)^-kappa")
    kappa: float | None = option(None, "see ``tau0``")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.tau0 < math.inf:
            raise ValueError(f"tau0={self.tau0!r} must be finite and at least 1.")
        if self.kappa is not None and not 0 <= self.kappa <= 1:
            raise ValueError(f"kappa={self.kappa!r} must lie between 0 and 1.")

    def rate(self, t: int) -> float:
        """Step size rho_t = (tau0 + t)^-kappa of release t = 0, 1, ...; the first is at most 1."""
        kappa = KAPPA if self.kappa is None else self.kappa
        return min(1.0, float((self.tau0 + t) ** -kappa))


PARTS_COMPONENTS = (
    "a release before its rounds finds components that start alike, and dp_advi leaves these "
    "together. Components that public initial values (initval=) set apart are fitted by dp_advi as "
    "well"
)
NEVER_RELEASED = "it fits the latents of single records in closed form, and never releases them"


def regression_roles(records: Records, structure: Structure) -> dict[str, str]:
    """Say what each latent and each term is to the updates."""
    yes_no = _regression_algorithm(records, structure) == POLYA_GAMMA_NEWTON
    logistic = "by rounds, too" if yes_no else "Pólya-Gamma variables make it quadratic"
    return roles_of(
        records, structure, lambda predictor: logistic if predictor.augmented else "in closed form"
    )


def build_regression(records: Records, structure: Structure, settings: Settings) -> OnScale | None:
    """Build rounds for linear predictors; None where an option asks for the paper's updates."""
    yes_no = _regression_algorithm(records, structure) == POLYA_GAMMA_NEWTON
    return settings.rounds_from(estimating=_estimating(structure), without_noise=yes_no)


def _estimating(structure: Structure) -> Estimating:
    return POLYA_GAMMA if all(p.augmented for p in structure.predictors) else AVERAGED


def _regression_algorithm(records: Records, structure: Structure) -> Algorithm:
    return of_rounds(records, _estimating(structure))


def _better_for_blocks(records: Records, structure: conjugate.Structure) -> str:
    if structure.mixtures:
        # dp_advi makes the same rounds, from where components start
        return "" if structure.starts_distinct else PARTS_COMPONENTS
    if structure.has_probabilities_alone:
        return "one release is enough, and the posterior of its noisy sums is exact"
    return ""


# in the order in which they are tried
MODEL_CLASSES = (
    ModelClass(
        "linear predictors",
        lambda records: Structure(recognise(records, predictor_of), gaussian_prior(records)),
        build_regression,
        regression_roles,
        _regression_algorithm,
        forms=(),
        options=("tau0", "kappa"),
        near=is_near_regression,
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
    ),
    ModelClass(
        "belief nets",
        belief_nets.recognise,
        belief_nets.build,
        belief_nets.roles,
        lambda records, structure: BELIEF_NETS,
        forms=(),
        options=("iterations",),
        near=belief_nets.is_near,
        better=lambda records, structure: NEVER_RELEASED,
    ),
)


def vips(classes: tuple[ModelClass, ...] = MODEL_CLASSES) -> MethodSpec:
    """Return the method for models of these classes.

    **Privacy.** Every release is one clipped sum of the records' vectors. Latents of single
    records are optimised behind the wall and never released.
    """
    return MethodSpec(
        name="vips",
        build=partial(build_matching, "vips", classes),
        options=Settings,
        fits="conjugate models, regressions, mixtures, topics, belief nets",
        by=f"yes-no regressions: {POLYA_GAMMA_NEWTON}; others and mixtures: as dp_advi; "
        f"counts: {VARIATIONAL_BAYES}; topics: {TOPICS}; "
        f"belief nets: {BELIEF_NETS}",
        page="vips",
        constrained=True,
        model_classes=classes,
    )
