"""The public names, and where each is defined: what `pymc_dp` loads when it is first used."""

from .auditing.audit import audit as audit
from .checking.check import Check as Check
from .checking.check import Checks as Checks
from .checking.check import check as check
from .checking.private_checks import ppc as ppc
from .checking.private_checks import score as score
from .deployment_registry import privacy_report as privacy_report
from .driver.doors import DPADVI as DPADVI
from .driver.doors import DPSEP as DPSEP
from .driver.doors import VIPS as VIPS
from .driver.doors import DPFullRankADVI as DPFullRankADVI
from .driver.explain import calibrate as calibrate
from .driver.explain import epsilon as epsilon
from .driver.explain import explain as explain
from .driver.explain import plan as plan
from .driver.fit import fit as fit
from .errors import NotSeparableError as NotSeparableError
from .errors import PosteriorWarning as PosteriorWarning
from .errors import PrivacyWarning as PrivacyWarning
from .errors import ReleaseError as ReleaseError
from .ledger.ledger import Ledger as Ledger
from .papers.kl_bound import sep_kl_bound as sep_kl_bound
from .plots import plot_noise as plot_noise
from .plots import plot_ppc as plot_ppc
from .plots import plot_privacy as plot_privacy
from .postprocess.effect import effect as effect
from .postprocess.predict import predict as predict
from .postprocess.vips import perplexity as perplexity
from .postprocess.vips import reconstruct as reconstruct
from .results.report import load as load
from .results.report import save as save
from .results.report import summary as summary
from .results.tree import Composition as Composition
from .results.tree import compose as compose
from .synthetic.columns import Columns as Columns
from .synthetic.synthesize import pool as pool
from .synthetic.synthesize import synthesize as synthesize
from .tables.formula import censored_at as censored_at
from .tables.public_table import Column as Column
from .tables.public_table import PublicTable as PublicTable
from .tables.public_table import read_csvw as read_csvw
from .tables.weights import SurveyWeights as SurveyWeights
from .tuning.tune import tune as tune

__version__: str
