"""A small model of each of PyMC's distributions, and the page that says which methods take it.

``python -m tests.distributions`` writes the table of docs/distributions.md anew.
"""

from pathlib import Path

import numpy as np
import pymc as pm

import pymc_dp
from pymc_dp.model import separate
from tests.zoo import build

PAGE = Path(__file__).parents[1] / "docs/distributions.md"
START, END = "<!-- table: begin -->\n", "<!-- table: end -->"
N = 60
rng = np.random.default_rng(3)
X = rng.uniform(-1, 1, (N, 2))
REAL, POSITIVE, SHARE = rng.normal(size=N), rng.gamma(2, size=N) + 0.1, rng.uniform(0.05, 0.95, N)
COUNT, CATEGORY, YES = rng.poisson(2, N), rng.integers(0, 3, N), rng.integers(0, 2, N)
PAIRS, FEW = rng.normal(size=(N, 2)), np.minimum(COUNT, 9)
SIMPLEX, COUNTS = rng.dirichlet(np.ones(3), N), rng.multinomial(6, [0.2, 0.3, 0.5], N)
ZERO_OR_POSITIVE, SUCCESSES = np.where(YES, POSITIVE, 0.0), {"n": 9, "observed": FEW}


def eta():
    return pm.Data("x", X) @ pm.Normal("b", 0, 1, shape=2)


def rate():
    return pm.math.exp(eta())


def probability():
    return pm.math.invlogit(eta())


def scale():
    return pm.HalfNormal("s")


def size():
    return pm.Gamma("k", 2, 1)


def zero():
    return pm.Beta("psi", 1, 1)


def weights():
    return pm.Dirichlet("w", np.ones(2))


def centres():
    return pm.Normal("m", 0, 3, shape=2)


def cuts():
    ordered = pm.distributions.transforms.ordered
    return pm.Normal(
        "cuts", [-0.5, 0.5], 1, shape=2, transform=ordered, initval=np.array([-0.5, 0.5])
    )


def cholesky():
    sd = pm.Exponential.dist(1.0, shape=2)
    return pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sd)[0]


def given(outcome, *args, **parameters):
    """Observe a distribution of these parameters, each made in the model's context."""
    observed = parameters.pop("observed")

    def describe():
        made = [x() if callable(x) else x for x in args]
        named = {k: x() if callable(x) else x for k, x in parameters.items()}
        outcome("y", *made, **named, observed=observed)

    return describe


def shares():
    return pm.Dirichlet("p", np.ones(3))


def sizes():
    return pm.Gamma("a", 2, 1, shape=3)


def kinds():
    return pm.Poisson.dist(pm.Gamma("rates", 2, 1, shape=2))


def normal():
    return pm.Normal.dist(eta(), scale())


