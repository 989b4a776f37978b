"""One file for each tool that is read; each has a `TOOL`, which the registry finds."""
