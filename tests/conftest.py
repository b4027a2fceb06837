"""Tests run on PyTensor's Python linker, which starts in tenths of a second."""

import pytensor

pytensor.config.linker = "py"
pytensor.config.cxx = ""
