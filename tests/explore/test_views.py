"""Views: plain by ``str``, nothing lost to rich's markup, HTML for notebooks."""
from __future__ import annotations

import io

import pytest
from rich.console import Console

from minirelax.explore import Compilation, Compilations, Diff, Progress, Stages, highlighted, mimebundle
from minirelax.ir.dim import dim
from minirelax.ir.graph import Guard, Source

TEXT = "v0: f32[n, 784] = exp(x)\nv1: f32[/n] = view(v0)"


class Stage:
    def __init__(self, name, module, milliseconds=0.0):
        self.name, self.module, self.milliseconds = name, module, milliseconds


def on_terminal(renderable) -> str:
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=100).print(renderable)
    return out.getvalue()


def on_page(renderable) -> str:
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(renderable)
    return out.getvalue()


def test_markup_like_text_survives_highlighting():
    assert [line.rstrip() for line in on_page(highlighted(TEXT)).splitlines()] == TEXT.splitlines()


def test_highlighting_colours_a_terminal_only():
    assert "\x1b[" in on_terminal(highlighted(TEXT))
    assert "\x1b[" not in on_page(highlighted(TEXT))


def test_mimebundle_has_plain_text_and_escaped_html():
    bundle = mimebundle("a: f32[n] = less(b, c)  # a < b")
    assert bundle["text/plain"] == "a: f32[n] = less(b, c)  # a < b"
    assert bundle["text/html"].startswith("<pre") and "a &lt; b" in bundle["text/html"]


def test_diff_is_plain_by_str_and_coloured_on_a_terminal():
    diff = Diff(TEXT, TEXT.replace("exp", "log"), "trace", "simplify")
    assert "\x1b[" not in str(diff) and "-v0: f32[n, 784] = exp(x)" in str(diff) and "+v0: f32[n, 784] = log(x)" in str(diff)
    shown = on_terminal(diff)
    assert "\x1b[31m" in shown and "\x1b[32m" in shown and "f32[n, 784]" in shown


def test_equal_texts_have_an_empty_diff():
    diff = Diff("a", "a", "trace", "simplify")
    assert not diff and str(diff) == "trace and simplify are equal"


def test_stages_by_name_position_and_slice():
    stages = Stages([Stage("trace", "a"), Stage("simplify", "b"), Stage("fuse_ops", "b")])
    assert stages["simplify"].module == "b" and stages[-1].name == "fuse_ops" and len(stages) == 3
    assert stages[1:].names == ("simplify", "fuse_ops") and "simplify" in stages and "fuse" not in stages
    assert [s.name for s in stages] == ["trace", "simplify", "fuse_ops"]
    assert stages.diff("simplify").names == ("trace", "simplify") and not stages.diff("fuse_ops")
    assert stages.diff("fuse_ops", since="trace").lines


def test_unknown_stage_names_the_known_ones():
    with pytest.raises(KeyError, match="no stage 'fuse'; there are trace, simplify"):
        Stages([Stage("trace", "a"), Stage("simplify", "b")])["fuse"]


def test_stage_table_says_what_each_pass_does():
    text = str(Stages([Stage("eliminate_dead_code", "a", 1.234)]))
    assert text.splitlines()[0].split() == ["stage", "what", "it", "does", "bindings", "kernels", "ms"]
    assert "1.23" in text and "\x1b[" not in text


def test_compilations_name_the_line_that_asked(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("def f(x):\n    return x + y\n")
    guard = Guard("==", dim("n"), dim("m"), Source(str(program), 2))
    shown = Compilations([Compilation("x: f32[n], y: f32[m]", (guard,)), Compilation("x: f32[n], y: f32[n2]")])
    assert len(shown) == 2 and shown[0].guards == (guard,)
    assert "n == m" in str(shown) and "program.py:2   return x + y" in str(shown) and "f32[n2]" in str(shown)
    assert "f32[n2]" in shown._repr_mimebundle_()["text/html"]


def test_progress_is_silent_in_a_pipe():
    stream = io.StringIO()
    with Progress(patience=0.0, stream=stream) as report:
        report("build", 1, 2)
    assert stream.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_shows_on_a_terminal_once_patience_is_over():
    stream = Terminal()
    with Progress(patience=0.0, stream=stream) as report:
        report("build", 1, 2)
        report._timer.join(30)
        report("build", 2, 2)
    assert "minirelax: build: " in stream.getvalue()


def test_progress_is_silent_for_quick_work():
    stream = Terminal()
    with Progress(patience=3600.0, stream=stream) as report:
        report("build", 1, 2)
    assert stream.getvalue() == ""
