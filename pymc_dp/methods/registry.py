"""The methods of `pymc_dp.fit`, by name."""

from pymc_dp.methods.advi.advi import DP_ADVI, DP_FULLRANK_ADVI
from pymc_dp.methods.model_class import MethodSpec
from pymc_dp.methods.sampling.ops import DP_OPS
from pymc_dp.methods.sampling.sgld import DP_SGLD
from pymc_dp.methods.sep.sep import DP_SEP, SEP
from pymc_dp.methods.vips.vips import VIPS

METHODS: dict[str, MethodSpec] = {
    spec.name: spec for spec in (DP_ADVI, DP_FULLRANK_ADVI, VIPS, DP_SEP, SEP, DP_SGLD, DP_OPS)
}


def method_named(name: str) -> MethodSpec:
    """Return the method of a name, in any case of letters."""
    found = METHODS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"method={name!r} is unknown: use one of {sorted(METHODS)}.")
    return found
