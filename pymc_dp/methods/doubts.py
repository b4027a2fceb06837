"""What is doubtful about a posterior, in sentences for the result, the report and a warning."""

from collections.abc import Iterable


def uncentred(names: Iterable[str]) -> str:
    """Say that clipping may bias a posterior.

    >>> uncentred(["y"])[:52]
    'Contributions of `y` are clipped without being centr'
    """
    return (
        f"Contributions of {quoted(names)} are clipped without being centred: no draws of outcomes "
        "say what their clipped mean should be, so where they are skewed the posterior is biased. "
        "A larger clip norm avoids it; so does method='dp_advi' where outcomes have "
        "distributions, in place of potentials, and a CustomDist its random=."
    )


def quoted(names: Iterable[str]) -> str:
    """Join names for a sentence.

    >>> quoted(["a", "b"])
    '`a`, `b`'
    """
    return ", ".join(f"`{name}`" for name in names)
