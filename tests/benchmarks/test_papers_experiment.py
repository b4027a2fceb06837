"""What all experiments of the papers share: a table that grows, errors, options, panels."""

import argparse
import math

import pandas as pd
import pytest

from benchmarks.papers import abalone, auc, belief_net, mixture, networks, same_data, topics
from benchmarks.papers.experiment import markdown, mean_and_error, measured
from benchmarks.papers.picture import line, panels

ALL = [abalone, auc, belief_net, mixture, networks, same_data, topics]


def test_cells_that_the_table_holds_are_not_measured_again(tmp_path):
    asked = []

    def measure(cell):
        asked.append(cell.seed)
        return {"score": cell.seed / 3}

    cells = [auc.Cell("sparse", "vips", math.nan, 1.0, seed) for seed in range(3)]
    first = measured(cells[:2], measure, tmp_path / "table.csv")
    both = measured(cells, measure, tmp_path / "table.csv")
    assert asked == [0, 1, 2]
    pd.testing.assert_frame_equal(both[:2], first)
    assert list(both["score"]) == [0, 1 / 3, 2 / 3]


def test_one_fit_has_no_standard_error_in_tables_and_pictures():
    table = pd.DataFrame({"epsilon": [1.0, 2.0, 2.0], "score": [0.5, 0.6, 0.7]})
    means = mean_and_error(table, ["epsilon"], "score")
    assert math.isnan(means["error"][0])
    assert means["error"][1] == pytest.approx(0.05)
    assert markdown(means).splitlines()[2] == "| 1 | 0.5 | - | 1 |"
    assert bars(means) == [False, True]


def bars(means):
    """Draw the means, and tell which of them have a bar."""
    figure, [ax] = panels(1)
    line(ax, means, "epsilon", "score", "vips")
    figure.canvas.draw()
    [(_, caps, [stems])] = ax.containers
    drawn = [len(segment) > 0 for segment in stems.get_segments()]
    for cap in caps:
        assert [math.isfinite(y) for y in cap.get_ydata()] == drawn
    return drawn


def test_panels_stand_in_rows_and_none_is_empty():
    figure, axes = panels(5, columns=3, size=(2.0, 1.5))
    assert figure.axes == axes
    assert tuple(figure.get_size_inches()) == (6.0, 3.0)


@pytest.mark.parametrize("experiment", ALL)
def test_every_option_says_what_it_is(experiment, monkeypatch):
    helped = {}

    def parse_args(parser):
        helped.update({action.dest: action.help for action in parser._actions})
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    with pytest.raises(SystemExit):
        experiment.main()
    assert "delete them after a change" in helped["out"]
    assert all(helped.values()), helped
