"""The budget of one data set, kept in a file over many fits."""
