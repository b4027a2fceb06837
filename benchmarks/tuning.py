"""Does a private search among clip norms pay? Logistic regressions with features of two scales.

Prints held-out log predictive densities at epsilon 1: of the default fit, of every setting with the
whole budget (which nobody who has to search can have), and of the search.
"""

import warnings

import numpy as np
import pymc as pm
from scipy.special import expit, logsumexp

import pymc_dp

EFFECTS = np.array([1.5, -1.0, 0.7, 0.5, -0.3])
SETTINGS = [{"clip_norm": norm} for norm in (0.15, 0.5, 1.5, 5.0, 15.0)]
RECORDS, HELD_OUT, REPEATS = 4000, 20_000, 8


def generate(count, scale, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, len(EFFECTS)))
    return X * scale, (rng.random(count) < expit(X @ EFFECTS)).astype(int)


def build(X, y):
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1), pm.Normal("b", 0, 3, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=a + pm.Data("X", X) @ b, observed=y)
    return model


def held_out(idata, X, y):
    posterior = idata["posterior"]
    eta = posterior["a"].values[0][:, None] + posterior["b"].values[0] @ X.T
    density = -np.logaddexp(0, np.where(y == 1, -eta, eta))
    return (logsumexp(density, axis=0) - np.log(len(density))).mean()


def main():
    terms = {"epsilon": 1.0, "delta": 1e-5}
    for scale in (1.0, 10.0):
        X_new, y_new = generate(HELD_OUT, scale, 999)
        found: dict[str, list[float]] = {}
        for seed in range(REPEATS):
            model = build(*generate(RECORDS, scale, seed))
            fits = {"default": pymc_dp.fit(model=model, progressbar=False, **terms)}
            for setting in SETTINGS:
                fits[str(setting)] = pymc_dp.fit(model=model, progressbar=False, **terms, **setting)
            fits["tune"] = pymc_dp.tune(model, SETTINGS, **terms)
            for name, idata in fits.items():
                found.setdefault(name, []).append(held_out(idata, X_new, y_new))
        for name, values in found.items():
            error = np.std(values) / REPEATS**0.5
            print(f"features times {scale:g}, {name}: {np.mean(values):.3f} +- {error:.3f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
    main()
