"""Records in chunks, on which Dask runs what the wall asks."""
