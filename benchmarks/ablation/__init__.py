"""What each constant, stage and release of the engine of rounds is worth."""

import os

# before NumPy is loaded: sums must not depend on the number of threads
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
