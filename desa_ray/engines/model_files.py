"""Where an encoder's files are: a folder, an installed package, the model home, or the hub at a
pinned revision.

Nothing here loads a model. An explicit `encoder.path` is final: it never falls back to other
weights. Without it the first place that has the weights wins, and a search without success is one
error that lists every place.
"""

import importlib.metadata
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from desa_ray import files
from desa_ray.config import EncoderConfig
from desa_ray.errors import DesaError
from desa_ray.lines import shown

TOKENIZER, CONFIG = "tokenizer.json", "config.json"
QUANTISING = "DynamicQuantize"  # ...Linear of ONNX, ...MatMul and ...LSTM of onnxruntime
WEIGHTS = {
    "onnx": ("model.safetensors",),
    "static": ("model.safetensors",),
    "sentence_transformers": ("model.safetensors", "pytorch_model.bin"),
}


@dataclass(frozen=True)
class ModelFiles:
    """Paths of one model. `config` is None for a ready-made ONNX graph, which holds its own
    architecture, and for static vectors, which have none.
    """

    weights: Path
    tokenizer: Path
    config: Path | None


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes; read once per process while size, time and inode stay as they
    are.
    """
    try:
        found = path.stat()
        return _sha256(path, (found.st_size, found.st_mtime_ns, found.st_ino))
    except OSError as error:
        raise DesaError(f"cannot be read: {error.strerror or error}", where=str(path)) from None


@lru_cache(maxsize=256)
def _sha256(path: Path, _: tuple[int, int, int]) -> str:
    return files.sha256_file(path)


def find_model(config: EncoderConfig, model_home: Path) -> ModelFiles:
    """The files of `config`'s model: from `encoder.path`, else `package`, else `model_home/NAME`,
    else the hub.

    Raises:
        DesaError: nothing found; names the files looked for, every place looked in, and the hint.
    """
    names = (config.weights,) if config.weights else WEIGHTS[config.backend]
    looked: list[str] = []
    if config.path:
        weights = _first(Path(config.path).expanduser(), names, looked, "encoder.path")
    else:
        weights = _search(config, names, model_home, looked)
    if weights is None:
        raise _missing(config, " or ".join(names), looked, model_home)
    ready_made = weights.suffix == ".onnx"
    if ready_made and config.backend != "onnx":
        raise DesaError(
            f"{weights.name} needs encoder.backend=onnx", where=f"encoder {config.name}"
        )
    alone = ready_made or config.backend == "static"
    return ModelFiles(
        weights=weights,
        tokenizer=_beside(weights, config.tokenizer or TOKENIZER, config, model_home),
        config=None if alone else _beside(weights, CONFIG, config, model_home),
    )


def _search(
    config: EncoderConfig, names: Sequence[str], model_home: Path, looked: list[str]
) -> Path | None:
    if config.package and (found := _in_package(config.package, names, looked)):
        return found
    if found := _first(model_home / config.name, names, looked, "model home"):
        return found
    return _from_hub(config, names, looked) if config.revision else None


def _beside(weights: Path, name: str, config: EncoderConfig, model_home: Path) -> Path:
    """`name` in the folder of the weights; a hub snapshot fetches it, `tokenizer_package` may bring
    a tokenizer.
    """
    looked: list[str] = []
    found = _first(weights.parent, (name,), looked, "next to the weights")
    if found is None and name != CONFIG and config.tokenizer_package:
        found = _in_package(config.tokenizer_package, (name,), looked)
    if found is None and config.revision and config.revision == weights.parent.name:
        # A hub snapshot's folder
        found = _from_hub(config, (name,), looked)
    if found is None:
        raise _missing(config, name, looked, model_home)
    return found


def _first(folder: Path, names: Sequence[str], looked: list[str], what: str) -> Path | None:
    looked.append(f"folder {folder} ({what})")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _in_package(package: str, names: Sequence[str], looked: list[str]) -> Path | None:
    """A file of an installed distribution, found through its file list: importing it could import
    torch.
    """
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        looked.append(f"package {package} (not installed)")
        return None
    looked.append(f"package {package} {distribution.version}")
    listed_files = {file.name: file for file in distribution.files or ()}
    paths = (
        Path(str(distribution.locate_file(listed_files[name])))
        for name in names
        if name in listed_files
    )
    return next((path for path in paths if path.is_file()), None)


def _from_hub(config: EncoderConfig, names: Sequence[str], looked: list[str]) -> Path | None:
    """The first of `names` in the hub's cache, else downloaded, always at the pinned revision."""
    import huggingface_hub as hub
    from huggingface_hub import constants
    from huggingface_hub.errors import EntryNotFoundError

    repository, revision = config.model, config.revision
    assert revision is not None
    for name in names:
        cached = hub.try_to_load_from_cache(repository, name, revision=revision)
        if isinstance(cached, str):
            return Path(cached)
    place = f"hub {repository} at {revision[:12]}"
    if constants.HF_HUB_OFFLINE:
        looked.append(
            f"{place} (only its cache {constants.HF_HUB_CACHE}, as HF_HUB_OFFLINE is set)"
        )
        return None
    reason = "no such file"
    for name in names:
        try:
            # One request without retries tells a machine without network at once; the download
            # alone takes 25 s.
            hub.get_hf_file_metadata(hub.hf_hub_url(repository, name, revision=revision))
            return Path(hub.hf_hub_download(repository, name, revision=revision))
        except EntryNotFoundError:
            continue
        except Exception as error:
            # Whatever the HTTP library raises: unreachable, refused, cut off
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            break
    looked.append(f"{place} ({reason})")
    return None


