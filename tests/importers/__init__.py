"""Tests of importers; a package, so that names of files may repeat elsewhere."""
