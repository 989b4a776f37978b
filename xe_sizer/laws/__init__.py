"""Laws of operators: seconds from sizes, bytes and rates. Arrays in, arrays out."""
