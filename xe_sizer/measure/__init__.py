"""The machine at hand, measured: kernels and a few steps of a job, as laws and records that every answer can use."""