# by the sections of PyMC's own list
MODELS = {
    "Normal": given(pm.Normal, eta, tau=size, observed=REAL),
    "StudentT": given(pm.StudentT, nu=4, mu=eta, sigma=scale, observed=REAL),
    "Cauchy": given(pm.Cauchy, eta, scale, observed=REAL),
    "Laplace": given(pm.Laplace, eta, scale, observed=REAL),
    "AsymmetricLaplace": given(pm.AsymmetricLaplace, kappa=1.0, mu=eta, b=scale, observed=REAL),
    "Logistic": given(pm.Logistic, eta, scale, observed=REAL),
    "Gumbel": given(pm.Gumbel, eta, scale, observed=REAL),
    "Moyal": given(pm.Moyal, eta, scale, observed=REAL),
    "SkewNormal": given(pm.SkewNormal, mu=eta, sigma=scale, alpha=size, observed=REAL),
    "SkewStudentT": given(pm.SkewStudentT, a=2.0, b=2.0, mu=eta, sigma=scale, observed=REAL),
    "ExGaussian": given(pm.ExGaussian, mu=eta, sigma=scale, nu=size, observed=REAL),
    "VonMises": given(pm.VonMises, eta, size, observed=REAL),
    "TruncatedNormal": given(pm.TruncatedNormal, eta, scale, lower=0.0, observed=POSITIVE),
    "HalfNormal": given(pm.HalfNormal, rate, observed=POSITIVE),
    "HalfCauchy": given(pm.HalfCauchy, rate, observed=POSITIVE),
    "HalfStudentT": given(pm.HalfStudentT, nu=4, sigma=rate, observed=POSITIVE),
    "Exponential": given(pm.Exponential, rate, observed=POSITIVE),
    "Gamma": given(pm.Gamma, size, rate, observed=POSITIVE),
    "InverseGamma": given(pm.InverseGamma, size, rate, observed=POSITIVE),
    "ChiSquared": given(pm.ChiSquared, rate, observed=POSITIVE),
    "Weibull": given(pm.Weibull, size, rate, observed=POSITIVE),
    "LogNormal": given(pm.LogNormal, eta, scale, observed=POSITIVE),
    "Wald": given(pm.Wald, mu=rate, lam=size, observed=POSITIVE),
    "Pareto": given(pm.Pareto, rate, m=0.05, observed=POSITIVE),
    "Rice": given(pm.Rice, nu=rate, sigma=scale, observed=POSITIVE),
    "Beta": given(pm.Beta, mu=probability, nu=size, observed=SHARE),
    "Kumaraswamy": given(pm.Kumaraswamy, rate, size, observed=SHARE),
    "Triangular": given(pm.Triangular, lower=0.0, c=probability, upper=1.0, observed=SHARE),
    "LogitNormal": given(pm.LogitNormal, eta, scale, observed=SHARE),
    "PolyaGamma": given(pm.PolyaGamma, 1.0, eta, observed=POSITIVE / 9),
    "Bernoulli": given(pm.Bernoulli, logit_p=eta, observed=YES),
    "Binomial": given(pm.Binomial, p=probability, **SUCCESSES),
    "BetaBinomial": given(pm.BetaBinomial, alpha=size, beta=rate, **SUCCESSES),
    "Poisson": given(pm.Poisson, rate, observed=COUNT),
    "NegativeBinomial": given(pm.NegativeBinomial, mu=rate, alpha=size, observed=COUNT),
    "Geometric": given(pm.Geometric, probability, observed=COUNT + 1),
    "DiscreteWeibull": given(pm.DiscreteWeibull, probability, size, observed=COUNT),
    "Categorical": given(pm.Categorical, shares, observed=CATEGORY),
    "OrderedLogistic": given(pm.OrderedLogistic, eta=eta, cutpoints=cuts, observed=CATEGORY),
    "OrderedProbit": given(pm.OrderedProbit, eta=eta, cutpoints=cuts, observed=CATEGORY),
    "ZeroInflatedPoisson": given(pm.ZeroInflatedPoisson, zero, rate, observed=COUNT),
    "ZeroInflatedBinomial": given(pm.ZeroInflatedBinomial, zero, p=probability, **SUCCESSES),
    "ZeroInflatedNegativeBinomial": given(
        pm.ZeroInflatedNegativeBinomial, zero, rate, size, observed=COUNT
    ),
    "HurdlePoisson": given(pm.HurdlePoisson, zero, rate, observed=COUNT),
    "HurdleNegativeBinomial": given(pm.HurdleNegativeBinomial, zero, rate, size, observed=COUNT),
    "HurdleGamma": given(pm.HurdleGamma, zero, size, rate, observed=ZERO_OR_POSITIVE),
    "HurdleLogNormal": given(pm.HurdleLogNormal, zero, eta, scale, observed=ZERO_OR_POSITIVE),
    "Censored": given(pm.Censored, normal, lower=-1, upper=1, observed=np.clip(REAL, -1, 1)),
    "Truncated": given(pm.Truncated, normal, lower=0.0, observed=POSITIVE),
    "NormalMixture": given(pm.NormalMixture, weights, centres, sigma=1.0, observed=REAL),
    "Mixture": given(pm.Mixture, weights, kinds, observed=COUNT),
    "MvNormal": given(pm.MvNormal, centres, chol=cholesky, observed=PAIRS),
    "MvStudentT": given(pm.MvStudentT, nu=4, mu=centres, scale=np.eye(2), observed=PAIRS),
    "Dirichlet": given(pm.Dirichlet, sizes, observed=SIMPLEX),
    "Multinomial": given(pm.Multinomial, 6, shares, observed=COUNTS),
    "DirichletMultinomial": given(pm.DirichletMultinomial, 6, sizes, observed=COUNTS),
}


def methods_of(name):
    """Say how each method takes a distribution, by explain alone."""
    try:
        model = build(MODELS[name])
        found = pymc_dp.explain(model)
    except pymc_dp.NotSeparableError:
        return ("no", "no", "no")
    drawn = "yes, centred" if separate(model)[0].outcomes else "yes"
    return (drawn, *("yes" if found.methods[m].ok else "no" for m in ("vips", "dp_sep")))


def row(name):
    return f"| `{name}` | {' | '.join(methods_of(name))} |"


def table():
    head = ["| outcome | `dp_advi` | `vips` | `dp_sep` |", "|---|---|---|---|"]
    return "\n".join([*head, *map(row, MODELS)]) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(START)[0], text.split(END)[1]
    PAGE.write_text(before + START + table() + END + after, encoding="utf-8")
