"""The public names, and where each is defined: what `pymc_dp` loads when it is first used."""

from .auditing.audit import audit
from .checking.check import Check, Checks, check
from .checking.ppc import ppc
from .checking.score import score
from .driver.calibration import calibrate, epsilon
from .driver.explain import explain
from .driver.fit import fit
from .driver.inference import DPADVI, DPSEP, VIPS, DPFullRankADVI
from .driver.plan import plan
from .errors import NotSeparableError, PosteriorWarning, PrivacyWarning, ReleaseError
from .filing.report import privacy_report
from .ledger.ledger import Ledger
from .methods.sep.sep import sep_kl_bound
from .plots.check import plot_check
from .plots.noise import plot_noise
from .plots.ppc import plot_ppc
from .plots.privacy import plot_privacy
from .plots.topics import plot_topics
from .postprocess.effect import effect
from .postprocess.predict import predict
from .postprocess.reconstruct import reconstruct
from .postprocess.topics import perplexity
from .results.composition import Composition, compose
from .results.saved import load, save
from .results.summary import summary
from .synthetic.column_types import Column
from .synthetic.columns import Columns
from .synthetic.pooling import pool
from .synthetic.synthesize import synthesize
from .tables.censoring import censored_at
from .tables.csvw import read_csvw
from .tables.public_table import PublicTable
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
    "plot_check",
    "plot_noise",
    "plot_ppc",
    "plot_privacy",
    "plot_topics",
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
