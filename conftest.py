"""The package comes first, because pytest's import of one of its files hides the function in it.

``pymc_dp.tune`` is a module and, once the package is complete, the function of the same name.
"""

import pymc_dp  # noqa: F401
