"""The public names, and where each is defined: what `pymc_dp` loads when it is first used."""

from .auditing.audit import audit
from .checking.check import Check, Checks, check
from .checking.release import ppc, score
from .driver.doors import DPADVI, DPSEP, VIPS, DPFullRankADVI
from .driver.explain import calibrate, epsilon, explain, plan
from .driver.fit import fit
from .errors import NotSeparableError, PosteriorWarning, PrivacyWarning, ReleaseError
from .filing import privacy_report
from .ledger.ledger import Ledger
from .papers.kl_bound import sep_kl_bound
from .plots import plot_noise, plot_ppc, plot_privacy
from .postprocess.effect import effect
from .postprocess.predict import predict
from .postprocess.reconstruct import reconstruct
from .postprocess.topics import perplexity
from .results.build import Composition, compose
from .results.report import load, save, summary
from .synthetic.columns import Columns
from .synthetic.synthesize import pool, synthesize
from .tables.formula import censored_at
from .tables.public_table import Column, PublicTable, read_csvw
from .tables.weights import SurveyWeights
from .tuning.tune import tune

__version__: str

__all__ = [
    "DPADVI",
    "DPSEP",
    "VIPS",
    "Check",
    "Checks",
    "Column",
    "Columns",
    "Composition",
    "DPFullRankADVI",
    "Ledger",
    "NotSeparableError",
    "PosteriorWarning",
    "PrivacyWarning",
    "PublicTable",
    "ReleaseError",
    "SurveyWeights",
    "audit",
    "calibrate",
    "censored_at",
    "check",
    "compose",
    "effect",
    "epsilon",
    "explain",
    "fit",
    "load",
    "perplexity",
    "plan",
    "plot_noise",
    "plot_ppc",
    "plot_privacy",
    "pool",
    "ppc",
    "predict",
    "privacy_report",
    "read_csvw",
    "reconstruct",
    "save",
    "score",
    "sep_kl_bound",
    "summary",
    "synthesize",
    "tune",
]
