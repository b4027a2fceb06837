"""What rounds in whitened coordinates tell of their own posterior: released numbers alone."""

import numpy as np
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BinomialRV, MultinomialRV, NegBinomialRV, PoissonRV
from pytensor.tensor.random.op import RandomVariable
from scipy.linalg import null_space

from pymc_dp.methods.gaussian.belief import Curvature, CurvatureSpectrum
from pymc_dp.methods.gaussian.hamiltonian import STUCK
from pymc_dp.methods.gaussian.hyperpriors import Hyperpriors, Mixing
from pymc_dp.methods.gaussian.long_steps import LatestStep
from pymc_dp.methods.gaussian.state import State
from pymc_dp.methods.method import Doubt, Kind, quoted, uncentred
from pymc_dp.model import Records
from pymc_dp.model.batch import STANDARD_UNIFORM

# the largest share of its prior sd that the sd of a hidden direction may be, before it is warned of
MOST_OF_PRIOR = 0.3

BY_DRAWS = (
    "Norms that keep the bias small cost noise, and intervals allow for all that is cut off. Write "
    "the likelihood as distributions that can be drawn from, such as a pm.CustomDist with logp= "
    "and random= in place of a pm.Potential: for an outcome y "
    "public=['CustomDist_y'] declares that random= holds no data. Or a larger epsilon clips less."
)

MISFIT = (
    "Outcomes {} are not distributed as the model says: they differ from outcomes that it draws by "
    "more than chance and noise explain. The rounds clip less for that, and intervals allow for "
    "what is still cut off, at the cost of noise and width. {} pymc_dp.ppc compares the model with "
    "the data."
)
OF_UNITS = (
    "With unit= the likely cause is that records of one unit are more alike than the model says: "
    "give each unit a latent of its own, indexed by the array that unit= names, which is "
    "integrated out (docs/units.md)."
)
# what draws outcomes, and what to do where they are of another shape; the first that a model has
SHAPES: tuple[tuple[type[RandomVariable], str], ...] = (
    (MultinomialRV, "Counts of categories that vary more are pm.DirichletMultinomial."),
    (BinomialRV, "Counts of successes that vary more are pm.BetaBinomial."),
    (PoissonRV, "Counts that vary more are pm.NegativeBinomial; more zeros are pm.Hurdle..."),
    (NegBinomialRV, "More zeros are pm.HurdleNegativeBinomial or pm.ZeroInflatedNegativeBinomial."),
)
OF_NUMBERS = (
    "Choose a likelihood of their shape, such as pm.StudentT (family='t' in a formula), pm.Gamma "
    "or pm.LogNormal; of censored outcomes, give limits that were known before the outcomes were."
)
OF_CATEGORIES = (
    "Of categories that is their dependence on predictors: look for one that is missing, for an "
    "interaction, or for an effect that is not a straight line on the scale of the link."
)


def doubts_of_rounds(records: Records, state: State, of_units: bool = False) -> tuple[Doubt, ...]:
    """List what is doubtful about the posterior of the last round."""
    curvature, long_steps = state.learnt.believed, _long_steps(records, state.learnt.latest_step)
    if curvature is None or state.noise_unit == 0:  # nothing is hidden, and nothing clipped
        return tuple(long_steps)
    clipped = [uncentred(records.term_names, BY_DRAWS)] if records.outcomes is None else []
    compared = [_misfit(records, of_units)] if state.is_misfit else []
    return (*clipped, *compared, *_hidden(records, state, curvature), *long_steps)


def _misfit(records: Records, of_units: bool) -> Doubt:
    """Say what outcomes of another shape than the model's may be, or may depend on."""
    stages = records.outcomes or ()
    graphs = [x for stage in stages for k, x in stage.drawn.items() if k in records.drawn]
    drawn = [v.owner_op for v in ancestors(graphs) if isinstance(v.owner_op, RandomVariable)]
    counts = [text for kind, text in SHAPES if any(isinstance(op, kind) for op in drawn)]
    categories = all(isinstance(op, type(STANDARD_UNIFORM)) for op in drawn)
    shape = OF_CATEGORIES if categories else (*counts, OF_NUMBERS)[0]
    names = tuple(name for name in records.term_names if name not in records.local_latents)
    advice = f"{OF_UNITS} Else: {shape}" if of_units else shape
    return Doubt(Kind.MISFIT, names, MISFIT.format(quoted(names), advice))


def doubts_of_chains(hyper: Hyperpriors, state: State) -> tuple[Doubt, ...]:
    """Say whether the chains moved that drew the latents which no record reads."""
    mixing = hyper.mixing.get(state.learnt.mode.mean.tobytes(), Mixing(0.0, ()))
    return (*_stuck(hyper, mixing.stuck), *_unmixed(mixing.unmixed))


