"""A layout writes named arrays into one vector, keeps their norms, and knows the noise on each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_dp.contributions import layout
from pymc_dp.contributions.layout import Layout, Part

LENGTHS = st.integers(0, 3)
SHAPES = st.lists(LENGTHS, max_size=2).map(tuple)
NUMBERS = st.floats(0.01, 100)


@st.composite
def parts(draw):
    shape = draw(SHAPES)
    if draw(st.booleans()):
        d = draw(st.integers(1, 3))
        return Part((*shape, d, d), draw(NUMBERS), symmetric=True)
    return Part(shape, draw(NUMBERS))


LAYOUTS = st.lists(parts(), min_size=1, max_size=4).map(
    lambda found: Layout({f"part {k}": part for k, part in enumerate(found)})
)


def values_of(layout, rng, leading=()):
    """Draw a value for every part; symmetric ones are."""
    values = {}
    for name, part in layout.parts.items():
        x = rng.normal(size=(*leading, *part.shape))
        values[name] = x + np.swapaxes(x, -1, -2) if part.symmetric else x
    return values


@given(layout=LAYOUTS, leading=SHAPES, seed=st.integers(0, 2**32))
def test_unpacking_undoes_packing(layout, leading, seed):
    values = values_of(layout, np.random.default_rng(seed), leading)
    packed = layout.pack(values)
    assert packed.shape == (*leading, layout.size)
    found = layout.unpack(packed)
    assert list(found) == list(values)
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-13)
    np.testing.assert_allclose(layout.pack(found), packed, rtol=1e-13)


@given(layout=LAYOUTS, seed=st.integers(0, 2**32))
def test_norms_of_packed_rows_are_those_of_their_parts(layout, seed):
    check_norms(layout, seed)


def check_norms(layout, seed, rows=5):
    values = values_of(layout, np.random.default_rng(seed), (rows,))
    scaled = [layout.parts[name].scale * value for name, value in values.items()]
    expected = np.sqrt(sum((x.reshape(rows, -1) ** 2).sum(axis=1) for x in scaled))
    packed = layout.pack(values)
    np.testing.assert_allclose(np.linalg.norm(packed, axis=1), expected, rtol=1e-12)
    of_parts = {name: np.linalg.norm(x.reshape(rows, -1), axis=1) for name, x in values.items()}
    np.testing.assert_allclose(layout.norms(of_parts), expected, rtol=1e-12)


SYMMETRIC = Layout(
    {
        "score": Part((3,), 2.0),
        "curvature": Part((2, 3, 3), 0.3, symmetric=True),
        "noise": Part((2,), 4.0),
        "number": Part((), 0.1),
    }
)


def check_noise(layout, sd=1.7, draws=100_000):
    noise = np.random.default_rng(3).normal(0, sd, (draws, layout.size))
    for name, values in layout.unpack(noise).items():
        stated = np.broadcast_to(layout.noise_variance(sd)[name], values.shape[1:])
        if layout.parts[name].symmetric:
            stated = stated * (1 + np.eye(values.shape[-1])) / 2
        # the relative standard error is sqrt(2 / draws), 0.45 percent
        np.testing.assert_allclose(values.var(axis=0), stated, rtol=0.03)


def test_the_noise_of_each_part_has_the_stated_variance():
    check_noise(SYMMETRIC)


def test_a_triangle_without_its_root_of_two_is_caught(monkeypatch):
    plain = lambda m: m[..., *np.triu_indices(m.shape[-1])]  # noqa: E731
    monkeypatch.setattr(layout, "svec", plain)
    with pytest.raises(AssertionError):
        check_norms(SYMMETRIC, 0)


@pytest.mark.parametrize(("factor", "name"), [(0.95, "score"), (1.05, "curvature")])
def test_a_wrong_scale_is_caught(factor, name):
    class Faulty(Layout):
        def noise_variance(self, sd):
            found = super().noise_variance(sd)
            return {**found, name: factor * found[name]}

    with pytest.raises(AssertionError):
        check_noise(Faulty(SYMMETRIC.parts))
