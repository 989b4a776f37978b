"""Configurations and launch commands of other tools, read into scenarios and written from plans."""
