"""IR in colour: its text is Python, so any Python highlighter will do.

IR text must never pass through rich's markup, which would take the shape in ``v0: f32[n, 784]`` for a style tag and drop it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from minirelax.explore.view import PRE

if TYPE_CHECKING:
    from rich.syntax import Syntax


def highlighted(ir: object) -> Syntax:
    """Anything whose ``str`` is Python text (a module, a kernel, generated source) for a rich console.

    >>> print(highlighted("v0: f32[n, 784] = exp(x)").code)
    v0: f32[n, 784] = exp(x)
    """
    from rich.syntax import Syntax
    return Syntax(str(ir), "python", theme="ansi_dark", background_color="default", word_wrap=True)


def mimebundle(ir: object) -> dict[str, str]:
    """The same for a notebook: plain text, and HTML with inline styles that reads on light and dark pages.

    >>> sorted(mimebundle("x: f32[n]"))
    ['text/html', 'text/plain']
    """
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer
    code = highlight(str(ir), PythonLexer(), HtmlFormatter(noclasses=True, nowrap=True))
    return {"text/plain": str(ir), "text/html": PRE.format(code=code)}
