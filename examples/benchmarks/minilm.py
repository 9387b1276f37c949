"""The sentence-embedding model against NumPy: what ``examples/minilm.py --time`` prints."""
from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.argv.append("--time")
    runpy.run_path(str(Path(__file__).resolve().parent.parent / "minilm.py"), run_name="__main__")
