"""Arrays that carry no number of anyone's are told from others, without copies of the others."""

import numpy as np
import pytest

from pymc_dp.model import harden

FIT = {
    "a fill": np.full((3, 4), 2.5),
    "an identity": 0.1 * np.eye(4),
    "a sequence": np.arange(0.3, 1.0, 0.1),
    "a sequence between two ends": np.linspace(0.1, 0.7, 7),
    "frequencies of a basis": np.pi * np.arange(1, 21)[:, None],
    "a sequence backwards": np.arange(9, -1, -1),
    "rows of a triangle": np.tril_indices(5)[0],
    "columns of a triangle": np.tril_indices(5)[1],
}
OTHER = {
    "a diagonal": np.diag([1.0, 2.0, 2.0]),
    "nearly a triangle": np.r_[np.tril_indices(5)[0][:-1], 3],
    "two numbers": np.array([0.3, 4.1]),
    "whole numbers of which one is a record's": np.r_[np.zeros(29, int), 1],
    "equal numbers and the next one": np.r_[np.full(5, 1.0), np.full(5, 1 + 2.0**-52)],
    "whole numbers that skip one": np.r_[0:9, 10],
    "whole numbers that rise late": np.repeat([0, 1, 2], [5, 4, 2]),
    "a hole in a fill": np.array([[1.0, 1.0], [1.0, np.nan]]),
    "a bit in a fill": np.array([1.0, 1.0, 1.0, np.nextafter(1.0, 2.0), 1.0]),
    "a bit in a sequence": np.array([0.0, 1.0, 2.0, 3.0, np.nextafter(4.0, 5.0), 5.0]),
    "a bit in the frequencies of a basis": np.nextafter(np.pi * np.arange(1, 21), np.r_[99, :19]),
    "a bit in an identity": np.eye(3) + np.diag([0.0, 0.0, 1e-15]),
    "signs of zeros": np.array([0.0, -0.0, 0.0, 0.0, -0.0, 0.0]),
    "signs of zeros in a triangle": np.tril_indices(5)[1] * np.where(np.arange(15) % 2, 1.0, -1.0),
    "payloads of what is no number": np.array([0x7FF8 << 48, 0x7FF8 << 48 | 1])
    .view(float)
    .repeat(3),
}


@pytest.mark.parametrize("values", FIT.values(), ids=FIT)
def test_what_a_library_makes_by_itself_is_structural(values):
    assert harden.is_structural(values)


@pytest.mark.parametrize("values", OTHER.values(), ids=OTHER)
def test_what_holds_other_numbers_is_not(values):
    assert not harden.is_structural(values)
