"""Every benchmark loads and says what its options are; those that are quick run."""

import argparse
import importlib
import math
from pathlib import Path

import numpy as np
import pytest

import benchmarks
from benchmarks.papers import auc, peers
from benchmarks.papers.experiment import measured
from benchmarks.papers.same_data import PROBLEMS

FOLDER = Path(benchmarks.__file__).parent
# environments of their own, and JAX, which no test loads into this process
ELSEWHERE = {"aim", "gpu", "papers.peers_script"}
EVERY = {
    ".".join(path.relative_to(FOLDER).with_suffix("").parts)
    for path in FOLDER.rglob("*.py")
    if path.stem not in ("__init__", "__main__")
}
PLACES = [(problem, name) for problem in PROBLEMS for name in PROBLEMS[problem].peers]


@pytest.mark.parametrize("name", sorted(EVERY - ELSEWHERE))
def test_it_loads_and_every_option_says_what_it_is(name, monkeypatch):
    pytest.importorskip("zarr" if name == "chunks" else "distributed")
    script, helped = importlib.import_module(f"benchmarks.{name}"), {}

    def parse_args(parser, *_):
        helped.update({action.dest: action.help for action in parser._actions})
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    if name.startswith("papers.") and hasattr(script, "main"):
        with pytest.raises(SystemExit):
            script.main()
        assert "delete them after a change" in helped["out"]
        assert all(helped.values()), helped


def test_cells_that_the_table_holds_are_not_measured_again(tmp_path):
    asked = []

    def measure(cell):
        asked.append(cell.seed)
        return {"score": cell.seed / 3}

    cells = [auc.Cell("sparse", "vips", math.nan, 1.0, seed) for seed in range(3)]
    for some in (cells[:2], cells):
        found = measured(some, measure, tmp_path / "table.csv")
    assert asked == [0, 1, 2]
    assert list(found["score"]) == [0, 1 / 3, 2 / 3]


@pytest.mark.parametrize(("problem", "name"), PLACES)
def test_peers_are_given_public_bounds_and_refused_without(problem, name):
    setting = PROBLEMS[problem].peers[name].settings(1.0)
    assert setting["estimator"] == name
    peers.require_public(setting)
    for bound in peers.PUBLIC[name]:
        with pytest.raises(ValueError, match=f"{name} would read {bound} from the data"):
            peers.fit_peers(np.ones((2, 1)), np.ones(2), np.ones((2, 1)), [setting | {bound: None}])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_one_fault_of_each_kind_changes_no_release_and_no_booking(tmp_path):
    faults = importlib.import_module("benchmarks.faults")
    found = faults.run(len(faults.FAULTS), tmp_path)
    assert found.faults == dict.fromkeys(faults.FAULTS, 1)
    assert (found.different, found.wrongly_booked) == (0, 0)
