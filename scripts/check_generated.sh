#!/usr/bin/env bash
# Fails when a committed generated file differs from what its source gives.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHON=${PYTHON:-.venv/bin/python}
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

scripts/gen_proto.sh "$fresh"
"$PYTHON" scripts/gen_job_spec_docs.py "$fresh/job-spec.md"
"$PYTHON" scripts/gen_cli_docs.py "$fresh/commands.md"
"$PYTHON" scripts/gen_rest_docs.py "$fresh/rest-paths.md"
"$PYTHON" scripts/gen_sync_client.py "$fresh/client.py"
cp docs/operations/layouts.md "$fresh/layouts.md"
"$PYTHON" scripts/gen_layouts_docs.py "$fresh/layouts.md"

status=0
diff -ru --exclude=__pycache__ "$fresh/troupe/api" troupe/api || status=1
diff -u "$fresh/job-spec.md" docs/job-spec.md || status=1
diff -u "$fresh/commands.md" docs/commands.md || status=1
diff -u "$fresh/rest-paths.md" docs/rest-paths.md || status=1
diff -u "$fresh/layouts.md" docs/operations/layouts.md || status=1
diff -u "$fresh/client.py" troupe/clients/rest/client.py || status=1
if [ "$status" -ne 0 ]; then
  echo "generated files drifted from proto/, troupe/spec/, troupe/cli/, REST or async_client.py; run: make generate" >&2
fi
exit "$status"
