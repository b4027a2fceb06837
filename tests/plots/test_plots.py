"""Every picture follows arviz-plots: collections in and out, backends, and visuals to choose."""

import matplotlib as mpl
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_base.labels import MapLabeller
from arviz_plots import PlotCollection

import pymc_dp
from tests.methods.vips.topics.topic_fits import RNG, result

mpl.use("agg")
TWO = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
# the visuals of each picture that leave no trace in the collection
UNSTORED = {"words", "names", "ticklabels", "remove_axis"}
VISUALS = {
    "privacy": ["label", "line", "mark", "point", "text", "title", "xlabel", "ylabel"],
    "noise": [
        *("trunk", "twig", "point_estimate", "labels", "ticklabels", "remove_axis"),
        *("share", "share_text", "title", "legend"),
    ],
    "topics": ["bar", "words", "title", "xlabel"],
    "check": ["bar", "names", "limit", "title"],
    "ppc": ["replicated", "expected", "observed", "noise", "title", "xlabel", "ylabel"],
}
EACH = [(name, visual) for name, visuals in VISUALS.items() for visual in visuals]
ALL = pytest.mark.parametrize("name", [*VISUALS])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    from matplotlib import pyplot as plt

    plt.close("all")


def clinics():
    rng = np.random.default_rng(0)
    group = np.arange(600) % 3
    with pm.Model(coords={"clinic": ["west", "north", "east"]}) as model:
        a = pm.Normal("a", 0, 1)
        level = pm.Normal("level", 0, 1, dims="clinic")
        pm.Normal("y", a + level[pm.Data("group", group)], 1.0, observed=rng.normal(size=600))
    return model


@pytest.fixture(scope="module")
def idata():
    settings = {"method": "vips", "delta": 1e-5, "progressbar": False, "backend": "python"}
    return pymc_dp.fit(model=clinics(), epsilon=1, draws=200, random_seed=1, **settings)


@pytest.fixture(scope="module")
def pictures(idata):
    """Each picture's function and a result for it."""
    topics = result(TWO, np.ones(2), 1.0)
    plots = (
        (pymc_dp.plot_privacy, idata),
        (pymc_dp.plot_noise, idata),
        (pymc_dp.plot_topics, topics),
        (pymc_dp.plot_check, idata),
        (pymc_dp.plot_ppc, pymc_dp.ppc(idata, clinics(), epsilon=1, delta=1e-5)),
    )
    return dict(zip(VISUALS, plots, strict=True))


def draw(pictures, name, **settings):
    plot, tree = pictures[name]
    return plot(tree, **{"backend": "none", **settings})


def drawn(collection):
    """Return the names of the visuals that were drawn."""
    names = {"labels" if name.endswith("_label") else name for name in collection.viz.children}
    return names - {"plot", "row_index", "col_index"}


def axes(collection):
    return collection.viz["figure"].item().axes


@ALL
@pytest.mark.parametrize("backend", ["none", "matplotlib"])
def test_a_picture_is_a_collection_of_all_its_visuals(pictures, name, backend):
    collection = draw(pictures, name, backend=backend)
    assert isinstance(collection, PlotCollection)
    assert collection.backend == backend
    assert set(VISUALS[name]) - UNSTORED <= drawn(collection) <= set(VISUALS[name])


@pytest.mark.parametrize("backend", ["plotly", "bokeh"])
@ALL
def test_other_backends_draw_them_where_they_are_installed(pictures, name, backend):
    pytest.importorskip(backend)
    assert set(VISUALS[name]) - UNSTORED <= drawn(draw(pictures, name, backend=backend))


@pytest.mark.parametrize(("name", "visual"), [each for each in EACH if each[1] not in UNSTORED])
def test_a_visual_can_be_left_out(pictures, name, visual):
    every, others = draw(pictures, name), draw(pictures, name, visuals={visual: False})
    assert drawn(every) - drawn(others) == {visual}


STYLED = [each for each in EACH if each[1] not in {"legend", *UNSTORED}]


def test_every_visual_is_named_in_the_docstring():
    for name, visuals in VISUALS.items():
        text = getattr(pymc_dp, f"plot_{name}").__doc__
        assert all(f"``{visual}``" in text for visual in visuals), name


