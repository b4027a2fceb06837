"""Plans as results keep them."""

import json

from pymc_dp.accounting.accountants import accountant_named
from pymc_dp.accounting.neighbours import Neighbours
from pymc_dp.accounting.plan import Plan
from pymc_dp.accounting.release import Release


def plan_from_json(text: str) -> Plan:
    """Rebuild a plan from what `Plan.to_json` wrote.

    >>> from pymc_dp.accounting.accountants import PLD
    >>> from pymc_dp.accounting.samplers import Full
    >>> release = Release("score", Full(), 1.0, noise_multiplier=3.0, count=2)
    >>> plan = Plan((release,), Neighbours.ZERO_OUT, 1e-5, PLD)
    >>> plan_from_json(plan.to_json()) == plan
    True
    """
    fields = json.loads(text)
    return Plan(
        tuple(map(Release.from_dict, fields["releases"])),
        Neighbours(fields["neighbours"]),
        fields["delta"],
        accountant_named(fields["accountant"]),
        fields["num_records"],
        fields["unit"],
    )
