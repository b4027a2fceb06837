"""What is paid for is not lost to a warning that is an error, nor to a numpy setting."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np


@contextmanager
def undisturbed() -> Iterator[None]:
    """Compute as numpy does without errors, and show warnings that the caller has made errors.

    >>> with np.errstate(all="raise"), undisturbed():
    ...     float(np.float64(1) / 0)
    inf
    """
    with np.errstate(all="ignore"), ExitStack() as ends:
        # elsewhere filters stay as they are: they are those of all threads
        if any(action == "error" for action, *_ in warnings.filters):
            ends.enter_context(warnings.catch_warnings())
            _show_errors()
        yield


def _show_errors() -> None:
    """Show each warning once for every place in the code, where filters make it an error."""
    filters: Any = reversed(tuple(warnings.filters))
    for action, message, category, module, line in filters:
        about, within = (getattr(text, "pattern", text) or "" for text in (message, module))
        shown: Any = "default" if action == "error" else action
        warnings.filterwarnings(shown, about, category, within, line)
