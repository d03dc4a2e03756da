"""`objective=` and `trials=` of `desa run -m`: a search with Optuna instead of a grid."""

from collections.abc import Sequence

from desa_ray.errors import DesaError

KEYS = ("objective", "trials")
VERBS = ("run", "plan", "submit")


def searches(overrides: Sequence[str]) -> bool:
    """Whether a command line asks for a search."""
    return any(text.partition("=")[0] in KEYS for text in overrides)


def with_sweeper(verb: str, overrides: Sequence[str], multirun: bool) -> list[str]:
    """The overrides as Hydra takes them: those of the search are the sweeper's.

    Raises:
        DesaError: this verb does not search, or something of the search is missing.
    """
    if not searches(overrides) or verb not in VERBS:
        return list(overrides)
    given = {text.partition("=")[0] for text in overrides}
    if verb != "run":
        hint = f"leave it out; desa {verb} takes the cells of a grid"
        raise DesaError(f"desa {verb} does not search", where="objective", hint=hint)
    if "objective" not in given:
        raise DesaError("no objective", where="trials", hint="name a metric: objective=ndcg_at_10")
    if not multirun:
        raise DesaError("needs several cells", where="objective", hint="add -m")
    own = [
        f"hydra.sweeper.{text}" if text.partition("=")[0] in KEYS else text for text in overrides
    ]
    return ["hydra/sweeper=optuna", *own]
