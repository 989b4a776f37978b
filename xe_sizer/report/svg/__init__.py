"""Pictures as SVG: shapes with known boxes, so that no text meets another or leaves the picture."""
