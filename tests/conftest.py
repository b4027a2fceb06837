"""Tests run on PyTensor's Python linker, which starts in tenths of a second."""

import gc
import hashlib
import itertools
import os
import sys
from types import ModuleType

import hypothesis
import pytensor
import pytest
from pytensor.graph.utils import MetaType

# the same examples in every run, however busy the machine is
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tests")
pytensor.config.linker = "py"
pytensor.config.cxx = ""
# where a variable was made: read in no test, and written for every one
pytensor.config.traceback__limit = 0
pytensor.config.traceback__compile_limit = 0
# PyTensor asks millions of times of what class an object is; none of its classes is a virtual one
MetaType.__instancecheck__ = type.__instancecheck__


def pytest_collectstart(collector):
    """Load ArviZ without JAX, which it would load, where there is one, to tell that NumPyro is not.

    No test uses JAX in this process. It slows down every test that comes after it: it is called at
    each collection of garbage, and its locks at each look at an object's identity.
    """
    if "arviz_base" not in sys.modules:
        sys.modules["jax"] = ModuleType("jax")
        import arviz_base  # noqa: F401

        del sys.modules["jax"]


def pytest_collection_finish(session):
    """Keep what lives until the end: modules from the garbage collector, and rewritten graphs."""
    # not where tests are only handed out
    from pymc_dp.compiling import same_graph
    from pymc_dp.driver import compile_method, run_time
    from pymc_dp.methods.gaussian import hamiltonian

    same_graph.MOST_KEPT = 10_000  # models come back in many files
    # releases of made-up rows run, and are timed in tests/driver/test_run_time.py alone
    run_time.seconds_of = compile_method.seconds_of = run_once
    run_time.SHARE_OF_BATCH = 0.0
    hamiltonian._draw = with_brief_warm_up(hamiltonian, hamiltonian._draw)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)  # graphs are many small objects


def run_once(call):
    """Run what would be timed; it takes no time."""
    call()
    return 0.0


def with_brief_warm_up(module, draw):
    """Return ``draw`` with hardly any warm-up for at most 20 draws, of which tests say nothing."""
    brief = module.DEFAULTS._replace(warm_up=(2,), lengths=(1,))

    def drawn(log_density, start, draws, rng):
        if draws > 20:
            return draw(log_density, start, draws, rng)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "DEFAULTS", brief)
            return draw(log_density, start, draws, rng)

    return drawn


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Key secret randomness by the test, so that its noise is the same in every run of it."""
    numbers = itertools.count()

    def key(size):
        # a forked process has a key of its own
        public = f"{item.nodeid} {next(numbers)} {os.getpid() - process}"
        return hashlib.shake_256(public.encode()).digest(size)

    process = os.getpid()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", key)
        return (yield)


@pytest.fixture
def no_release(monkeypatch):
    """Let the first release be a failure of the test."""
    from pymc_dp.privacy.wall import PrivacyWall

    monkeypatch.setattr(PrivacyWall, "release", lambda *_: pytest.fail("budget was spent"))
