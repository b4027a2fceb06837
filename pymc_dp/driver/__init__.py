"""From a call of `pymc_dp.fit` to its result: set-up, the loop, dry runs and explanations."""
