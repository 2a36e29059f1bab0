#!/bin/sh
# Takes out of a virtual environment what a service never runs: the installer, packages' own tests,
# and byte code of large packages that few runs import. Byte code of the rest stays: the image's root
# is read-only, so nobody could write it later, and each start would compile again.
set -eu
venv=$1
"$venv/bin/python" -m pip uninstall --quiet --yes setuptools pip
find "$venv" -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -rf {} +
"$venv/bin/python" -m compileall -q -x '/(sympy|kubernetes|fontTools|matplotlib|pygments|mpmath)/' \
  "$venv/lib" || test $? -eq 1
