"""One fit from process start to result: ``python -m benchmarks.start private [backend]``.

``stock`` in place of ``private`` fits with pm.ADVI.
"""

import sys

import pymc as pm

import pymc_dp
from benchmarks.steps import build, generate


def main():
    what, backend = sys.argv[1], (sys.argv[2:] or [None])[0]
    with build("logistic", *generate("logistic", 4000, 8), 8):
        if what == "private":
            pymc_dp.fit(epsilon=1, delta=1e-5, progressbar=False, backend=backend)
        else:
            pm.fit(1000, method="advi", progressbar=False, backend=backend).sample(1000)


if __name__ == "__main__":
    main()
