"""Views of everything the compiler makes, for terminals and notebooks; the only part that knows rich.

Nothing else imports this folder at module level, and rich itself is imported on first use, so that a program that never
looks pays nothing.
"""
from minirelax.explore.compilations import Compilation, Compilations
from minirelax.explore.diff import Diff
from minirelax.explore.highlight import highlighted, mimebundle
from minirelax.explore.memory import MemoryPlan, largest_live_set, memory_plan
from minirelax.explore.origins import Call, Origins
from minirelax.explore.progress import Progress
from minirelax.explore.stages import Stages
from minirelax.explore.tiling import Tiling
from minirelax.explore.view import View

__all__ = [
    "Call", "Compilation", "Compilations", "Diff", "MemoryPlan", "Origins", "Progress", "Stages", "Tiling", "View", "highlighted",
    "largest_live_set", "memory_plan", "mimebundle",
]
