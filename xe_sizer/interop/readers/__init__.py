"""Files of others as plain values with their places. Nothing in them is executed or imported."""
