"""What methods compute, in the words of the field, and where each algorithm is from.

The name of a method, as in ``method="vips"``, says what a caller asked for. Which algorithm ran
depends on the model and on the options too: a result, its report and `pymc_dp.explain` print it.
No algorithm names a paper for what is not the paper's.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pymc_dp.contributions.drawn_scores import has_one_predictor, is_yes_no
from pymc_dp.contributions.estimating import POLYA_GAMMA, SITES, Estimating
from pymc_dp.model import Records


class Algorithm(NamedTuple):
    """An algorithm, and its sources; prints as both.

    >>> print(SGLD)
    stochastic gradient Langevin dynamics (Wang et al. 2015)
    """

    name: str
    source: str  # "pymc_dp" where the algorithm was made here

    def __str__(self) -> str:
        return f"{self.name} ({self.source})"


def in_words(algorithms: Iterable[Algorithm]) -> str:
    """Join algorithms in the order in which they run.

    >>> in_words([Algorithm("steps", "1951"), Algorithm("rounds", "pymc_dp")])
    'steps (1951), then rounds (pymc_dp)'
    """
    return ", then ".join(map(str, algorithms))


NEWTON = Algorithm(
    "Newton steps on clipped, noisy scores, averaged over the posterior for one or two predictors",
    "pymc_dp, after Khan and Rue 2023; centred as in Künsch et al. 1989",
)
POLYA_GAMMA_NEWTON = Algorithm(
    "Newton steps on clipped, noisy expected scores with Pólya-Gamma variables",
    "pymc_dp, after Park et al. 2020; centred as in Künsch et al. 1989",
)
SITES_NEWTON = Algorithm(
    "Newton steps on clipped, noisy sites of stochastic expectation propagation",
    "pymc_dp, after Vinaroz and Park 2022 and Li et al. 2015; centred as in Künsch et al. 1989",
)
# dp_advi and dp_fullrank_advi
ADVI = Algorithm(
    "stochastic gradient ascent on the evidence lower bound with aligned gradients",
    "Jälkö et al. 2017, 2022",
)
PLAIN_ADVI = Algorithm(
    "stochastic gradient ascent on the evidence lower bound", "Jälkö et al. 2017"
)
# vips
VARIATIONAL_BAYES = Algorithm(
    "stochastic variational Bayes on noisy expected sufficient statistics", "Park et al. 2020"
)
VARIATIONAL_NEWTON = Algorithm(
    "Newton steps on noisy expected sufficient statistics of residuals",
    "pymc_dp, after Park et al. 2020",
)
FACTORS = Algorithm(
    "variational Bayes with parameter expansion on noisy expected sufficient statistics",
    "pymc_dp, after Park et al. 2020 and Liu et al. 1998",
)
TOPICS = Algorithm(
    "stochastic variational Bayes on noisy expected word counts, with shrinkage",
    "pymc_dp, after Park et al. 2020",
)
# dp_sep and sep
EXPECTATION_PROPAGATION = Algorithm(
    "stochastic expectation propagation on noisy averages of sites",
    "pymc_dp, after Vinaroz and Park 2022",
)
ALGORITHM_3 = Algorithm("stochastic expectation propagation, algorithm 3", "Vinaroz and Park 2022")
BACKPROPAGATION = Algorithm(
    "stochastic expectation propagation through a network",
    "pymc_dp, after Vinaroz and Park 2022 and Hernández-Lobato and Adams 2015",
)
NOT_PRIVATE_EP = Algorithm("stochastic expectation propagation", "Li et al. 2015")
# draws as releases
SGLD = Algorithm("stochastic gradient Langevin dynamics", "Wang et al. 2015")
POSTERIOR_SAMPLING = Algorithm(
    "posterior sampling with bounded log likelihoods, by a Markov chain", "Wang et al. 2015"
)


def of_rounds(records: Records, asked: Estimating | None) -> Algorithm:
    """Return the algorithm of rounds that make this of the scores of a model."""
    if asked == POLYA_GAMMA and is_yes_no(records):
        return POLYA_GAMMA_NEWTON
    return SITES_NEWTON if asked == SITES and has_one_predictor(records) else NEWTON
