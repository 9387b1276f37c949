"""What a view is: plain text by ``str``, colours on a terminal, HTML in a notebook, all from one rich renderable."""
from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PRE = ('<pre style="overflow-x:auto;font-family:Menlo,\'DejaVu Sans Mono\',consolas,monospace;line-height:1.2;'
       'color:#1f2328;background:#f6f8fa;padding:.6em">{code}</pre>')


class View:
    """Base of all views.  A subclass defines ``__rich__``; text and HTML are drawn from it, never from markup in strings."""

    def __rich__(self) -> RenderableType:
        from rich.pretty import Pretty
        return Pretty(vars(self))

    def __str__(self) -> str:
        return plain(self.__rich__())

    __repr__ = __str__

    def _repr_mimebundle_(self, include=None, exclude=None, **_) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": html(self.__rich__())}


def plain(renderable: RenderableType) -> str:
    """`renderable` as text: no colours, no trailing blanks, as wide as it needs to be."""
    from rich.console import Console
    out = io.StringIO()
    console = Console(file=out, width=10_000, color_system=None, force_terminal=False, force_jupyter=False, legacy_windows=False)
    width = console.measure(renderable).maximum
    console.print(renderable, width=max(width, 1), soft_wrap=False, highlight=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")


def html(renderable: RenderableType) -> str:
    """`renderable` as one HTML ``<pre>`` with inline styles."""
    from rich.console import Console
    console = Console(file=io.StringIO(), width=10_000, record=True, color_system="truecolor", force_terminal=True,
                      force_jupyter=False, legacy_windows=False)
    console.print(renderable, width=max(console.measure(renderable).maximum, 1), highlight=False)
    return console.export_html(inline_styles=True, code_format=PRE)


def show(thing: object, console: Console | None = None) -> None:
    """Print a view, IR or text: coloured and fitted on a terminal; plain and in full width in a pipe or a file."""
    from rich.console import Console
    from rich.text import Text
    console = Console() if console is None else console
    if console.is_terminal:
        console.print(Text(thing) if isinstance(thing, str) else thing)
    else:
        console.print(Text(plain_text(thing)), soft_wrap=True)


def plain_text(thing: object) -> str:
    """The text of anything that `show` takes: code as it is, other widgets of rich drawn without colours, else ``str``."""
    from rich.syntax import Syntax
    if isinstance(thing, Syntax):
        return thing.code
    return plain(thing) if type(thing).__module__.partition(".")[0] == "rich" else str(thing)
