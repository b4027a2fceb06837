"""Fit estimators of diffprivlib: ``python peers_script.py given.npz found.npz``.

Run by the Python of the peers' environment, which has neither PyMC nor this package.
"""

import json
import sys
import warnings

import numpy as np
from diffprivlib import models
from diffprivlib.utils import PrivacyLeakWarning

# an estimator that reads bounds from the data does not come back
warnings.simplefilter("error", PrivacyLeakWarning)


def predictions(X, y, X_held_out, estimator, **options):
    """Return predicted outcomes, or probabilities of a one; noise comes from the system."""
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    fitted = getattr(models, estimator)(**options).fit(X, y)
    if hasattr(fitted, "predict_proba"):
        return fitted.predict_proba(X_held_out)[:, 1]
    return fitted.predict(X_held_out)


def main(given, found):
    with np.load(given) as arrays:
        data = [arrays[name] for name in ("X", "y", "X_held_out")]
        settings = json.loads(str(arrays["settings"]))
    np.savez(found, predictions=[predictions(*data, **setting) for setting in settings])


if __name__ == "__main__":
    main(*sys.argv[1:])
