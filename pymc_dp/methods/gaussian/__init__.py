"""Tools of Gaussian posteriors: priors, averages, rounds in whitened coordinates and draws."""
