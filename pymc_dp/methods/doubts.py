"""What is doubtful about a posterior, in sentences for the result, the report and a warning."""

from collections.abc import Iterable

# what to do about it, for methods that clip to a norm of the caller's
BY_ROUNDS = (
    "A larger clip_norm= clips less. method='dp_advi' centres contributions, where outcomes have "
    "distributions, in place of potentials, and a CustomDist its random=."
)


def uncentred(names: Iterable[str], way_out: str) -> str:
    """Say that clipping may bias a posterior, and what to do about it.

    >>> uncentred(["y"], BY_ROUNDS)[:52]
    'Contributions of `y` are clipped without being centr'
    """
    return (
        f"Contributions of {quoted(names)} are clipped without being centred: no draws of outcomes "
        "say what their clipped mean should be, so where they are skewed the posterior is biased. "
        f"{way_out}"
    )


def quoted(names: Iterable[str]) -> str:
    """Join names for a sentence.

    >>> quoted(["a", "b"])
    '`a`, `b`'
    """
    return ", ".join(f"`{name}`" for name in names)
