"""Every picture is a collection of arviz-plots, on any of its backends."""

import matplotlib as mpl
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_plots import PlotCollection

import pymc_dp

mpl.use("agg")
VISUALS = {
    "privacy": ["line", "point", "title", "xlabel", "ylabel"],
    "noise": ["trunk", "twig", "point_estimate", "share"],
    "ppc": ["replicated", "expected", "observed", "noise", "title", "xlabel", "ylabel"],
}
ALL = pytest.mark.parametrize("name", [*VISUALS])
READ = {
    "privacy": {"privacy"},
    "noise": {"posterior", "noise_sd", "privacy"},
    "ppc": {"ppc", "privacy"},
}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    from matplotlib import pyplot as plt

    plt.close("all")


@pytest.fixture(scope="module")
def idata():
    return pymc_dp.fit(model=clinics(), method="vips", epsilon=1, delta=1e-5, draws=200, **QUIET)


@pytest.fixture(scope="module")
def pictures(idata):
    """Each picture's function and a result for it."""
    checked = pymc_dp.ppc(idata, clinics(), epsilon=1, delta=1e-5)
    plots = (pymc_dp.plot_privacy, pymc_dp.plot_noise, pymc_dp.plot_ppc)
    return dict(zip(VISUALS, zip(plots, (idata, idata, checked), strict=True), strict=True))


QUIET = {"progressbar": False, "random_seed": 1}


def clinics():
    rng = np.random.default_rng(0)
    group = np.arange(600) % 3
    with pm.Model(coords={"clinic": ["west", "north", "east"]}) as model:
        a = pm.Normal("a", 0, 1)
        level = pm.Normal("level", 0, 1, dims="clinic")
        pm.Normal("y", a + level[pm.Data("group", group)], 1.0, observed=rng.normal(size=600))
    return model


def draw(pictures, name, **settings):
    plot, tree = pictures[name]
    return plot(tree, **{"backend": "none", **settings})


def drawn(collection):
    return set(collection.viz.children)


@ALL
@pytest.mark.parametrize("backend", ["none", "matplotlib", "plotly", "bokeh"])
def test_a_picture_is_a_collection_of_all_its_visuals(pictures, name, backend):
    if backend != "none":
        pytest.importorskip(backend)
    collection = draw(pictures, name, backend=backend)
    assert isinstance(collection, PlotCollection)
    assert collection.backend == backend
    assert set(VISUALS[name]) <= drawn(collection)


def test_shares_of_noise_can_be_left_out(pictures):
    assert "share" not in drawn(draw(pictures, "noise", visuals={"share": False}))


@ALL
def test_nothing_but_released_groups_is_read(pictures, name):
    plot, tree = pictures[name]
    groups = {key: tree[key].to_dataset() for key in tree.children if key in READ[name]}
    less = xr.DataTree.from_dict(groups)
    copy = less.copy(deep=True)
    assert drawn(draw({name: (plot, less)}, name)) == drawn(draw(pictures, name))
    xr.testing.assert_identical(less, copy)


def test_what_was_added_to_the_posterior_is_not_drawn(idata):
    added = idata.copy()
    secret = idata["posterior"].to_dataset().assign(secret=(("chain", "draw"), np.ones((1, 200))))
    added["posterior"] = secret
    collection = pymc_dp.plot_noise(added, backend="none")
    assert "secret" not in collection.viz["trunk"]
    assert "a" in collection.viz["trunk"]


def test_the_promise_is_marked_on_both_curves_of_the_cost(pictures, idata):
    collection = draw(pictures, "privacy", backend="matplotlib")
    left, right = collection.viz["figure"].item().axes
    epsilon, made = idata["privacy"].attrs["epsilon"], idata["privacy"].attrs["releases"]
    for axis, x in ((left, -5), (right, made)):
        [[at, level]] = axis.collections[0].get_offsets()
        np.testing.assert_allclose([at, level], [x, epsilon])
        xs, ys = axis.lines[0].get_data()
        np.testing.assert_allclose(np.interp(at, xs, ys), epsilon)
    assert right.lines[0].get_xydata()[0].tolist() == [0, 0]
    assert left.get_title() == "epsilon 1 at delta 1e-05"


def test_a_result_without_epsilon_has_no_cost_to_draw():
    idata = pymc_dp.fit(model=clinics(), method="vips", epsilon=np.inf, draws=5, **QUIET)
    with pytest.raises(ValueError, match="no finite epsilon to draw: it was fitted without noise"):
        pymc_dp.plot_privacy(idata)


def test_shares_of_noise_are_those_of_the_summary(pictures, idata):
    texts = draw(pictures, "noise", backend="matplotlib").viz["share"]["level"]
    table = pymc_dp.summary(idata, var_names=["level"])
    shown = [float(text.get_text().removesuffix("%")) / 100 for text in texts.values]
    # the table's shares are rounded, too
    np.testing.assert_allclose(shown, table["noise_share"].astype(float), atol=0.0056)


def test_intervals_of_the_records_alone_are_narrower(pictures):
    twigs = draw(pictures, "noise").viz["twig"]["level"]
    width = {
        str(model): float(np.ptp(twigs.sel(model=model, clinic="east").item()["x"]))
        for model in twigs["model"].values
    }
    assert width["records alone"] < width["with privacy noise"]


def test_no_other_result_is_drawn_as_a_predictive_check(idata):
    with pytest.raises(ValueError, match="holds no predictive check: give one of pymc_dp.ppc"):
        pymc_dp.plot_ppc(idata)
