"""Maintain the store: list what is there, verify that it is intact, remove what is not needed."""

import argparse
import json
import re
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from desa_ray.config import StoreConfig
from desa_ray.credentials import redacted
from desa_ray.errors import DesaError, listed
from desa_ray.experiment.places import DATABASE, home, store_root
from desa_ray.output import print_text
from desa_ray.store.artifacts import Store
from desa_ray.store.catalog import Entry
from desa_ray.store.garbage import judged, reachable, sweep_out
from desa_ray.store.keys import Key
from desa_ray.terminal import PlainTable, screen
from desa_ray.tracking.last import FILE, last_uri
from desa_ray.tracking.sqlite_uri import sqlite_uri

from .cli.arguments import ArgumentParser
from .cli.console import note

DAY_S = 86_400.0
KEY = re.compile(r'"(?:key|key\.[^"]*)":\s*"([0-9a-f]{64})"')


def main(arguments: list[str]) -> int:
    """`desa store list|verify|gc [options]`; verify exits 1 where something is damaged."""
    parser = ArgumentParser(prog="desa store", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|verify|gc")
    common = ArgumentParser(add_help=False)
    common.add_argument(
        "--store", metavar="ROOT", help="folder or address (default: $DESA_HOME/store)"
    )
    runs = ArgumentParser(add_help=False)
    what = (
        "tracking store whose runs count; repeat it for more (default: $DESA_HOME's own, and that"
        " of the last runs)"
    )
    runs.add_argument("--tracking", metavar="URI", action="append", help=what)

    shown = verbs.add_parser(
        "list", parents=[common, runs], help="sizes, last use, and the runs that refer to it"
    )
    shown.add_argument(
        "--all", action="store_true", help="list every artifact, not only the sum of each stage"
    )
    shown.add_argument("--no-runs", action="store_true", help="do not ask the tracking store")
    shown.set_defaults(function=_list)

    checked = verbs.add_parser(
        "verify", parents=[common], help="read every byte and compare it with its hash"
    )
    checked.add_argument(
        "which", nargs="*", metavar="STAGE[/KEY]", help="check only these (default: all)"
    )
    checked.set_defaults(function=_verify)

    swept = verbs.add_parser(
        "gc", parents=[common, runs], help="remove what no run and no running sweep refers to"
    )
    swept.add_argument(
        "--delete",
        action="store_true",
        help="remove them; without this, only show what would be removed",
    )
    swept.add_argument(
        "--keep",
        metavar="FOLDER",
        action="append",
        default=[],
        help="keep what the outputs in that folder use",
    )
    swept.add_argument(
        "--texts", action="store_true", help="also remove live generated text that no run uses"
    )
    age = "keep what changed within this many days (%(default)s)"
    swept.add_argument("--older-than", metavar="DAYS", type=float, default=1.0, help=age)
    swept.add_argument(
        "--all",
        action="store_true",
        help="show every artifact that would be removed, not only sums",
    )
    swept.set_defaults(function=_gc)

    options = parser.parse_args(arguments)
    store = Store(store_root(StoreConfig(root=options.store)))
    if not store.files.list():
        raise DesaError(
            "there is no store, or it is empty",
            where=store.files.shown,
            hint="set --store or DESA_HOME",
        )
    return options.function(store, options)


def _list(store: Store, options: argparse.Namespace) -> int:
    found = list(store.list())
    needed = {} if options.no_runs else _needed(found, _runs(options.tracking or _own_tracking()))
    rows: dict[str, list[Entry]] = {}
    for own in found:
        rows.setdefault(_name(own) if options.all else own.stage, []).append(own)
    table = _table("artifact" if options.all else "stage", "state", "size", "last use", "runs")
    for name, own in rows.items():
        runs = {
            run: start for entry in own for run, start in needed.get(_digest(entry), {}).items()
        }
        last = max(*(entry.last_use for entry in own), *runs.values(), 0.0)
        table.add_row(
            name,
            _state(own),
            _size(entry.bytes for entry in own),
            _when(last),
            "-" if options.no_runs else str(len(runs)),
        )
    _print(table)
    print_text(
        f"{len(found)} artifacts, {_size(own.bytes for own in found)} in {store.files.shown}"
    )
    return 0


def _verify(store: Store, options: argparse.Namespace) -> int:
    found = [
        own
        for own in store.list()
        if not options.which or {own.stage, _name(own)} & set(options.which)
    ]
    names = {name for own in found for name in (own.stage, _name(own))}
    if unknown := sorted(set(options.which) - names):
        hint = "`desa store list --all` shows what there is"
        raise DesaError(f"not in the store: {listed(unknown)}", where=store.files.shown, hint=hint)
    damaged, checked, size = 0, 0, 0
    for own in found:
        if own.key is None and not own.problem:
            continue  # unfinished: a rerun looks at its parts before it goes on
        problems = [own.problem] if own.key is None else _damage(store, own.key)
        for problem in problems:
            note(f"damaged: {problem}")
        damaged, checked, size = damaged + bool(problems), checked + 1, size + own.bytes
    unfinished = sum(own.key is None and not own.problem for own in found)
    print_text(
        f"{checked} artifacts read ({_size([size])}), {damaged} damaged; {unfinished} unfinished,"
        " not read"
    )
    return 1 if damaged else 0


def _damage(store: Store, key: Key) -> list[str]:
    try:
        return [str(error) for error in store.artifact(key).damage().values()]
    except DesaError as error:
        # Another key's layout beside this key's manifest, or a file that cannot be read
        return [str(error)]


def _gc(store: Store, options: argparse.Namespace) -> int:
    if not options.older_than >= 0:
        raise DesaError(f"{options.older_than} days", where="--older-than", hint="use 0 or more")
    local = Path(store.files.root).is_relative_to(home())
    if not local and not options.tracking:
        what = "this store is outside $DESA_HOME, so other people's runs, unknown here, may use it"
        hint = "name every tracking store that holds runs made with it: --tracking URI"
        raise DesaError(what, where=store.files.shown, hint=hint)
    uris = options.tracking or _own_tracking()
    runs = _runs(uris)
    roots = {
        *runs,
        *_written(home() / "outbox"),
        *(key for folder in options.keep for key in _outputs(Path(folder))),
    }
    print_text(
        f"runs in {listed([redacted(uri) for uri in uris]) or 'no tracking store'} refer to"
        f" {len(runs)} results"
    )
    verdicts = judged(store, roots, options.older_than * DAY_S, texts=options.texts)
    table = _table("artifact" if options.all else "stage", "kept", "goes", "size that goes", "why")
    groups: dict[str, list] = {}
    for verdict in verdicts:
        if verdict.drop or not options.all:
            groups.setdefault(
                _name(verdict.entry) if options.all else verdict.entry.stage, []
            ).append(verdict)
    for name, own in groups.items():
        goes = [verdict for verdict in own if verdict.drop]
        why = ", ".join(dict.fromkeys(verdict.why for verdict in goes or own))
        size = _size(verdict.entry.bytes for verdict in goes)
        table.add_row(name, str(len(own) - len(goes)), str(len(goes)), size, why)
    if groups:
        _print(table)
    going = [verdict for verdict in verdicts if verdict.drop]
    if not options.delete:
        size = _size(verdict.entry.bytes for verdict in going)
        print_text(
            f"dry run: {len(going)} of {len(verdicts)} artifacts, {size}, would be removed;"
            " --delete removes them"
        )
        return 0
    gone = list(sweep_out(store, going))
    print_text(f"{len(gone)} artifacts removed, {_size(own.bytes for own in gone)} freed")
    if len(gone) < len(going):
        note(f"{len(going) - len(gone)} were kept: they are in use now")
    return 0


def _own_tracking() -> list[str]:
    """The home's own database, and the server that the last runs used, as far as there are any."""
    database = home() / DATABASE
    own = [sqlite_uri(database)] if database.exists() else []
    return list(dict.fromkeys([*own, *([last_uri(home())] if (home() / FILE).exists() else [])]))


def _runs(uris: Iterable[str]) -> dict[str, dict[str, float]]:
    """Digest -> runs that name it, with their start, over all tracking stores."""
    from desa_ray.tracking.references import referred

    found: dict[str, dict[str, float]] = {}
    for uri in uris:
        for digest, runs in referred(uri, home() / "mlartifacts").items():
            found.setdefault(digest, {}).update(runs)
    return found


def _needed(
    found: Sequence[Entry], runs: dict[str, dict[str, float]]
) -> dict[str, dict[str, float]]:
    """Digest -> runs that need it, for what they name and for everything it was built from."""
    needed: dict[str, dict[str, float]] = {}
    for root, own in runs.items():
        for digest in reachable(found, [root]):
            needed.setdefault(digest, {}).update(own)
    return needed


def _written(folder: Path) -> set[str]:
    """Keys named by log entries that still wait for their tracking store."""
    hint = "move it elsewhere if nobody needs what it refers to"
    return {key for path in folder.rglob("*.json") for key in _named(path, hint)}


def _outputs(folder: Path) -> set[str]:
    """Keys of every stage that the cells' manifests below an output folder name."""
    manifests = list(folder.rglob("manifest.json"))
    if not manifests:
        raise DesaError(
            "contains no manifest.json of a cell",
            where=f"--keep {folder}",
            hint="name an output folder",
        )
    return {
        key
        for path in manifests
        for key in _named(path, "run its cell again, or remove its folder")
    }


def _named(path: Path, hint: str) -> list[str]:
    """The keys in a JSON file. Raises DesaError where it is damaged: it is unknown then what it
    refers to.
    """
    try:
        text = path.read_text(encoding="utf-8")
        json.loads(text)
    except FileNotFoundError:  # sent meanwhile
        return []
    except OSError as error:
        raise DesaError(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from None
    except (ValueError, RecursionError) as error:
        what = f"is damaged, so what it refers to is unknown: {error}"
        raise DesaError(what, where=str(path), hint=hint) from None
    return KEY.findall(text)


def _digest(own: Entry) -> str:
    return own.key.digest if own.key else ""


def _name(own: Entry) -> str:
    return f"{own.stage}/{own.short}"


def _state(own: Sequence[Entry]) -> str:
    states = ["damaged" if e.problem else "complete" if e.complete else "unfinished" for e in own]
    return (
        ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(sorted(states)))
        if len(own) > 1
        else states[0]
    )


def _size(sizes: Iterable[int]) -> str:
    size = float(sum(sizes))
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _when(moment: float) -> str:
    days = (time.time() - moment) / DAY_S
    try:
        shown = f"{datetime.fromtimestamp(moment).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # no year that a calendar has
        return "unknown"
    return f"{shown} ({days:.1f} days)" if days >= 0 else f"{shown} (ahead of this clock)"


def _table(*columns: str) -> PlainTable:
    table = PlainTable()
    for column in columns:
        right = column in ("size", "runs", "kept", "goes", "size that goes")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def _print(table: PlainTable) -> None:
    screen(140).print(table)
