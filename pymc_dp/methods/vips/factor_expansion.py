"""Parameter expansion: the scale and the location of Gaussian latents in one step, not in hundreds.

Where noise is small, latents' scales creep: loadings that are too small by half make latents too
large by as much, and every update undoes a sliver of it. The latents' released moments say by how
much; loadings and intercept take it over (Liu, Rubin and Wu 1998, Parameter expansion to
accelerate EM).
"""

import numpy as np

# releases after which loadings are expanded; later ones settle at the fixed point of plain updates
EXPANSIONS = 10
# how far one release may stretch a latent: early moments say little
LARGEST = 3.0


def expansion(moments: np.ndarray, prior_precision: np.ndarray, intercept: bool) -> np.ndarray:
    """Find the map from standard latents to those that are inferred, both with a one.

    Parameters
    ----------
    moments : (K + 1, K + 1)
        Average of z~ z~'.
    prior_precision : (K,)
    intercept : bool
        Whether there is an intercept to take over the latents' mean.

    Returns
    -------
    A : (K + 1, K + 1)
        z~ = A z~', where z' has the prior's moments: (W, c) A is as good for them as (W, c) for z.
    """
    centre = moments[:-1, -1] * intercept
    unit = np.sqrt(prior_precision)
    spread = unit[:, None] * (moments[:-1, :-1] - np.outer(centre, centre)) * unit
    values, vectors = np.linalg.eigh(spread)
    roots = np.clip(np.sqrt(np.maximum(values, 0.0)), 1 / LARGEST, LARGEST)
    found = np.eye(len(moments))
    found[:-1, :-1] = (vectors * roots) @ vectors.T / unit[:, None] * unit
    found[:-1, -1] = centre
    return found
