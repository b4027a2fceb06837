"""The benchmark of constants finds them all, and changes one at a time."""

import re
from pathlib import Path

from benchmarks.ablation.constants import changed, constants
from benchmarks.ablation.switches import PATCHES, without
from pymc_dp import contributions, engine
from pymc_dp.engine.constants import CONSTANTS

EVERY = {constant.name: constant for constant in constants()}
MOST = 25
PAGE = (Path(__file__).parents[2] / "docs" / "ablation.md").read_text()
ROOMS = [Path(room.__file__).parent for room in (engine, contributions)]


def test_the_engine_has_no_more_constants_and_the_page_names_each():
    assert len(EVERY) == len(constants()) <= MOST
    assert re.findall(r"^\| `(\w+)`", PAGE, flags=re.M) == list(EVERY)


def test_the_page_counts_the_other_numbers_of_the_engine():
    assigned = re.compile(r"^([A-Z][A-Z_]+(?:, [A-Z_]+)*) = [-\d.]", re.M)
    text = "".join(file.read_text() for room in ROOMS for file in room.glob("*.py"))
    names = ", ".join(assigned.findall(text)).split(", ")
    assert f"{len(names)} more numbers" in PAGE


def test_a_constant_has_another_value_for_a_while():
    before, leverage = CONSTANTS.leverage, EVERY["leverage"]
    with changed(leverage, leverage.times(2)):
        assert CONSTANTS.leverage == 2 * before
    assert CONSTANTS.leverage == before


def test_every_switch_names_what_there_is_and_puts_it_back():
    before = {name: [getattr(place, key) for place, key, _ in PATCHES[name]] for name in PATCHES}
    for name in PATCHES:
        with without(name):
            now = [getattr(place, key) for place, key, _ in PATCHES[name]]
            assert now != before[name]
        assert [getattr(place, key) for place, key, _ in PATCHES[name]] == before[name]
