"""The settings of `desa report`, checked."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from desa_ray.config import STRICT, StoreConfig, TrackingConfig
from desa_ray.config_values import Float, Int, Text
from desa_ray.core.statistics.release import SEED
from desa_ray.core.statistics.sampling import Sampling, Scheme
from desa_ray.report.gain import Gain
from desa_ray.report.painters import Columns
from desa_ray.report.printing import Kind
from desa_ray.report.roles import Roles


def _texts(value: Any) -> Any:
    """One item as a list of one; Hydra reads digits as numbers."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    return [str(item) for item in items]


def _text(value: Any) -> Any:
    return None if value is None else str(value)


def _number(value: Any) -> Any:
    """Digits as a number, as a literal takes no text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


NOTHING = BeforeValidator(lambda value: value or {})  # null, so that Hydra takes new keys
Texts = Annotated[list[Text], BeforeValidator(_texts)]
Word = Annotated[Text | None, BeforeValidator(_text)]


@dataclass(frozen=True, config=STRICT)
class PrimaryConfig:
    encoder: Word
    generator: Word
    kappa: Word
    k: Int | None
    n_refs: Int | None
    corpus_docs: Int | None
    settings: Annotated[dict[str, Word], NOTHING]


@dataclass(frozen=True, config=STRICT)
class StoryConfig:
    dataset: Word
    method: Word
    draw: Annotated[Int, Field(ge=0)]
    beside: Texts


@dataclass(frozen=True, config=STRICT)
class MarginConfig:
    effectiveness: Annotated[Float, Field(gt=0, le=1)]
    depth_pct: Annotated[Float, Field(gt=0, le=100)]


@dataclass(frozen=True, config=STRICT)
class RolesConfig:
    """Who is compared with whom, where what is left out is taken from the records; and how it is
    printed.
    """

    subject: Word
    baselines: Texts
    reference: Word
    parts: Annotated[dict[Literal["dense", "sparse"], str], NOTHING]
    ablations: Texts
    families: Annotated[dict[str, list[tuple[str, str]]], NOTHING]
    all_pairs: bool
    margin: MarginConfig
    figures: Annotated[list[Kind], BeforeValidator(_texts)]
    columns: Annotated[Columns, BeforeValidator(_number)]
    cost: bool

    def roles(self, preset: Roles) -> Roles:
        """The roles of a preset, with what was named in its place."""
        named = {
            "subject": self.subject,
            "baselines": tuple(self.baselines),
            "reference": self.reference,
            "parts": self.parts,
            "ablations": tuple(self.ablations),
            "families": self.families,
            "all_pairs": self.all_pairs,
        }
        return replace(preset, **{name: value for name, value in named.items() if value})


@dataclass(frozen=True, config=STRICT)
class ReportConfig:
    """conf/report.yaml, checked."""

    tracking: TrackingConfig
    store: StoreConfig
    runs: Texts
    sweep: Word
    records: Texts
    methods: Texts
    datasets: Texts
    primary: PrimaryConfig
    report: RolesConfig
    resamples: Annotated[Int, Field(ge=1, le=1_000_000)]
    seed: Annotated[Int, Field(ge=0, lt=2**63)]
    sampling: Scheme
    gain: Gain | None
    trec: bool
    query: Word
    story: StoryConfig
    compare: dict[str, Any] | None = None
    preset: Literal["paper"] | None = None
    leakage: bool = False
    cases: Annotated[Int, Field(ge=1, le=10_000)] | None = None

    @property
    def used_gain(self) -> Gain:
        """The gain asked for, else that of the numbers to compare with, else linear."""
        return self.gain or ("exponential" if self.compare or self.preset else "linear")

    @property
    def used_sampling(self) -> Sampling:
        """As asked for; the paper's preset resamples as its authors did."""
        if self.preset is None:
            return Sampling(self.resamples, self.seed, self.sampling)
        return Sampling(self.resamples, self.seed or SEED, "release")

    @property
    def sources(self) -> list[str]:
        return [*self.runs, *([self.sweep] if self.sweep else []), *self.records]
