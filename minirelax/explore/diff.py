"""What a pass did: the difference between the texts of two stages.

Names are given once and kept by every pass, so each changed line is a real change.

>>> print(Diff("v0 = exp(x)\\nv1 = multiply(v0, 1.0)\\noutput(v1)", "v0 = exp(x)\\noutput(v0)", "trace", "simplify"))
--- trace
+++ simplify
@@ -1,3 +1,2 @@
 v0 = exp(x)
-v1 = multiply(v0, 1.0)
-output(v1)
+output(v0)
"""
from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from minirelax.explore.view import View

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {"+": "green", "-": "red", "@": "cyan"}


class Diff(View):
    """The unified difference of two texts (or of anything whose ``str`` is one); empty and false if they are equal."""

    def __init__(self, before: object, after: object, before_name: str = "before", after_name: str = "after", context: int = 3):
        self.names = (before_name, after_name)
        self.lines = tuple(difflib.unified_diff(
            str(before).splitlines(), str(after).splitlines(), before_name, after_name, n=context, lineterm=""))

    def __bool__(self) -> bool:
        return bool(self.lines)

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __str__(self) -> str:
        return "\n".join(self.lines) or f"{self.names[0]} and {self.names[1]} are equal"

    def __rich__(self) -> Text:
        from rich.text import Text
        text = Text(no_wrap=False)
        for line in str(self).splitlines():
            heading = line.startswith(("--- ", "+++ "))
            text.append(line + "\n", "bold" if heading else STYLES.get(line[:1], ""))
        text.rstrip()
        return text
