"""From a Python function to a graph module: stand-in arrays, NumPy's functions on them, and the facts they need."""
