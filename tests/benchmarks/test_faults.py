"""Faults on workers, in files and in the process of the fit change no release and no booking."""

import pytest

pytest.importorskip("distributed")
from benchmarks.faults import FAULTS, run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_one_fault_of_each_kind_changes_nothing(tmp_path):
    found = run(len(FAULTS), tmp_path)
    assert found.faults == dict.fromkeys(FAULTS, 1)
    assert (found.different, found.wrongly_booked) == (0, 0)
