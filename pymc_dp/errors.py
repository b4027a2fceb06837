"""The package's own errors and warnings; all else that is wrong with a call has Python's own."""


class NotSeparableError(ValueError):
    """The model's log likelihood cannot be proved to be one term per record."""


class PrivacyWarning(UserWarning):
    """A guarantee holds, but it is weaker or looser than the caller may expect."""


class PosteriorWarning(UserWarning):
    """A posterior may be biased, or its width rests on a guess; the guarantee is not affected."""


class ReleaseError(RuntimeError):
    """A release could not be computed; its budget is spent and nothing of it is handed out."""


class UnreadableError(ReleaseError):
    """Records could not be read, whichever were drawn: with a checkpoint it is tried again."""


class UnbookedError(ReleaseError):
    """A release could not be booked, or written to a checkpoint: nothing of it is handed out."""
