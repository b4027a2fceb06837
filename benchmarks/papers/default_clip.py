"""Fits without noise that clip as those with noise do: they show the bias of clipping alone."""

from typing import Any

import pymc as pm

import pymc_dp


def default_clip_norm(model: pm.Model, **settings: Any) -> float:
    """Return the clip norm that a fit with noise takes by default; it depends on no budget."""
    planned = pymc_dp.plan(model=model, epsilon=1.0, delta=1e-5, **settings)
    return planned.plan.releases[-1].clip_norm  # a sketch may come first
