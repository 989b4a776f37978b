"""One file for each tool that is written; each has `EXPORTERS`, which the registry finds."""
