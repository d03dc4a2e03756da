"""Which methods a report compares: its subject, its baselines, and what further tables are about.

Whatever is not named follows from what the records hold (`choice.py`); the paper's own are one
preset (`paper.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Roles:
    """Methods by what they are in a report.

    Attributes:
        subject: the method that the report is about.
        baselines: methods that it is tested against, a family of tests each.
        reference: gains, reductions and labels (gain, tie, loss) are relative to this method.
        parts: kind of channel (`dense`, `sparse`) -> the method that has only the subject's
            operator of that kind; outcomes of a kind's diagnostics are this method's, else the
            subject's own.
        ablations: methods that lack a part of the subject's.
        main: methods of the main table; all that read two channels where empty.
        inner: methods that are parts, ablations or controls: no comparison from outside.
        families: name -> pairs (own, other) whose tests are adjusted together.
        all_pairs: whether every two methods are compared, as one family.
    """

    subject: str | None = None
    baselines: Sequence[str] = ()
    reference: str | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    ablations: Sequence[str] = ()
    main: Sequence[str] = ()
    inner: Sequence[str] = ()
    families: Mapping[str, Pairs] = field(default_factory=dict)
    all_pairs: bool = False

    @property
    def own(self) -> str:
        """The subject; the empty name, which no method has, where the records hold none."""
        return self.subject or ""

    @property
    def base(self) -> str:
        """The reference; the empty name where the records hold none."""
        return self.reference or ""

    def named(self) -> list[str]:
        """Every method that is named, each once."""
        names = [self.subject, *self.baselines, self.reference, *self.parts.values()]
        names += [*self.ablations, *self.main]
        for pairs in self.families.values():
            for pair in pairs:
                names += pair
        return list(dict.fromkeys(name for name in names if name))
