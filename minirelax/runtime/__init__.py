"""Running compiled programs: the instruction table, the native loop, the worker threads and the object-code cache."""
