"""The benchmark of constants finds them all, and changes them wherever they are read."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ablation import constants as module
from benchmarks.ablation.constants import changed, constants, recorded
from benchmarks.ablation.switches import PATCHES, without
from pymc_dp.contributions import scores, whitened
from pymc_dp.engine import clipping
from pymc_dp.engine.constants import CONSTANTS
from pymc_dp.engine.outcomes import OutcomeScale

EVERY = {constant.label: constant for constant in constants()}
# the engine of rounds has no more of them without an ablation that says what the new one is worth
MOST, MOST_IN_TABLE = 74, 25


def test_the_engine_has_no_more_constants():
    assert len(EVERY) == len(constants()) <= MOST
    assert 0 < sum(constant.is_field for constant in constants()) <= MOST_IN_TABLE


def test_the_page_names_every_constant_and_no_other():
    page = (Path(__file__).parents[2] / "docs" / "ablation.md").read_text()
    named = {label.rpartition(".")[2] for label in EVERY}
    rows = re.findall(r"^\| `([\w.]+)`", page, flags=re.M)
    listed = re.findall(r"`([\w.]+)`", page[page.index("## Other numbers") :])
    assert {name.rpartition(".")[2] for name in rows} <= named
    assert named <= {name.rpartition(".")[2] for name in (*rows, *listed)}


def test_a_field_of_the_table_has_another_value_inside_the_block():
    before, leverage = CONSTANTS.leverage, EVERY["leverage"]
    with changed(leverage, leverage.times(2)):
        assert CONSTANTS.leverage == 2 * before
    assert CONSTANTS.leverage == before


def test_a_constant_has_it_in_all_modules_and_in_what_follows_from_it():
    with changed(EVERY["scores.CENTRING"], 4):
        assert (clipping.CENTRING, scores.DRAWS) == (4, scores.WEIGHING + 4)
    assert (clipping.CENTRING, scores.DRAWS) == (8, scores.WEIGHING + 8)


def test_what_a_block_reads_is_recorded():
    with recorded() as read:
        OutcomeScale(0, np.zeros(1, bool), slope=1.0).step(2.0)
        whitened.joint_norm(1.0)
    labels = set(read.labels(constants()))
    assert {"least_fall", "whitened.TRACE", "whitened.COUNTS"} <= labels
    assert not labels & {"clip", "sampler.STUCK", "made_up.ROWS"}


@pytest.mark.parametrize(
    ("label", "doubled"),
    [
        ("accepted", 0.9),
        ("sampler.LENGTHS", (2, 8)),
        ("chains", 200),
        ("local_latents.NODES", {1: 14, 2: 10}),
    ],
)
def test_doubled_values_are_valid(label, doubled):
    assert EVERY[label].times(2) == pytest.approx(doubled)


def test_every_switch_names_what_there_is_and_puts_it_back():
    before = {name: [getattr(place, key) for place, key, _ in PATCHES[name]] for name in PATCHES}
    for name in PATCHES:
        with without(name):
            now = [getattr(place, key) for place, key, _ in PATCHES[name]]
            assert now != before[name]
        assert [getattr(place, key) for place, key, _ in PATCHES[name]] == before[name]


def test_numerics_are_names_of_the_engine():
    every = [(file, name) for file in module._files() for name in module._assigned(file)]
    assert {f"{Path(file).stem}.{name}" for file, name in every} >= module.NUMERICS
