"""What `desa VERB --help` prints for the verbs that take Hydra overrides: purpose, examples, flags
and choices.

Hydra's help template is not used: it knows the groups and the composed configuration only, not a
verb's examples and own settings nor a checked `--config-dir`, which Hydra never sees; and it lists
Hydra's flags, most of which are refused here.
"""

import ast
import textwrap
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from desa_ray.path_names import why_not

from .config_folder import KNOWN
from .flags import config_folder

EXAMPLES: Mapping[str, Sequence[str]] = {
    "run": (
        "desa run                                            # DESA on the built-in collection",
        "desa run dataset=beir_folder dataset.path=FOLDER dataset.name=mine method=original",
        "desa run -m dataset=scifact method=original,desa fusion.kappa=20,60",
        "desa run -m +experiment=demo",
    ),
    "plan": (
        "desa plan dataset=scifact method=desa               # the same overrides as desa run",
        "desa plan -m method=original,desa fusion.kappa=20,60",
        "desa plan -m method=original,desa explain=1         # why stages of cell 1 are not stored",
    ),
    "submit": (
        (
            "desa submit submit.address=http://HEAD:8265 submit.home=/shared/desa dataset=scifact"
            " method=desa"
        ),
        (
            "desa submit -m --config-dir FOLDER method=mine,desa  # RAY_API_SERVER_ADDRESS and"
            " DESA_HOME set the target"
        ),
        "desa submit submit.job=ID                            # follow a job that was sent earlier",
    ),
    "generate": (
        "desa generate dataset=scifact generator=qwen2_5_7b export=FOLDER",
        (
            "desa generate generator=openai_server generator.base_url=http://HOST:8000/v1"
            " generator.model=NAME"
        ),
        "desa generate prompts=[references,hyde] draws=1",
    ),
    "verify": (
        (
            "desa verify expected=scifact dataset.path=FOLDER    # exit code 1 if a number does"
            " not match"
        ),
    ),
    "report": (
        (
            "desa report                                         # the latest run or sweep below"
            " outputs/"
        ),
        "desa report sweep=outputs/sweeps/DATE/TIME compare=paper",
        "desa report records=[a/records.parquet,b/records.parquet] trec=true",
        "desa report query=ID                                # one query's story",
    ),
}
SWEEPING = ("run", "plan", "submit")
SETTINGS: Mapping[str, Sequence[str]] = {
    "run": (
        "objective=METRIC  with -m: a search with Optuna instead of a grid (docs/sweeps.md)",
        "trials=30  the number of trials",
    ),
    "submit": (
        "submit.address=URL  the head node's dashboard",
        "submit.home=DIR  DESA_HOME of the job, on a path that all nodes share",
        "submit.command=PATH  the head node's desa, if it is not on its PATH",
        "submit.follow=false  do not wait for the job",
        "submit.job=ID  follow a job that was sent earlier, send nothing",
    ),
    "plan": (
        "view=table|tree  stages by kind, or what is computed from what",
        "detail=true  every stage on a separate line",
        "explain=CELL  say why the stages of a cell (counted from 0) are not stored",
    ),
    "generate": (
        "prompts=[references]  which prompts",
        "export=FOLDER  write <prompt>.jsonl there",
    ),
    "report": (
        "runs= sweep= records=  where records come from",
        "report.subject=METHOD report.baselines=[A,B]  what is compared (optional)",
        "report.families={NAME: [[A,B],..]} report.all_pairs=true  tests adjusted together",
        "primary.encoder= .generator= .kappa= .k= .n_refs= .corpus_docs=  of the main tables;",
        "  else the sweep's first value (preset=paper: kappa 60, most references)",
        "cases=N  the N queries that differ most from each baseline, by each measure",
        "query=ID  write one query's story",
        "trec=true  write runs",
    ),
}
GROUPS: Mapping[str, Sequence[str]] = {"report": ("compare",), "verify": ("expected",)}


def help_text(verb: str, arguments: Sequence[str] = ()) -> str:
    """The help of a verb; with --config-dir, the choices of that folder as well."""
    flags = [
        "--cfg job         print the composed configuration and stop (every setting with its value)"
    ]
    flags.append("--config-dir DIR  a folder with your own method/*.yaml, dataset/*.yaml, ...")
    if verb in SWEEPING:
        flags.insert(
            0, "-m                sweep: values with commas are combined, all cells are one plan"
        )
    sweep = "[-m] " if verb in SWEEPING else ""
    parts = [f"usage: desa {verb} {sweep}[--config-dir DIR] [KEY=VALUE ...]", _docstring(verb)]
    parts.append(_section("examples", EXAMPLES.get(verb, ())))
    parts.append(_section("flags", flags))
    parts.append(_section("settings of this verb", SETTINGS.get(verb, ())))
    parts.append(_section("choices (KEY=CHOICE)", _choices(verb, config_folder(arguments))))
    if verb != "report":
        parts.append(
            "Any value of a choice can be set too: fusion.kappa=20 encoder.max_tokens=128"
            " store.root=DIR"
        )
    return "\n\n".join(part for part in parts if part)


def _docstring(verb: str) -> str:
    source = (Path(__file__).parents[1] / f"{verb}.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)]) if lines else ""


def _choices(verb: str, own: Path | None) -> list[str]:
    conf = Path(str(resources.files("desa_ray.conf")))
    groups = {folder.name: _names(folder) for folder in sorted(conf.iterdir()) if _names(folder)}
    if own is not None and own.is_dir():
        for folder in (own / group for group in KNOWN):
            groups[folder.name] = sorted({*groups.get(folder.name, []), *_names(folder)})
    special = {name for names in GROUPS.values() for name in names}
    if verb == "report":
        wanted = [*GROUPS["report"], "tracking", "store"]
    else:
        wanted = [*GROUPS.get(verb, ()), *(name for name in groups if name not in special)]
    shown = {
        name: f"+{name}" if name == "experiment" else name for name in wanted if groups.get(name)
    }
    width = max(map(len, shown.values()), default=0)
    lines = []
    for name, title in shown.items():
        text = f"{title:{width}}  {', '.join(groups[name])}"
        lines += textwrap.wrap(
            text, 110, subsequent_indent=" " * (width + 2), break_on_hyphens=False
        )
    return lines


def _names(folder: Path) -> list[str]:
    names = [file.stem for file in folder.glob("*.yaml")] if folder.is_dir() else []
    return sorted(name for name in names if why_not(name) is None)
