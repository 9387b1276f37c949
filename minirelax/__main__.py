"""``python -m minirelax``: the command line."""
import sys

from minirelax.cli import main

if __name__ == "__main__":
    sys.exit(main())
