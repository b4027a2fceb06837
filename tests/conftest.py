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
    gc.disable()  # nothing that is loaded is garbage
    if "arviz_base" not in sys.modules:
        sys.modules["jax"] = ModuleType("jax")
        import arviz_base  # noqa: F401

        del sys.modules["jax"]


def pytest_collection_finish(session):
    """Keep modules, which live until the end, from the garbage collector."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000)  # graphs are many small objects


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
