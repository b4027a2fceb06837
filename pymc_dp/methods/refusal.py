"""Why a model does not fit a kind of closed-form update."""


class NotConjugateError(Exception):
    """A kind of update does not fit; the text is a clause that says why, without a full stop."""
