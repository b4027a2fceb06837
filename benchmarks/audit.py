"""Attack every method, and every method with a planted fault: ``python -m benchmarks.audit``.

One line each. A claim that is contradicted without a fault, or a fault that is not caught, is
marked and makes the exit status 1.
"""

import sys
import warnings
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pymc as pm

import pymc_dp
from pymc_dp.privacy.noise import SecretRandom

ROWS = 60
X = np.random.default_rng(0).normal(size=(ROWS, 2))
YES = np.arange(ROWS) % 2
REAL = np.sin(np.arange(ROWS))


def logistic():
    b = pm.Normal("b", 0, 2, shape=2)
    pm.Bernoulli("y", logit_p=pm.Data("X", X) @ b, observed=YES)


def categories():
    pm.Categorical("y", pm.Dirichlet("p", np.full(4, 2.0)), observed=np.arange(ROWS) % 4)


def mixture():
    w, mu = pm.Dirichlet("w", [2.0, 3.0]), pm.Normal("mu", 0.5, 3.0, shape=2)
    pm.NormalMixture("y", w, mu, sigma=0.7, observed=REAL)


CASES = [
    ("dp_advi", logistic, {"sample_rate": 0.5, "noise_aware": False}),
    ("dp_fullrank_advi", logistic, {"sample_rate": 0.5, "noise_aware": False}),
    ("dp_sgld", logistic, {"sample_rate": 0.5}),
    ("vips", categories, {}),
    ("dp_sep", mixture, {}),
]


def quarter():
    gaussian = SecretRandom.rounded_gaussian
    quartered = lambda s, sd, *of: gaussian(s, sd / 4, *of)  # noqa: E731
    return mock.patch.object(SecretRandom, "rounded_gaussian", quartered)


@contextmanager
def unclipped():
    with (
        mock.patch("pymc_dp.privacy.clipping._clip_weights", lambda norms, _: np.ones_like(norms)),
        # the wall would refuse sums beyond their bound
        mock.patch("pymc_dp.privacy.wall.row_norms", lambda rows: np.zeros(len(rows))),
    ):
        yield


def reused():
    gaussian, kept = SecretRandom.rounded_gaussian, {}

    def again(source, sd, step, size):
        if kept.get("source") is not source:
            kept.clear()
            kept["source"] = source
        unit = kept.setdefault(size, gaussian(source, 1.0, 2.0**-28, size) * 2.0**-28)
        return np.rint(sd / step * unit).astype(np.int64)

    return mock.patch.object(SecretRandom, "rounded_gaussian", again)


# a contribution that is bounded by itself needs no clipping, and one that is the same at every
# step cannot show that noise is used twice
FAULTS = {
    "a quarter of the noise": (
        quarter,
        {method for method, *_ in CASES},
    ),
    "no clipping": (unclipped, {"dp_advi", "dp_fullrank_advi", "dp_sgld", "dp_sep"}),
    "noise used twice": (reused, {"dp_advi", "dp_fullrank_advi", "dp_sgld", "dp_sep"}),
}


def attack(method, build, settings):
    with pm.Model() as model:
        build()
    terms = {"epsilon": 4, "delta": 1e-5, "random_seed": 1, "progressbar": False}
    return pymc_dp.audit(model, method, **terms, **settings)


def main():
    warnings.simplefilter("ignore", pymc_dp.PrivacyWarning)
    wrong = 0
    for method, build, settings in CASES:
        wrong += say("no fault", attack(method, build, settings), expected=False)
        for fault, (plant, breaks) in FAULTS.items():
            if method in breaks:
                with plant():
                    wrong += say(fault, attack(method, build, settings), expected=True)
    sys.exit(wrong > 0)


def say(fault, found, expected):
    mark = "" if found.contradicted == expected else "UNEXPECTED. "
    print(f"{mark}{fault}: {found}", flush=True)
    return bool(mark)


if __name__ == "__main__":
    main()
