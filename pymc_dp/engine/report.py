"""What rounds say of their own posterior: moments, and doubts, from released numbers alone."""

import numpy as np
import xarray as xr
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BinomialRV, MultinomialRV, NegBinomialRV, PoissonRV
from pytensor.tensor.random.op import RandomVariable

from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.engine.curvature import congruent, dense, inner, inverse, outer, positive, times
from pymc_dp.engine.posterior import Mixing, PriorAsWritten
from pymc_dp.engine.rounds import Known, Likelihood, State, covariance, white
from pymc_dp.engine.sampler import STUCK
from pymc_dp.methods.method import Doubt, Kind, quoted, uncentred
from pymc_dp.methods.normal import describe_gaussian
from pymc_dp.model import Records
from pymc_dp.model.batch import STANDARD_UNIFORM

# over so many of the last rounds a curvature is compared, and the least eigenvalue of one, in units
# of its latents, that is inverted
ROUNDS_OF_FALL, LEAST_SHARE = 3, 1e-9

BY_DRAWS = (
    "Norms that keep the bias small cost noise, and intervals allow for all that is cut off. Write "
    "the likelihood as distributions that can be drawn from, such as a pm.CustomDist with logp= "
    "and random= in place of a pm.Potential: for an outcome y "
    "public=['CustomDist_y'] declares that random= holds no data. Or a larger epsilon clips less."
)

