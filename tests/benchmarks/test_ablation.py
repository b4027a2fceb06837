"""The benchmark of constants finds them all, and changes them wherever they are read."""

import re
from pathlib import Path

from benchmarks.ablation.constants import changed, constants
from benchmarks.ablation.switches import PATCHES, without
from pymc_dp.contributions import scores
from pymc_dp.engine import clipping
from pymc_dp.engine.constants import CONSTANTS

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


def test_a_constant_has_another_value_in_all_modules_and_in_what_follows_from_it():
    before, leverage = CONSTANTS.leverage, EVERY["leverage"]
    with changed(leverage, leverage.times(2)):
        assert CONSTANTS.leverage == 2 * before
    assert CONSTANTS.leverage == before
    with changed(EVERY["scores.CENTRING"], 4):
        assert (clipping.CENTRING, scores.DRAWS) == (4, scores.WEIGHING + 4)
    assert (clipping.CENTRING, scores.DRAWS) == (8, scores.WEIGHING + 8)


def test_every_switch_names_what_there_is_and_puts_it_back():
    before = {name: [getattr(place, key) for place, key, _ in PATCHES[name]] for name in PATCHES}
    for name in PATCHES:
        with without(name):
            now = [getattr(place, key) for place, key, _ in PATCHES[name]]
            assert now != before[name]
        assert [getattr(place, key) for place, key, _ in PATCHES[name]] == before[name]
