"""A model of bambi on the rows of another data frame, with the levels that it was made with."""

import warnings
from copy import copy
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm

from pymc_dp.errors import PrivacyWarning
from pymc_dp.tables.formula import columns_read, pymc_model


def on_rows(model: Any, data: Any, unit: str | None) -> tuple[pm.Model, pd.DataFrame]:
    """Build the PyMC model of a formula on new rows, and return it with these rows.

    What the rows hold of the outcome is not read. ``unit`` is the factor whose levels may be new:
    it said which person a record belonged to. The first row comes again at the end, since arrays
    of one row look like arrays that all records share.
    """
    _check(model, data, unit)
    frame = pd.concat([data, data.head(1)], ignore_index=True)
    made = copy(model)
    made._components = {name: _part(x, frame, unit) for name, x in model.parameters.items()}
    made._response_component = copy(model._response_component)
    made._response_component.term = _outcome(model.response_term, frame)
    made.build()
    return pymc_model(made), frame


def _check(model: Any, frame: Any, unit: str | None) -> None:
    """Refuse rows that lack a predictor, or a value of one; warn where they may be the fitted."""
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"data= is a {type(frame).__name__}, and a formula reads the columns of a pandas "
            "DataFrame: give one with a row for each new record."
        )
    parts = (part for part in model.parameters.values() if hasattr(part, "common_terms"))
    if model.center_predictors and any(x.intercept_term and x.common_terms for x in parts):
        raise ValueError(
            "bambi centres the predictors of this model anew on the rows that it is given, so that "
            "one with the same value in all rows would have no effect: make and fit the model with "
            "center_predictors=False."
        )
    response = model.response_term
    if response.is_truncated or response.is_constrained:
        raise ValueError(
            "The outcome of this formula is truncated() or constrained(), and bambi would take the "
            "limits of the fitted records for those of the new rows: predict with a model of PyMC, "
            "whose limits are data or public numbers."
        )
    if frame.empty:
        raise ValueError("data= has no rows: give one for each new record.")
    for name in sorted(columns_read(model) - {unit}):
        if name not in frame:
            raise ValueError(f"data= lacks the column `{name}`, which the formula reads.")
        if frame[name].isna().any():
            raise ValueError(
                f"data= has missing values in the column `{name}`, which the formula reads: leave "
                "these rows out."
            )
    if len(frame) == len(model.data):
        warnings.warn(
            "data= has as many rows as the fitted records. If it holds them, the predictions are "
            "computed from them again and are not covered by the guarantee: do not publish them.",
            PrivacyWarning,
            stacklevel=4,
        )


def _part(part: Any, frame: pd.DataFrame, unit: str | None) -> Any:
    """Copy a parameter of the outcome's distribution with its terms on new rows."""
    if not hasattr(part, "terms"):
        return part
    made = copy(part)
    made.terms = {name: _term(term, frame, unit) for name, term in part.terms.items()}
    return made


def _term(term: Any, frame: pd.DataFrame, unit: str | None) -> Any:
    made = copy(term)
    if not hasattr(term, "group_index"):
        made.data = np.squeeze(_evaluated(term.term, frame))
        return made
    factor = term.term.factor
    made.term = copy(term.term)
    made.term.expr = copy(term.term.expr)
    made.term.expr.data = np.squeeze(_evaluated(term.term.expr, frame))
    new = np.zeros(len(frame), int)  # of new persons: which each is, predictions say themselves
    made.group_index = new if factor.name == unit else _evaluated(factor, frame).argmax(1)
    return made


def _evaluated(term: Any, frame: pd.DataFrame) -> np.ndarray:
    """Compute the columns of a term for new rows, with the levels of the fitted ones."""
    try:
        return np.asarray(term.eval_new_data(frame))
    except Exception as error:  # its text may quote values
        raise ValueError(
            f"data= has rows for which `{term.name}` cannot be computed ({type(error).__name__}). "
            "A level that was not in the fitted model has no posterior: leave its rows out."
        ) from None


def _outcome(outcome: Any, frame: pd.DataFrame) -> Any:
    """Copy an outcome for new rows; only its number of trials is read, and no censoring is."""
    made, rows = copy(outcome), len(frame)
    made.term = copy(outcome.term)
    made.term.data = np.repeat(np.asarray(outcome.term.data)[:1], rows, axis=0)
    if outcome.term.kind == "proportion":
        made.term.data[:, 1] = np.squeeze(_evaluated(outcome.term, frame))
    if outcome.is_censored:
        made.term.data[:, 1] = 0
    return made
