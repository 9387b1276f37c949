"""Rewrites of whole programs, one module each: graph to graph, graph to kernels, kernels to calls on planned memory."""
