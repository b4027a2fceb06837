"""The demo's data and model: who had an affair, asked of 6366 married women (Fair 1978)."""

from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy.special import expit
from statsmodels.datasets import fair

# The answers that the questionnaire offers. They are public, and so is a scaling by them; a scaling
# by the mean and standard deviation of the answers that were given would not be.
RANGES = {
    "marriage rating": ("rate_marriage", 1, 5),
    "age": ("age", 17.5, 42),
    "years married": ("yrs_married", 0.5, 23),
    "children": ("children", 0, 5.5),
    "religiousness": ("religious", 1, 4),
    "education": ("educ", 9, 20),
}
OCCUPATIONS = (
    "student",
    "farm or factory",
    "office",
    "teacher, nurse, technician",
    "manager",
    "professional",
)
TRAINING_SHARE = 0.8


class Survey(NamedTuple):
    """Rows of the survey: answers in [-1, 1], the occupation's number, and the outcome."""

    answers: np.ndarray
    occupation: np.ndarray
    affair: np.ndarray


def load() -> tuple[Survey, Survey]:
    """Read the survey and split it into training and held-out rows, always the same ones."""
    table = fair.load_pandas().data
    columns, low, high = zip(*RANGES.values(), strict=True)
    low, high = np.array(low), np.array(high)
    survey = Survey(
        answers=(2 * table[list(columns)].to_numpy() - low - high) / (high - low),
        occupation=table["occupation"].to_numpy().astype(int) - 1,
        affair=(table["affairs"].to_numpy() > 0).astype(int),
    )
    rows = np.random.default_rng(0).permutation(len(table))
    training, held_out = np.split(rows, [round(TRAINING_SHARE * len(rows))])
    return take(survey, training), take(survey, held_out)


def take(survey: Survey, rows: np.ndarray) -> Survey:
    """Pick some rows."""
    return Survey(*[column[rows] for column in survey])


def build_model(survey: Survey) -> pm.Model:
    """Logistic regression on six answers, with an effect of the occupation around a common mean."""
    with pm.Model() as model:
        describe(survey)
    return model


def describe(survey: Survey) -> None:
    """Add the variables of the regression to the model of the context."""
    pm.modelcontext(None).add_coords({"answer": list(RANGES), "occupation": OCCUPATIONS})
    answers = pm.Data("answers", survey.answers)
    job = pm.Data("job", survey.occupation)
    intercept = pm.Normal("intercept", 0, 2)
    effect = pm.Normal("effect", 0, 2, dims="answer")
    occupation_effect = pm.ZeroSumNormal("occupation_effect", 1, dims="occupation")
    logit_p = intercept + answers @ effect + occupation_effect[job]
    pm.Bernoulli("affair", logit_p=logit_p, observed=survey.affair)


def score(idata, survey: Survey) -> dict[str, float]:
    """Accuracy and mean log likelihood of a posterior's mean predictions."""
    posterior = idata["posterior"].to_dataset().isel(chain=0)
    logit_p = (
        posterior["intercept"].to_numpy()[:, None]
        + posterior["effect"].to_numpy() @ survey.answers.T
        + posterior["occupation_effect"].to_numpy()[:, survey.occupation]
    )
    p = expit(logit_p).mean(axis=0)
    likelihood = np.where(survey.affair == 1, p, 1 - p)
    return {
        "accuracy": float(np.mean(likelihood > 0.5)),
        "mean log likelihood": float(np.mean(np.log(likelihood))),
    }
