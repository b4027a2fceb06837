"""What is doubtful about a posterior, in sentences for the result, the report and a warning."""

from collections.abc import Iterable

# what to do about it, for methods that clip to a norm of the caller's
BY_ROUNDS = (
    "A larger clip_norm= clips less. method='dp_advi' centres contributions, where outcomes have "
    "distributions, in place of potentials, and a CustomDist a random= that public= names."
)
# more elements of one array than these are not named one by one
MOST_NAMED = 6


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
    """Join names for a sentence; of many elements of one array, tell how many they are.

    >>> quoted(["a", "b[1]"])
    '`a`, `b[1]`'
    >>> quoted(["a", *[f"b[{k}]" for k in range(12)]])
    '`a`, 12 elements of `b`'
    """
    arrays: dict[str, list[str]] = {}
    for name in names:
        arrays.setdefault(name.partition("[")[0], []).append(f"`{name}`")
    return ", ".join(
        ", ".join(own) if len(own) <= MOST_NAMED else f"{len(own)} elements of `{array}`"
        for array, own in arrays.items()
    )
