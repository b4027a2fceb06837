"""The private methods as objects that ``pm.fit(method=...)`` runs by PyMC's own protocol.

``pm.fit`` calls ``method.fit(n, backend=..., include_transformed=..., **kwargs)`` of any
``Inference`` object and returns what it returns. Here that is the tree of `pymc_dp.fit`.
"""

from inspect import signature
from typing import Any, NoReturn

from pymc.variational.inference import Inference

# what PyMC hands over as n where its caller gave none
PYMC_STEPS = signature(Inference.fit).parameters["n"].default


def private_fit(**settings: Any) -> Any:
    """Call `pymc_dp.fit`."""
    from pymc_dp.driver.fit import fit  # when it is needed: it loads all methods

    return fit(**settings)


class PrivateInference(Inference):  # type: ignore[misc]  # PyMC's has no types
    """A method of `pymc_dp.fit` with its settings; each class below names one."""

    method: str

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def fit(
        self, n: int | None = None, *, include_transformed: bool = False, **settings: Any
    ) -> Any:
        """Run `pymc_dp.fit`, as ``pm.fit`` asks for it; PyMC's default ``n`` counts as none."""
        given = {} if n in (None, PYMC_STEPS) else {"n": n}
        if include_transformed:
            settings["include_transformed"] = True
        return self.run(**given, **{k: v for k, v in settings.items() if v is not None})

    def run(self, **settings: Any) -> Any:
        """Run `pymc_dp.fit` with the settings of this object and those of the call."""
        for name in self.settings.keys() & settings.keys():
            raise TypeError(
                f"{name}= is given to {type(self).__name__} and to pm.fit: give it once."
            )
        return private_fit(method=self.method, **self.settings, **settings)

    def __getattr__(self, name: str) -> NoReturn:
        """Say why what PyMC's own methods have, such as ``approx``, is not here."""
        raise AttributeError(
            f"{type(self).__name__} has no `{name}`: it holds the settings of pymc_dp.fit, which "
            "returns a tree of released numbers and can neither be refined nor profiled."
        )


class DPADVI(PrivateInference):
    """The method ``"dp_advi"`` for ``pm.fit(method=...)``.

    `DPFullRankADVI`, `VIPS` and `DPSEP` are the same for their methods.

    Parameters
    ----------
    **settings
        Those of `pymc_dp.fit`, ``model`` and ``random_seed`` included: PyMC keeps its own from
        objects.

    Raises
    ------
    TypeError
        When the fit is called: a setting is unknown, or is given here and to ``pm.fit``.

    Notes
    -----
    **Privacy.** As `pymc_dp.fit`, which runs. Making the object spends nothing; every fit with it
    spends anew.

    ``pm.fit`` hands over ``n=10000`` where it was given none. That number counts as none: for as
    many releases give ``n=10000`` here.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    ...     method = pymc_dp.DPADVI(epsilon=1, delta=1e-5)
    ...     idata = pm.fit(method=method, progressbar=False)
    >>> idata["privacy"].attrs["method"]
    'dp_advi'
    """

    method = "dp_advi"


class DPFullRankADVI(PrivateInference):
    """The method ``"dp_fullrank_advi"`` for ``pm.fit(method=...)``; see `DPADVI`."""

    method = "dp_fullrank_advi"


class VIPS(PrivateInference):
    """The method ``"vips"`` for ``pm.fit(method=...)``; see `DPADVI`."""

    method = "vips"


class DPSEP(PrivateInference):
    """The method ``"dp_sep"`` for ``pm.fit(method=...)``; see `DPADVI`."""

    method = "dp_sep"
