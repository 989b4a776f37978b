"""YAML profiles of hardware, models and data sets, read and converted to SI units."""
