#!/usr/bin/env bash
# Writes the code generated from proto/ to troupe/api/. Run by hand after a change; CI checks for drift.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
out=${1:-.}
mkdir -p "$out/troupe/api"
mapfile -t files < <(cd proto && find troupe -name '*.proto' | sort)
"$python" -m grpc_tools.protoc -Iproto --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" "${files[@]}"
find "$out/troupe/api" -type d -exec touch {}/__init__.py \;
echo '"""Generated from proto/ by `make generate`; never edited. Imports protobuf and gRPC alone."""' > "$out/troupe/api/__init__.py"
