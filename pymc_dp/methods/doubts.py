"""What is doubtful about a posterior, in sentences for the result, the report and a warning."""

from collections.abc import Iterable


def uncentred(names: Iterable[str]) -> str:
    """Say that clipping may bias a posterior.

    >>> uncentred(["y"])[:52]
    'Scores of `y` are clipped without being centred: no '
    """
    terms = ", ".join(f"`{name}`" for name in names)
    return (
        f"Scores of {terms} are clipped without being centred: no draws of outcomes say what their "
        "clipped mean should be, so where scores are skewed the posterior is biased. A larger "
        "clip norm, or a distribution in place of a potential, avoids it."
    )
