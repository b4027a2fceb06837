"""Directions of latents that no record can tell anything of, whatever its values are.

An intercept and the effects of all groups may rise and fall together: the likelihood knows their
sums alone. Noise hides this from the releases, but it is a property of the model: it shows in the
scores of made-up records.
"""

import numpy as np
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Cast, Exp, Log, Log1p, Mul, Neg, Sqrt, Sub, TrueDiv
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from scipy.linalg import null_space

from pymc_dp.contributions.channels import MANY_LATENTS
from pymc_dp.contributions.drawn_scores import DrawnScores
from pymc_dp.methods.gaussian.belief import Curvature, symmetric
from pymc_dp.methods.gaussian.defaults import DEFAULTS
from pymc_dp.model import Records
from pymc_dp.model.graphs import AnyVariable, Node
from pymc_dp.privacy.contribution import Batch

# what does not bring values together, and has no thresholds
SMOOTH = (Add, Sub, Mul, TrueDiv, Neg, Cast, Exp, Log, Log1p, Sqrt)
ROWS = 1000  # of made-up records
MAGNITUDES = (-1.0, 4.0)  # of numbers, as powers of ten
IN_TURN = 1 / 3  # the share of integers that reach all groups in turn, so that none is missed
BALANCED = 4  # times that rows and columns of scores are scaled
# singular values that are 0, as a share of the largest
ROUNDING = 1e-10
# the share of the noise that is left of a curvature that is known to be 0
LEFT = 1e-6


def unseen_directions(records: Records, scores: DrawnScores) -> np.ndarray:
    """Return an orthonormal basis of the directions in which no record has a score, (d, k).

    It has no vectors where made-up records do not read all latents, and for more latents than have
    a matrix. Nor has it any where the model compares columns, or computes with several, before it
    does with latents: what is not so for ``age < 65`` may be so for all ages that were made up.

    **Privacy.** A function of the model's graph, and of the shapes and types of its columns.
    """
    d = records.size
    if d > MANY_LATENTS or records.local_latents or computes_with_columns(records):
        return np.zeros((d, 0))
    rng = np.random.default_rng(0)
    rows = ROWS + 20 * d
    # at one point they are looked for, and at another one they must not fail
    parts = [readable(scores_of_made_up(records, scores, rng, rows)) for _ in range(2)]
    every, unit = balanced(np.concatenate(parts))
    first, last = np.split(every, [len(parts[0])])
    if len(first) < 2 * d or not first.any(axis=0).all():
        return np.zeros((d, 0))
    _, values, directions = np.linalg.svd(first, full_matrices=False)
    found = directions[values <= ROUNDING * values[0]].T
    # what no record shows at some points, it may at others
    if (abs(last @ found) > ROUNDING**0.5).any():
        return np.zeros((d, 0))
    return np.asarray(np.linalg.qr(found / unit[:, None])[0])