@pytest.mark.parametrize(("name", "visual"), STYLED)
def test_a_visual_can_be_restyled(pictures, name, visual):
    collection = draw(pictures, name, visuals={visual: {"color": "chosen"}})
    label = {"labels": "variable_label"}.get(visual, visual)
    visuals = collection.viz[label].to_dataset().to_array().values.ravel()
    styles = [style for style in visuals if isinstance(style, dict)]
    assert styles
    assert all("'chosen'" in str(style) for style in styles)


@ALL
def test_an_unknown_visual_is_refused_with_the_known_ones(pictures, name):
    known = ", ".join(VISUALS[name])
    sentence = f"plot_{name} draws no visual that is named 'lines': visuals= may name {known}."
    with pytest.raises(ValueError, match=sentence):
        draw(pictures, name, visuals={"lines": {}})


@ALL
def test_a_style_that_is_no_mapping_is_refused(pictures, name):
    with pytest.raises(TypeError, match="give a mapping of keywords, or False to leave it out"):
        draw(pictures, name, visuals={"title": "red"})


@ALL
def test_a_given_collection_is_drawn_on_and_handed_back(pictures, name):
    once = draw(pictures, name)
    panels = [each for each in np.ravel(once.viz["plot"].values if name != "privacy" else [])]
    before = sum(map(len, panels))
    again = draw(pictures, name, plot_collection=once, backend=None)
    assert again is once
    if name != "privacy":
        assert sum(map(len, panels)) > before


def test_a_collection_of_the_users_own_is_used(pictures):
    panels = xr.Dataset({"epsilon": 0.0, "epsilon_spent": 0.0})
    costs = PlotCollection.wrap(panels, cols=["__variable__"], backend="none")
    assert draw(pictures, "privacy", plot_collection=costs, backend=None) is costs
    assert drawn(costs) == set(VISUALS["privacy"]) - {"label"}


@ALL
def test_a_labeller_of_the_caller_is_used(pictures, name):
    labeller = MapLabeller(
        {"epsilon": "cost", "a": "cost", "probability": "cost", "limit": "cost", "y": "cost"}
    )
    collection = draw(pictures, name, labeller=labeller)
    visual = {"noise": "variable_label"}.get(name, "title")
    label = collection.viz[visual].to_dataset().to_array().values.ravel()
    assert any(style["string"].startswith("cost") for style in label)


READ = {"privacy": {"privacy"}, "noise": {"posterior", "noise_sd", "privacy"}, "topics": {"fit"}}
READ["check"] = READ["noise"] | {"fit", "fit_stats"}
READ["ppc"] = {"ppc", "privacy"}


@ALL
def test_nothing_but_released_groups_is_read(pictures, name):
    plot, tree = pictures[name]
    groups = {key: tree[key].to_dataset() for key in tree.children if key in READ[name]}
    less = xr.DataTree.from_dict(groups)
    copy = less.copy(deep=True)
    again = draw({name: (plot, less)}, name)
    assert drawn(again) == drawn(draw(pictures, name))
    xr.testing.assert_identical(less, copy)


def test_what_was_added_to_the_posterior_is_not_drawn(idata):
    added = idata.copy()
    secret = idata["posterior"].to_dataset().assign(secret=(("chain", "draw"), np.ones((1, 200))))
    added["posterior"] = secret
    collection = pymc_dp.plot_noise(added, backend="none")
    assert "secret" not in collection.viz["trunk"]
    assert "a" in collection.viz["trunk"]


def test_the_promise_is_marked_on_both_curves_of_the_cost(pictures, idata):
    _, left, right = axes(draw(pictures, "privacy", backend="matplotlib"))
    epsilon, made = idata["privacy"].attrs["epsilon"], idata["privacy"].attrs["releases"]
    for axis, x in ((left, -5), (right, made)):
        [[at, level]] = axis.collections[0].get_offsets()
        np.testing.assert_allclose([at, level], [x, epsilon])
        xs, ys = axis.lines[0].get_data()
        np.testing.assert_allclose(np.interp(at, xs, ys), epsilon)
    assert right.lines[0].get_xydata()[0].tolist() == [0, 0]
    assert {"1e-10", "1e-2"} <= {text.get_text() for text in left.get_xticklabels()}
    assert left.get_title() == "What the whole fit costs"


def test_the_label_says_what_a_reader_must_know(pictures, idata):
    label, *_ = axes(draw(pictures, "privacy", backend="matplotlib"))
    text = " ".join(label.texts[0].get_text().split())
    attrs = idata["privacy"].attrs
    for line in (
        f"Epsilon: {attrs['epsilon']:.3g} Delta: 1e-05",
        "Protects: one record; adding or removing one record",
        "Released: posterior, noise_sd, fit, fit_stats",
        f"By: vips, {attrs['releases']} releases, Gaussian noise",
        "are right; at 1% false positives",
        "Left in the ledger: no ledger was given",
        "Numerics: exact; ChaCha20",
        "Proofs: gaussian_sum, batches, accountants, whitened_rounds",
    ):
        assert line in text


