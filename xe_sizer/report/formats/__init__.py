"""One module per output format; see `xe_sizer.report.registry`."""
