#!/bin/sh
# Takes out of a virtual environment what a service never runs: the installer, packages' own tests
# and stubs, the generated half of the Kubernetes client (it loads lazily, and the launcher sends
# plain objects through its ApiClient), and byte code of large packages that few runs import. Byte
# code of the rest stays: the image's root is read-only, so nobody could write it later, and each
# start would compile again. Further arguments name packages that this image does without.
set -eu
venv=$1
shift
"$venv/bin/python" -m pip uninstall --quiet --yes setuptools "$@"
"$venv/bin/python" -m pip uninstall --quiet --yes pip
find "$venv" -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -rf {} +
find "$venv" -type f \( -name '*.pyi' -o -name '*.pxd' -o -name '*.pyx' \) -delete
for client in "$venv"/lib/python*/site-packages/kubernetes/client \
  "$venv"/lib/python*/site-packages/kubernetes/aio/client; do
  test -d "$client" || continue
  find "$client/api" "$client/models" -type f ! -name __init__.py -delete
done
# What is left must still be what the router imports.
test ! -d "$client" || (cd / && "$venv/bin/python" -B -c "import troupe_router.cluster.launcher, troupe_router.cluster.connect")
"$venv/bin/python" -m compileall -q -x '/(sympy|kubernetes|fontTools|matplotlib|pygments|mpmath)/' \
  "$venv/lib" || test $? -eq 1