MISFIT = (
    "Outcomes {} are not distributed as the model says: they differ from outcomes that it draws by "
    "more than chance and noise explain. Intervals allow for what is cut off, and are wider. "
    "{} pymc_dp.ppc compares the model with the data."
)
OF_UNITS = (
    "With unit= the likely cause is that records of one unit are more alike than the model says: "
    "give each unit a latent, indexed by the array that unit= names (docs/units.md)."
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


def describe(
    records: Records, known: Known, state: State, both: tuple[Likelihood, Likelihood]
) -> xr.Dataset:
    """Return the moments of the posterior beside the rounds' normal prior, and what noise adds."""
    noisy, without = both
    wide, narrow = covariance(known, noisy), covariance(known, without)
    described = describe_gaussian(noisy.mean.reshape(-1), narrow, records.labels)
    noise = wide - narrow if state.report.noise_unit else np.zeros_like(wide)
    described = described.assign(noise_covariance=(("rows", "columns"), noise))
    if not state.scored or state.report.noise_unit == 0:
        return described
    hidden, *_ = _directions(known, state)
    return described.assign(
        hidden_directions=int(hidden.sum()),
        directions=hidden.size,
        variance_share=state.report.excess * state.report.kept**2,
        misfit=state.report.misfit,
    )


def doubts_of_rounds(
    records: Records, known: Known, state: State, noisy: Likelihood, of_units: bool
) -> tuple[Doubt, ...]:
    """List what is doubtful about the posterior of the last round."""
    if not state.scored:
        return (_unsettled(records.labels),) if state.t > 1 else ()
    unsettled = _long_steps(records, known, state, noisy)
    if state.report.noise_unit == 0:  # nothing is hidden, and nothing clipped
        return unsettled
    clipped = (uncentred(records.term_names, BY_DRAWS),) if records.outcomes is None else ()
    compared = (_misfit(records, of_units),) if state.report.misfit > 1 else ()
    hidden = _hidden(records, known, state, noisy) or _falling(records, state)
    return (*clipped, *compared, *hidden, *unsettled)


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


def doubts_of_chains(prior: PriorAsWritten, noisy: Likelihood) -> tuple[Doubt, ...]:
    """Say whether the chains moved that drew the posterior."""
    mixing, doubts = prior.mixing.get(noisy.c.tobytes(), Mixing()), list[Doubt]()
    if mixing.stuck > STUCK:  # up to 7 percent are where all is well
        every = tuple(prior.records.latents)
        unread = tuple(name for name in every if name not in prior.reduced.latents) or every
        text = (
            f"{mixing.stuck:.0%} of the Markov chains that draw {quoted(unread)} hardly moved: "
            "these, and what has them in its prior, are not right. A prior of fewer orders of "
            "magnitude, such as pm.HalfNormal for a spread, or a public number may mend it."
        )
        doubts.append(Doubt(Kind.MIXING, unread, text))
    if mixing.unmixed:
        text = (
            f"The Markov chains that draw {quoted(mixing.unmixed)} stayed near the places where "
            "they began, since some latents are all but fixed given others, and are not normal "
            "given them: a public number in place of one of these mends it."
        )
        doubts.append(Doubt(Kind.MIXING, mixing.unmixed, text))
    return tuple(doubts)


def _directions(known: Known, state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which white directions noise hides of those in which records may tell something, (m,).

    Return also each of them in latents, (d, m), and what measures latents along it, (d, m).
    """
    W = white(state.at)
    values, vectors = np.linalg.eigh(congruent(W, state.curvature) / state.number)
    axes, measures = dense(W.swapaxes(-1, -2) @ vectors), dense(np.linalg.inv(W) @ vectors)
    informed = np.ones(values.size, bool)
    if known.null_space.size and len(W) == 1:
        null = np.linalg.qr(np.linalg.solve(W[0].T, known.null_space))[0]
        informed = ((null.T @ vectors[0]) ** 2).sum(axis=0) < 0.5
    hidden = values.reshape(-1) <= state.report.edge
    return hidden[informed], axes[:, informed], measures[:, informed]


def _hidden(records: Records, known: Known, state: State, noisy: Likelihood) -> list[Doubt]:
    """Name the latents of which more than half lies in hidden directions, as wide as in a prior."""
    hidden, axes, measures = _directions(known, state)
    posterior = covariance(known, noisy)
    prior = dense(inverse(known.prior_precision))
    sds = [np.einsum("dm,de,em->m", measures, K, measures) ** 0.5 for K in (posterior, prior)]
    wide = sds[0] > CONSTANTS.most_of_prior * sds[1]
    if state.report.edge <= CONSTANTS.hidden:
        hidden = hidden & wide
    if not hidden.any():
        return []
    squares, labels = axes**2, np.array(records.labels)
    mostly = labels[squares[:, hidden].sum(axis=1) > squares.sum(axis=1) / 2]
    names = f", most of all of {quoted(mostly)}" if mostly.size else ""
    text = (
        f"Noise hides what the records say in {hidden.sum()} of {hidden.size} directions of the "
        f"latents{names}. There the posterior rests on the prior, or on noise where its mean is "
        "far from that of the prior, and its width on a guess. A larger epsilon, more records, "
        "fewer latents or predictors scaled by public limits would show more, and priors from "
        "public knowledge say more."
    )
    return [Doubt(Kind.HIDDEN, tuple(map(str, mostly)), text), *_merged(records.mixtures)]


def _falling(records: Records, state: State) -> list[Doubt]:
    """Name latents of a direction whose curvature still fell in the last rounds: a ridge."""
    if len(state.scored) <= ROUNDS_OF_FALL:
        return []
    before, last = state.scored[-1 - ROUNDS_OF_FALL].curvature, state.scored[-1].curvature
    unit = np.sqrt(np.einsum("bii->bi", before))
    root = np.linalg.inv(np.linalg.cholesky(positive(before / outer(unit, unit), LEAST_SHARE)))
    values, vectors = np.linalg.eigh(congruent(root, last / outer(unit, unit)))
    falling = values.reshape(-1) < CONSTANTS.settled
    if not falling.any():
        return []
    parts = np.abs(dense(root.swapaxes(-1, -2) @ vectors))[:, falling].max(axis=1)
    names = tuple(records.labels[i] for i in np.flatnonzero(parts > parts.max() / 2))
    text = (
        f"What records say of {quoted(names)} together was still falling in the last rounds, so "
        "that the posterior may be too narrow along their combination, and far from the mode. Do "
        "predictors nearly repeat each other, or lie far from 0 for their spread? Leave one out, "
        "centre them by public numbers, give priors from public knowledge, or a larger epsilon."
    )
    return [Doubt(Kind.HIDDEN, names, text)]


def _merged(mixtures: tuple[str, ...]) -> list[Doubt]:
    if not mixtures:
        return []
    text = (
        f"{quoted(mixtures)} is a mixture. Where something of it is hidden, components may have "
        "become one, and none of theirs is right: start them apart, or fix their spreads."
    )
    return [Doubt(Kind.MERGED, mixtures, text)]


def _long_steps(
    records: Records, known: Known, state: State, noisy: Likelihood
) -> tuple[Doubt, ...]:
    step, precision = state.report.step, noisy.A + known.prior_precision
    far = inner(step, times(precision, step)) / step.size > 1
    if state.report.length <= CONSTANTS.near and not far:
        return ()
    of_sds = np.abs(step.reshape(-1)) / np.sqrt(np.diag(dense(inverse(precision))))
    moving = of_sds >= min(1.0, of_sds.max())
    return (_unsettled([records.labels[i] for i in np.flatnonzero(moving)]),)


def _unsettled(labels: list[str]) -> Doubt:
    text = (
        f"The last step of {quoted(labels)} was a long one, so the mode may not have been reached: "
        "more releases (n=) or a larger epsilon would tell."
    )
    return Doubt(Kind.UNFINISHED, tuple(labels), text)
