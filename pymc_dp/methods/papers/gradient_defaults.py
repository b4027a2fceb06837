"""Tuned constants of private variational inference by gradients."""

from typing import NamedTuple


class Defaults(NamedTuple):
    """Public numbers; none of them is fitted to data."""

    releases: int = 200
    learning_rate: float = 0.08
    last_rate: float = 0.1  # learning rates fall linearly to this share of their first values
    # share of the learning rate that the d^2 / 2 entries of a full-rank factor take: they share the
    # noise of d numbers, and would spread the draws of z if they followed it quickly
    factor_rate: float = 0.1
    start_sd: float = 0.1
    # weights of the average grow like t^4: half of it comes from the last eighth of the steps
    average_power: int = 4
    clip_step: float = 0.1  # change of log clip_norm a step, with adaptive_clip=


DEFAULTS = Defaults()
