"""How the rows of a batch are drawn; what that costs is for `pymc_dp.accounting`."""