def test_the_label_lies_in_its_panel(pictures):
    figure = draw(pictures, "privacy", backend="matplotlib").viz["figure"].item()
    figure.draw_without_rendering()
    label, curve, _ = figure.axes
    box = label.texts[0].get_window_extent()
    assert box.x1 < curve.get_tightbbox().x0
    assert box.y0 > 0
    assert label.get_title() == "Privacy label"


def test_the_label_says_what_is_left_in_the_ledger(tmp_path):
    ledger = pymc_dp.Ledger(tmp_path / "a", epsilon=2, delta=1e-5, dataset="clinics of 2025")
    terms = {"method": "vips", "delta": 1e-5, "progressbar": False, "backend": "python"}
    tree = pymc_dp.fit(model=clinics(), epsilon=1, draws=20, ledger=ledger, **terms)
    picture = pymc_dp.plot_privacy(tree, ledger=ledger, backend="none")
    [label] = picture.viz["label"].to_dataset().to_array().values
    text = " ".join(label["string"].split())
    assert (
        f"at least {ledger.left.epsilon:.3g} of 2 at delta 1e-05 (clinics of 2025, 1 fits)" in text
    )


@pytest.mark.parametrize("settings", [{"epsilon": np.inf, "clip_norm": 1.0}, {"method": "sep"}])
def test_a_result_without_epsilon_has_no_cost_to_draw(settings):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Bernoulli("y", logit_p=pm.Data("X", RNG.normal(size=(30, 2))) @ b, observed=[0, 1] * 15)
    settings = {"method": "dp_sep", "draws": 5, "backend": "python", **settings}
    idata = pymc_dp.fit(n=1, model=model, progressbar=False, **settings)
    with pytest.raises(ValueError, match="no finite epsilon to draw: it was fitted without noise"):
        pymc_dp.plot_privacy(idata)


def test_shares_of_noise_are_those_of_the_summary(pictures, idata):
    collection = draw(pictures, "noise", backend="matplotlib")
    texts = collection.viz["share_text"]["level"]
    table = pymc_dp.summary(idata, var_names=["level"])
    shown = [text.get_text() for text in texts.values]
    assert shown == [f" {share:.0%}" for share in table["noise_share"]]
    ends = [
        bar.get_paths()[0].vertices[:, 0].max() for bar in collection.viz["share"]["level"].values
    ]
    np.testing.assert_allclose(ends, table["noise_share"], rtol=0.06)


def test_intervals_of_the_records_alone_are_narrower(pictures):
    twigs = draw(pictures, "noise").viz["twig"]["level"]
    width = {
        str(model): float(np.ptp(twigs.sel(model=model, clinic="east").item()["x"]))
        for model in twigs["model"].values
    }
    assert width["records alone"] < width["with privacy noise"]


def test_the_most_probable_words_come_first(pictures):
    panels = axes(draw(pictures, "topics", words=2, backend="matplotlib"))
    assert [axis.get_title() for axis in panels] == ["topic: 0", "topic: 1"]
    labels = [[t.get_text() for t in axis.get_yticklabels()] for axis in panels]
    heights = [axis.get_yticks().tolist() for axis in panels]
    assert labels == [["w0", "w1"], ["w2", "w1"]]
    assert heights == [[0, -1]] * 2
    ends = [bar.get_paths()[0].vertices[:, 0].max() for bar in panels[1].collections]
    np.testing.assert_allclose(ends, [0.7, 0.2])


def test_a_panel_of_checks_has_the_worst_variables_first(pictures, idata):
    shares = pymc_dp.check(idata)["noise"].values
    panels = axes(draw(pictures, "check", rows=2, backend="matplotlib"))
    names = {axis.get_title(): [t.get_text() for t in axis.get_yticklabels()] for axis in panels}
    assert names["noise's share\nof the variance"] == sorted(shares, key=shares.get)[:-3:-1]


def test_no_other_result_is_drawn_as_a_predictive_check(idata):
    with pytest.raises(ValueError, match="holds no predictive check: give one of pymc_dp.ppc"):
        pymc_dp.plot_ppc(idata)