def _unmixed(labels: tuple[str, ...]) -> list[Doubt]:
    if not labels:
        return []
    text = (
        f"The Markov chains that draw {quoted(labels)} stayed near the places where they began, so "
        "the posterior of these may be that of their start. That is so where some latents are all "
        "but fixed given others, and are not normal given them: a public number in place of one of "
        "these mends it."
    )
    return [Doubt(Kind.MIXING, labels, text)]


def _stuck(hyper: Hyperpriors, stuck: float) -> tuple[Doubt, ...]:
    if stuck <= STUCK:  # up to 7 percent are where all is well
        return ()
    unread = tuple(name for name in hyper.records.latents if name not in hyper.reduced.latents)
    text = (
        f"{stuck:.0%} of the Markov chains that draw {quoted(unread)} hardly moved, so the "
        "posterior of these, and of what has them in its prior, is not right. A prior that spans "
        "fewer orders of magnitude, such as pm.HalfNormal for a spread, may mend it, or a public "
        "number in place of one of them."
    )
    return (Doubt(Kind.MIXING, unread, text),)


def _read_by_records(records: Records) -> np.ndarray:
    """Which coordinates a term of the likelihood depends on, (d,): not those of hyper-priors."""
    reached = set(ancestors(records.batch.terms))
    sizes = [start.size for start in records.point.values()]
    return np.repeat([latent in reached for latent in records.latents.values()], sizes)


def hidden_directions(records: Records, state: State, curvature: Curvature) -> np.ndarray:
    """Return which directions noise hides, of those of which records tell something."""
    return _spectrum(records, state, curvature).hidden


def _spectrum(records: Records, state: State, curvature: Curvature) -> CurvatureSpectrum:
    """Decompose the curvature of the latents that records read."""
    read = _read_by_records(records)
    part, unseen = np.ix_(read, read), state.unseen[read]
    seen = null_space(unseen.T) if unseen.size else np.eye(len(unseen))
    estimate, noise = (seen.T @ x[part] @ seen for x in curvature)
    spectrum = Curvature(estimate, noise).spectrum()
    return spectrum._replace(vectors=seen @ spectrum.vectors)


def _hidden(records: Records, state: State, curvature: Curvature) -> list[Doubt]:
    """Name the latents of which more than half of the noise lies in hidden directions.

    Directions of which scores alone tell much, so that they are far from as wide as in the prior,
    are no reason for a warning.
    """
    spectrum = _spectrum(records, state, curvature)
    wide = _posterior_over_prior(records, state, spectrum) > MOST_OF_PRIOR
    hidden, parts = spectrum.hidden & wide, spectrum.vectors**2
    if not hidden.any():
        return []
    labels = np.array(records.labels)[_read_by_records(records)]
    mostly = labels[parts[:, hidden].sum(axis=1) > parts.sum(axis=1) / 2]
    names = f", most of all of {quoted(mostly)}" if mostly.size else ""
    text = (
        f"Noise hides what the records say in {hidden.sum()} of {hidden.size} directions of the "
        f"latents{names}. There the posterior rests on the prior, or on noise where its mean is "
        "far from that of the prior, and its width on a guess. A larger epsilon, more records, "
        "fewer latents or predictors scaled by public limits would show more, and priors from "
        "public knowledge say more."
    )
    return [Doubt(Kind.HIDDEN, tuple(map(str, mostly)), text), *_merged(records.mixtures)]


def _posterior_over_prior(
    records: Records, state: State, spectrum: CurvatureSpectrum
) -> np.ndarray:
    """Compare the posterior's sd with the prior's, in every direction of a spectrum."""
    read, L = _read_by_records(records), spectrum.vectors
    part = np.ix_(read, read)
    reported = state.learnt.reported
    posterior = (reported.covariance + reported.noise)[part]
    prior = np.linalg.inv(state.prior_at_start)[part]
    return np.asarray(((L * (posterior @ L)).sum(axis=0) / (L * (prior @ L)).sum(axis=0)) ** 0.5)


def _merged(mixtures: tuple[str, ...]) -> list[Doubt]:
    if not mixtures:
        return []
    text = (
        f"{quoted(mixtures)} is a mixture. Where something of it is hidden, components may have "
        "become one: then no location, spread or weight of theirs is right. Start them apart, by "
        "public numbers, or fix their spreads."
    )
    return [Doubt(Kind.MERGED, mixtures, text)]


def _long_steps(records: Records, latest: LatestStep) -> list[Doubt]:
    moving = np.flatnonzero(latest.unfinished)
    if not moving.size:
        return []
    names = tuple(records.labels[i] for i in moving)
    text = (
        f"The last step of {quoted(names)} was a long one, so the mode may not have been reached: "
        "more releases (n=) or a larger epsilon would tell."
    )
    return [Doubt(Kind.UNFINISHED, names, text)]
