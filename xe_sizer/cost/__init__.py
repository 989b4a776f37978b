"""Operator laws: numpy arrays in, seconds out. Knows no files, no command line, no report."""
