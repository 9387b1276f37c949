"""What a user may decide about a compilation: bounds of sizes, rules of their own, passes to leave out.

>>> Options.of({"n": (1, 512)})
Options(bounds={'n': (1, 512)})
>>> Options.of(None, without=("fuse_ops",)).without
frozenset({'fuse_ops'})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from minirelax.errors import ArgumentError

OPTIONAL = (  # the passes without which a program still compiles, in their order; fuse_kernels only does what fuse_ops asks for
    "simplify",
    "fold_constants",
    "hoist_invariants",
    "merge_common",
    "merge_contractions",
    "eliminate_dead_code",
    "bind_parameters",
    "fuse_ops",
    "split_reductions",
    "pack_weights",
    "write_in_place",
    "reuse_inputs",
    "plan_memory",
)


@dataclass(frozen=True, repr=False)
class Options:
    """`bounds`: the smallest and largest value of a size, by name.  `libraries`: rules for `choose_libraries`; `groups`: for
    `group_patterns`.  `without`: names of passes that are left out, to see what each is worth.  `memory_limit`: the bytes that
    one call may take, beyond its results.
    """

    bounds: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    libraries: tuple = ()
    groups: tuple = ()
    without: frozenset[str] = frozenset()
    memory_limit: int | None = None

    @staticmethod
    def of(given: Options | Mapping | None = None, **changes: object) -> Options:
        """Options from options, from bounds alone, or from nothing; with `changes` made to them.

        Raises ArgumentError for an option or a pass that does not exist, a pass that cannot be left out, and a limit that is no
        number.
        """
        known = [f.name for f in fields(Options)]
        for name in changes.keys() - set(known):
            raise ArgumentError(f"there is no option {name!r}", f"one of {', '.join(known)}")
        options = given if isinstance(given, Options) else Options(dict(given or {}))
        return replace(options, **{name: _read(name, value) for name, value in changes.items()})

    def __repr__(self) -> str:
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name))
        return f"Options({', '.join(shown)})"

    @property
    def has_rules(self) -> bool:
        """Does it hold functions of a user's, of which nothing can be kept from process to process?"""
        return bool(self.libraries or self.groups)

    @property
    def key(self) -> str:
        """What, beside the module, decides the program; only for options without rules."""
        return f"{sorted(self.bounds.items())} {sorted(self.without)} {self.memory_limit}"


def _read(name: str, value: object) -> object:
    match name:
        case "bounds":
            return dict(value or {})
        case "libraries" | "groups":
            return tuple(value) if isinstance(value, Iterable) else (value,)
        case "without":
            return _pass_names((value,) if isinstance(value, str) else value)
        case "memory_limit" if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise ArgumentError(f"memory_limit={value!r}: not a number of bytes", "memory_limit=1 << 30 is one GiB")
    return value


def _pass_names(names: Iterable[str]) -> frozenset[str]:
    found = frozenset(names)
    for name in sorted(found - set(OPTIONAL), key=str):
        raise ArgumentError(f"without={name!r}: there is no such pass that can be left out", f"one of {', '.join(OPTIONAL)}")
    return found