def unseen_among(unseen: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return those unseen directions, (d, k), that lie in the span of others, (d, m), as (m, n).

    >>> found = unseen_among(np.array([[-1], [1], [1]]), np.array([[1, 0], [0, 1], [0, 1]]))
    >>> (found / found[0]).round(2)
    array([[ 1.],
           [-1.]])
    """
    unit = np.linalg.qr(unseen)[0]
    return np.asarray(null_space(V - unit @ (unit.T @ V), rcond=ROUNDING**0.5))


def computes_with_columns(records: Records) -> bool:
    """Whether columns meet others, or thresholds, before latents or outcomes; indices may."""
    varying = set(records.latents.values())
    varying |= {x for name, x in records.batch.inputs.items() if name in records.drawn}
    columns, computed = set(records.batch.inputs.values()) - varying, set[AnyVariable]()
    for node in toposort(records.batch.terms):
        if isinstance(node.op, Shape):
            continue
        if varying.isdisjoint(node.inputs):
            if not columns.isdisjoint(node.inputs):
                columns.update(node.outputs)
                same = _is_harmless(node, columns) and computed.isdisjoint(node.inputs)
                computed.update(() if same else node.outputs)
            continue
        varying.update(node.outputs)
        picks = isinstance(node.op, AdvancedSubtensor)
        if not computed.isdisjoint(node.inputs[:1] if picks else node.inputs):
            return True
    return False


def _is_harmless(node: Node, columns: set[AnyVariable]) -> bool:
    """Whether numbers of columns stay as different as they were: views, and smooth functions."""
    if isinstance(node.op, Elemwise):
        one = sum(x in columns for x in node.inputs) == 1
        return one and isinstance(node.op.scalar_op, SMOOTH)
    return isinstance(node.op, DimShuffle | Subtensor | Join)


def readable(parts: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the rows, (n, d), that are finite and not all 0."""
    found = np.concatenate(parts)
    return np.asarray(found[np.isfinite(found).all(axis=1) & found.any(axis=1)])


def scores_of_made_up(
    records: Records, scores: DrawnScores, rng: np.random.Generator, rows: int
) -> tuple[np.ndarray, ...]:
    """Return what scores of made-up records are made of, (rows, d) each: one array a vector."""
    point = records.start + rng.normal(size=records.size)
    with np.errstate(all="ignore"):
        weights, vectors = scores.of_batch(made_up(records, rng, rows), point)
    return (*vectors,) if scores.channels else (*np.swapaxes(weights, 0, 1),)


def balanced(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale rows and columns to entries of 1 at most; return also the columns' units, (d,).

    Scores in latents of different scales may differ by many orders of magnitude.
    """
    unit = np.ones(values.shape[1])
    for _ in range(BALANCED):
        values = values / abs(values).max(axis=1, keepdims=True)
        column = abs(values).max(axis=0, initial=0.0)
        column[column == 0] = 1.0
        values, unit = values / column, unit * column
    return values, unit


def made_up(records: Records, rng: np.random.Generator, rows: int) -> Batch:
    """Make records up whose numbers have many magnitudes, and whose indices reach all groups.

    Outcomes are 0 or 1, which most likelihoods allow. In every other record real ones lie between,
    and integers may be of any magnitude: an index beyond the last group is clipped.
    """
    most = max(x.size for x in records.point.values())
    types = {name: x.type.dtype for name, x in records.batch.inputs.items()}
    every_other = rng.random(rows) < 0.5

    def column(name: str) -> np.ndarray:
        shape, axis = [rows if n is None else n for n in records.shapes[name]], records.batch.axes
        other = every_other.reshape([rows if k == axis[name] else 1 for k in range(len(shape))])
        real = types[name].startswith("float")
        if name in records.drawn:
            outcomes = rng.integers(0, 2, shape)
            return np.where(other, rng.uniform(size=shape), outcomes) if real else outcomes
        if real:
            return np.asarray(rng.normal(size=shape) * 10 ** rng.uniform(*MAGNITUDES, shape))
        large = other & (rng.random(shape) < 0.5)
        longest = np.where(large, 10 ** MAGNITUDES[1], most + 2)
        # small ones more often: arrays that are indexed together have different lengths
        drawn = rng.integers(0, np.exp(rng.uniform(np.log(2), np.log(longest), shape)))
        in_turn = rng.permutation(np.arange(drawn.size) % most).reshape(shape)
        return np.where(rng.random(shape) < IN_TURN, in_turn, drawn)

    return {name: column(name).astype(dtype) for name, dtype in types.items()}


def not_contradicted(found: Curvature, unseen: np.ndarray) -> np.ndarray:
    """Return unseen directions N, (d, k), or none of them where a release shows a curvature there.

    Made-up records do not reach everything that real ones do: an effect of the years after 2005
    shows in years alone. In directions that no record sees a release holds noise and nothing else.

    >>> N, noise = np.array([[1.0], [-1.0]]) / 2**0.5, np.eye(2)
    >>> not_contradicted(Curvature(np.full((2, 2), 50.0), noise), N).shape
    (2, 1)
    >>> not_contradicted(Curvature(np.diag([50.0, 50.0]), noise), N).shape
    (2, 0)
    """
    if not unseen.size:
        return unseen
    along = Curvature(*(symmetric(unseen.T @ x @ unseen) for x in found)).spectrum()
    seen = (along.values > DEFAULTS.sure * along.edge).any()
    return unseen[:, :0] if seen else unseen


def without(found: Curvature, unseen: np.ndarray) -> Curvature:
    """Condition a noisy curvature on being 0 in unseen directions N, (d, k).

    >>> N = np.array([[1.0], [-1.0]]) / 2**0.5
    >>> without(Curvature(np.diag([3.0, 1.0]), np.eye(2)), N).estimate
    array([[1., 1.],
           [1., 1.]])
    """
    if not unseen.size:
        return found
    QN = found.noise @ unseen
    inverse = np.linalg.inv(unseen.T @ QN)
    A = np.eye(len(QN)) - QN @ inverse @ unseen.T
    noise = found.noise - (1 - LEFT) * QN @ inverse @ QN.T
    return Curvature(symmetric(A @ found.estimate @ A.T), symmetric(noise))
