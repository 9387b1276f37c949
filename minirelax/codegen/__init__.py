"""From loops to machine code: source text for kernels, LLVM IR for register tiles and vector mathematics."""
