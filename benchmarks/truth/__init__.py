"""Do private intervals hold the truth, at the width that records and noise allow?"""

import os

# before NumPy is loaded: cells run side by side, and sums must not depend on the number of threads,
# or data sets would differ in their last digits
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
