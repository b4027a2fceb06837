"""Differentially private Bayesian inference for PyMC.

Importing it teaches ``pm.fit`` the private methods. Public names are those of ``__init__.pyi``;
each is loaded when it is first used (SPEC 1 of Scientific Python).
"""

from importlib.metadata import version

import lazy_loader

from pymc_dp.driver.doors import install as _install

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("pymc-dp")

_install()
