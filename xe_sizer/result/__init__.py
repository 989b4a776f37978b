"""The JSON contract: what every command answers, frozen, in SI units."""
