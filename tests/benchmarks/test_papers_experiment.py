"""What all experiments of the papers share: a table that grows, errors, options, panels."""

import argparse
import math

import pandas as pd
import pytest

from benchmarks.papers import abalone, auc, belief_net, mixture, networks, same_data, topics
from benchmarks.papers.experiment import measured

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
