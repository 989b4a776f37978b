"""Tests of the command line; a package, so that they share `refusals`."""