def _missing(config: EncoderConfig, wanted: str, looked: list[str], model_home: Path) -> DesaError:
    if config.path:
        hints = [f"set encoder.path to a folder with {wanted}"]
    else:
        hints = [f"put the model's folder at {model_home / config.name}", "set encoder.path to it"]
        hints += [f"install the package {config.package}"] if config.package else []
        hints += (
            ["run once with network access and HF_HUB_OFFLINE unset"] if config.revision else []
        )
    return DesaError(
        f"{wanted} not found; looked in {', '.join(looked)}",
        where=f"encoder {config.name}",
        hint=", or ".join(hints),
    )


@cache
def graph_positions(graph: Path) -> int | None:
    """How many positions a ready-made ONNX graph has embeddings for; None where none of its tables
    says so.

    Raises:
        DesaError: not an ONNX file.
    """
    return min(
        (dims[0] for name, dims in _tables(graph) if "position_embeddings" in name and dims),
        default=None,
    )


def model_width(files: ModelFiles) -> int:
    """How many dimensions the vectors of a model have.

    Raises:
        DesaError: its files do not say so, or cannot be read.
    """
    if files.config is None:
        names = ("word_embeddings", "position_embeddings")
        found: set[Any] = set()
        for name, dims in _tables(files.weights):
            if any(own in name for own in names) and len(dims) == 2 and dims[1] > 1:
                found.add(dims[1])  # of 1: scales of rows of whole numbers
        widths: list[Any] = sorted(found)
    else:
        try:
            values = json.loads(files.config.read_bytes())
        except (OSError, ValueError) as error:
            what = f"cannot be read: {' '.join(str(error).split())[:200]}"
            raise DesaError(what, where=str(files.config), hint="fetch it again") from None
        widths = [values.get("hidden_size") if isinstance(values, dict) else None]
    if len(widths) != 1 or not isinstance(widths[0], int):
        raise DesaError(
            "does not say how many dimensions its vectors have",
            where=str(files.config or files.weights),
            hint="leave out encoder.dimensions",
        )
    return widths[0]


@cache
def quantises(files: ModelFiles) -> bool:
    """Whether a ready-made graph quantises numbers by their range while it runs: dynamic
    quantisation, whose scales depend on all texts of a batch.
    """
    if files.config is not None:
        return False
    return any(kind.startswith(QUANTISING) for kind in _operators(_model(files.weights)))


def _operators(model: Any) -> Iterator[str]:
    """Names of all operators of a graph, those in its functions and in branches and loops too."""
    parts = [model.graph, *model.functions]
    while parts:
        for node in parts.pop().node:
            yield node.op_type
            for own in node.attribute:
                parts += [own.g, *own.graphs]


def _tables(graph: Path) -> list[tuple[str, list[int]]]:
    """Name and shape of every table of an ONNX graph."""
    tables = _model(graph).graph.initializer
    for table in tables:
        for place in (entry.value for entry in table.external_data if entry.key == "location"):
            if Path(place).name != place or place == "..":
                what = f"tensor {shown(table.name)} is outside its folder, in {shown(place)}"
                raise DesaError(
                    what,
                    where=str(graph),
                    hint="use a graph whose data files are in the same folder",
                )
    return [(table.name, list(table.dims)) for table in tables]


def _model(graph: Path) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return onnx.load(graph, load_external_data=False)
    except (OSError, DecodeError) as error:
        raise DesaError(
            f"not a readable ONNX graph: {error}", where=str(graph), hint="fetch it again"
        ) from None
