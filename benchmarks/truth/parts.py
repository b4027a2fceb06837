"""What the errors of rounds are made of: the best single release, and the noise of each part.

The bound is the error of one release with the whole budget, at the right point, with exact
curvature and the clip norm of least error, of the same records. Then fits have the noise of one
part of their releases alone, and weigh them as if all had it: squares of such errors add up.
"""

import argparse
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from benchmarks.data import VARIABLE, add_data_dir
from benchmarks.truth.cell import prepare, private_fits, reference_fits
from benchmarks.truth.problem import Problem, data_set
from benchmarks.truth.problems import PROBLEMS
from benchmarks.truth.reference import quietly
from benchmarks.truth.summary import summarise
from pymc_dp.contributions.whitened import At, ends_of_parts, split
from pymc_dp.driver.run import run_releases
from pymc_dp.engine.method import SCORES
from pymc_dp.privacy.contribution import with_draws
from pymc_dp.privacy.randomness import SecretRandom

NORMS = 2.0 ** np.arange(-1.5, 4, 0.5)  # over sqrt(d)
# the parts of a round's vector by their places in it, and the release before the rounds
PLACES = {"scores": (0,), "slopes": (1, 4), "counts": (3,), "traces": (5,)}
EVERY, SCALES, NONE = "all", "scales", "none"
PARTS = (EVERY, *PLACES, SCALES, NONE)


def bound(problem: Problem, number: int, epsilon: float) -> float:
    """Return the error of the best single release, in sds of the posterior without privacy."""
    here = data_set(problem, number)
    noisy, _ = prepare(problem, here, "dp_advi", epsilon)
    unit = sum(r.count / r.noise_multiplier**2 for r in noisy.plan.releases) ** -0.5
    exact, compiled = prepare(problem, here, "dp_advi", math.inf)
    with quietly():
        states, _ = run_releases(exact, compiled, np.random.default_rng(0), range(exact.plan.total))
    state = states[-1].state
    batch = {n: np.asarray(here.data[n], spec.dtype) for n, spec in exact.data.spec.items()}
    contribution, d = compiled.contributions[SCORES], state.at.point.size
    squares = []
    for norm in NORMS:
        at = clipped_to(state.at, norm)
        drawn = with_draws(contribution, batch, at, np.random.default_rng(0))
        rows = contribution.prepare(drawn, at)
        ones = np.ones(len(contribution.norms(rows, at)))
        sums = split(contribution.weighted_sum(rows, at, ones), at)
        slope = sums.curvature / len(ones)
        noise = np.linalg.solve(slope, np.diag(unit * at.score_norm / at.scales().score))
        kept = np.trace(slope) / d
        lost = sums.variance / len(ones) / d / kept**2 - 1  # efficiency that clipping costs
        squares.append((noise**2).sum() / d / len(ones) + max(lost, 0.0))
    return float(min(squares) ** 0.5)


def clipped_to(at: At, norm: float) -> At:
    """Return coordinates with this clip norm for each part of scores, over the root of its size."""
    own, dispersion = at.is_dispersion, at.dispersion
    if dispersion is not None:
        dispersion = dispersion._replace(bound=norm * own.sum() ** 0.5)
    return at._replace(
        score_bound=norm * (~own).sum() ** 0.5,
        leverage_bound=1e9,
        dispersion=dispersion,
        direction=None,
        root=None,
        of_precision=False,
    )


@contextmanager
def noise_of(part: str, ends: np.ndarray) -> Iterator[None]:
    """Leave the noise of one part of releases, whose vectors in rounds end at these places."""
    draw = SecretRandom.rounded_gaussian

    def drawn(self: SecretRandom, sd: float, step: float, size: int) -> np.ndarray:
        noise = np.split(draw(self, sd, step, size), ends[:-1] if size == ends[-1] else [])
        kept = PLACES.get(part, ()) if len(noise) > 1 else [0] * (part == SCALES)
        each = [x if k in kept or part == EVERY else 0 * x for k, x in enumerate(noise)]
        return np.concatenate(each)

    with patch.object(SecretRandom, "rounded_gaussian", drawn):
        yield


def row(problem: Problem, epsilon: float, sets: list[int]) -> str:
    """Write one cell as a line."""
    references = {fit.set: fit for fit in reference_fits(problem, sets)}
    bounds = [bound(problem, number, epsilon) for number in sets[:3]]
    noisy, _ = prepare(problem, data_set(problem, sets[0]), "dp_advi", epsilon)
    at = noisy.method.trials(np.random.default_rng(0))[-1].state.at
    d = at.point.size
    ends = ends_of_parts(d, d if at.is_diagonal else 0, at.parts, at.products > 0)
    errors = []
    for part in PARTS:
        with noise_of(part, ends):
            fits = list(private_fits(problem, "dp_advi", epsilon, sets))
        found = summarise(fits, references)
        errors.append(np.median(found.coefficients.privacy) if found else np.nan)
    numbers = " | ".join(f"{x:.2f}" for x in (np.median(bounds), *errors))
    return f"| {problem.name} | {epsilon:g} | {numbers} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.parts", description=__doc__)
    parser.add_argument("--problem", nargs="+", required=True, choices=sorted(PROBLEMS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.3, 1.0])
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--first", type=int, default=500_000, help="number of the first data set")
    add_data_dir(parser)
    arguments = parser.parse_args()
    os.environ[VARIABLE] = str(arguments.data_dir)
    print(f"| problem | epsilon | bound | {' | '.join(PARTS)} |\n|{'---|' * (3 + len(PARTS))}")
    sets = list(range(arguments.first, arguments.first + arguments.sets))
    for name in arguments.problem:
        for epsilon in arguments.epsilon:
            print(row(PROBLEMS[name], epsilon, sets), flush=True)


if __name__ == "__main__":
    main()
