"""Settings of gradient methods that follow from public numbers alone."""


def default_clip_norm(size: int, draws: int = 1) -> float:
    """Return about the norm of ``draws`` scores whose features have unit scale.

    A clip norm below it biases; one above it only adds noise.
    """
    return min(max(1.0, 0.6 * size**0.5), 10.0) * draws**0.5


def default_sample_rate(sampling: str, num_records: int | None) -> float:
    """Large batches and few steps win at small epsilon; huge data need no tenth of them."""
    if sampling == "full":
        return 1.0
    return 0.1 if num_records is None else min(0.1, max(20_000 / num_records, 1e-4))
