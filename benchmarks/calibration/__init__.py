"""Coverage of private posteriors over many generated data sets."""
