"""What a fit would cost, before it costs anything."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pymc as pm

from pymc_dp.accounting.plan import Plan, Release, ReleaseSpec, unit_label
from pymc_dp.driver.compile_method import compile_method
from pymc_dp.driver.result import rehearse_result
from pymc_dp.driver.setup import Setup, set_up
from pymc_dp.results.build import numerics
from pymc_dp.tables.public_table import PublicTable

# keywords of fit that do not change the plan
WHILE_RUNNING = {"random_seed", "draws", "progressbar", "callbacks", "ledger", "checkpoint"}


@dataclasses.dataclass(frozen=True)
class PlannedFit:
    """What a fit would cost, and how noisy it would be."""

    plan: Plan
    epsilon: float  # epsilon, delta: what the whole fit would cost
    delta: float
    # standard deviation of the noise on the estimated sum of all records' contributions (clip_norm
    # * noise_multiplier / sample_rate), in the first release
    noise_sd: float
    # the noise's norm over the largest norm that the sum of ``num_records`` clipped contributions
    # can have, of units with a ``unit``; nan if their number was not given. Near 1 and above, one
    # release is mostly noise.
    noise_to_signal: float
    # how many times all records are read; of records in chunks, every release reads all
    passes: float
    # "exact" if the proof holds for the arithmetic of the machine, "idealized" if for real numbers
    numerics: str
    # what the model takes on trust, line by line, where `metadata=` was given
    taken: tuple[str, ...] = ()

    def __str__(self) -> str:
        first, whom = self.plan.releases[0], unit_label(self.plan.unit)
        in_contributions = first.noise_multiplier and first.noise_multiplier / first.sampler.rate
        return (
            f"{self.plan.total} releases, {self.passes:.4g} passes over all records, "
            f"cost epsilon={self.epsilon:.4g} at delta={self.delta:g} "
            f"({self.plan.neighbours.value}, {self.plan.accountant.name}); noise multiplier "
            f"{first.noise_multiplier:.4g}, noise on the sum {self.noise_sd:.4g} "
            f"({in_contributions:.4g} times the most that one {whom} adds), "
            f"noise to largest signal {self.noise_to_signal:.2g}; {self.numerics} arithmetic."
        ) + "".join(f"\n    {line}" for line in self.taken)


def plan(
    model: pm.Model | None = None,
    n: int | None = None,
    method: str = "dp_advi",
    *,
    public: Iterable[str] = (),
    data: Mapping[str, Any] | None = None,
    public_start: Mapping[str, Any] | None = None,
    backend: str = "python",
    metadata: PublicTable | None = None,
    **settings: Any,
) -> PlannedFit:
    """Do a dry run: check a fit's inputs and say what it would cost, spending nothing.

    Parameters
    ----------
    model, n, method, public, data, public_start, backend, **settings
        As in `pymc_dp.fit`, but with the model first; keywords that do not change the plan may be
        given too. With ``num_records`` the text says how the noise compares with the signal.
    metadata : PublicTable, optional
        Of `read_csvw`: the text then says which numbers of the model the file declares.

    Returns
    -------
    PlannedFit
        Prints as sentences: releases, passes, epsilon, how noisy they are.

    Raises
    ------
    ValueError, TypeError
        Whatever the fit would raise before its first release.

    Notes
    -----
    **Privacy.** Reads no data beyond checking that the model can be fitted.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     y = pm.Bernoulli("y", p, observed=np.repeat([0, 1], [300, 700]))
    >>> dry = pymc_dp.plan(model, epsilon=1, delta=1e-5, num_records=1000)
    >>> dry.plan.total, round(dry.epsilon, 2)
    (14, 1.0)
    """
    settings = {key: value for key, value in settings.items() if key not in WHILE_RUNNING}
    setup = set_up(
        model, method, n, public=public, data=data, public_start=public_start, **settings
    )
    compiled = compile_method(setup, backend)
    rehearse_result(setup, draws=2)
    first = setup.plan.releases[0]
    # 0 without noise, also where the clip norm is infinite
    noise = first.noise_multiplier and first.noise_multiplier / first.sampler.rate
    largest = (setup.plan.num_records or float("nan")) / setup.method.size**0.5
    return PlannedFit(
        plan=setup.plan,
        epsilon=setup.plan.epsilon(),
        delta=setup.plan.delta,
        noise_sd=noise and noise * first.clip_norm,
        noise_to_signal=noise / largest,
        passes=passes(setup.plan.releases, in_chunks=setup.data.partitions > 1),
        numerics=numerics(compiled.is_exact),
        taken=_taken(setup, metadata),
    )


def passes(releases: Iterable[Release | ReleaseSpec], *, in_chunks: bool) -> float:
    """Add up the shares of all records that releases read; of chunks, each reads all."""
    return sum(release.count * (1.0 if in_chunks else release.sampler.rate) for release in releases)


def _taken(setup: Setup, metadata: PublicTable | None) -> tuple[str, ...]:
    """Say of every line of numbers whether the file declares them, or they are taken on trust."""
    if metadata is None:
        return ()
    trusted = setup.records.trusted
    declared = metadata.declared(trusted)
    how = {True: f"declared in {metadata.source}", False: "trusted"}
    return tuple(f"{line}: {how[str(line) in declared]}" for line in trusted)
