"""How often intervals of an average treatment effect hold it, in made-up data with confounding.

python -m benchmarks.effects 50
"""

import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm

import pymc_dp

RECORDS = 5000
TERMS = {"epsilon": 1.0, "delta": 1e-5, "backend": "python"}
BOUNDS: dict[str, tuple[float, float] | None] = {"logistic": None, "count": (0.0, 20.0)}
LATENTS = {"logistic": (-0.5, 0.6, 0.8, -0.5), "count": (0.5, 0.3, 0.4, -0.3)}


def draw(kind: str, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draw records whose treatment depends on two confounders; and the expected outcomes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(RECORDS, 2))
    treated = rng.random(RECORDS) < 1 / (1 + np.exp(-x[:, 0] + 0.5 * x[:, 1]))
    a, b, *slopes = LATENTS[kind]
    linear = a + b * np.array([[0.0], [1.0]]) + x @ slopes
    mean = np.exp(linear) if kind == "count" else 1 / (1 + np.exp(-linear))
    own = np.where(treated, mean[1], mean[0])
    y = rng.poisson(own) if kind == "count" else (rng.random(RECORDS) < own).astype(int)
    return {"treated": treated.astype(int), "x": x, "y": y}, mean


def model_of(kind: str, records: Mapping[str, np.ndarray]) -> pm.Model:
    """Build the model that the records were drawn from."""
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2)
        treated, x = pm.Data("treated", records["treated"]), pm.Data("x", records["x"])
        linear = a + b * treated + x @ pm.Normal("slopes", 0, 2, shape=2)
        if kind == "count":
            pm.Poisson("y", pm.math.exp(linear), observed=records["y"])
        else:
            pm.Bernoulli("y", logit_p=linear, observed=records["y"])
    return model


def one(kind: str, seed: int) -> dict[str, tuple[float, ...]]:
    """Return mean, sd, lower and upper end of the effect, and the true one, for each average."""
    records, mean = draw(kind, seed)
    model = model_of(kind, records)
    idata = pymc_dp.fit(model=model, progressbar=False, **TERMS)
    settings: Any = {"treated": [0, 1]}
    own = pymc_dp.effect(idata, model, settings, bounds=BOUNDS[kind], **TERMS)
    public, expected = draw(kind, 10_000)
    rows = {name: public[name][:500] for name in ("treated", "x")}
    over = pymc_dp.effect(idata, model, settings, over=rows)
    truths = mean[1] - mean[0], (expected[1] - expected[0])[:500]
    found: dict[str, tuple[float, ...]] = {}
    for name, result, truth in zip(("fitted", "public"), (own, over), truths, strict=True):
        found[name] = *result["effect"]["difference"].values[0], float(truth.mean())
    return found


def main(sets: int) -> None:
    warnings.simplefilter("ignore")
    for kind in BOUNDS:
        results = [one(kind, seed) for seed in range(sets)]
        for name in results[0]:
            mean, sd, lower, upper, truth = np.array([each[name] for each in results]).T
            z = (mean - truth) / sd
            covered = ((lower <= truth) & (truth <= upper)).mean()
            print(
                f"{kind:9} {name}: coverage {covered:.3f}, z {z.mean():+.2f} +- {z.std():.2f}, "
                f"sd {sd.mean():.4f}, {sets} sets",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
