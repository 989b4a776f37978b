"""Advice."""
def advise(priced, result, registry): return ()
