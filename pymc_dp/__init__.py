"""Differentially private Bayesian inference for PyMC.

Importing it teaches ``pm.fit`` the private methods.
"""

from importlib.metadata import version

from pymc_dp.accounting import calibrate, epsilon
from pymc_dp.allow_list import save
from pymc_dp.audit import audit
from pymc_dp.composition import Composition, compose
from pymc_dp.dry_run import plan
from pymc_dp.errors import NotSeparableError, PrivacyWarning, ReleaseError
from pymc_dp.explain import explain
from pymc_dp.fit import fit
from pymc_dp.hook import install as _install
from pymc_dp.ledger import Ledger
from pymc_dp.methods.sep.kl_bound import sep_kl_bound
from pymc_dp.noise import summary
from pymc_dp.plots import plot_noise, plot_privacy, plot_topics
from pymc_dp.predict import predict
from pymc_dp.reconstruct import reconstruct
from pymc_dp.report import privacy_report
from pymc_dp.topics import perplexity
from pymc_dp.tune import tune

__version__ = version("pymc-dp")

__all__ = [
    "Composition",
    "Ledger",
    "NotSeparableError",
    "PrivacyWarning",
    "ReleaseError",
    "audit",
    "calibrate",
    "compose",
    "epsilon",
    "explain",
    "fit",
    "perplexity",
    "plan",
    "plot_noise",
    "plot_privacy",
    "plot_topics",
    "predict",
    "privacy_report",
    "reconstruct",
    "save",
    "sep_kl_bound",
    "summary",
    "tune",
]

_install()
