"""The picture of the wages: every interval of two coefficients, by way of releasing them."""

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.papers.picture import panels


def draw(found: pd.DataFrame) -> Figure:
    figure, axes = panels(2)
    return figure
