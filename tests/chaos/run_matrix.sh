#!/bin/sh
# Runs the kill matrix, as `make chaos` does: run_matrix.sh PYTHON [pytest arguments].
# Records to build/chaos. Only a whole matrix, one without pytest arguments, takes the place of
# benchmarks/results/chaos.jsonl and writes the tables of docs/reliability.md, also where cases failed.
here=$(dirname "$0")
python=$1
shift
results=build/chaos
recording=$results/chaos.jsonl
has_run=
failed=0

suite() {
    "$@"
    status=$?
    case $status in
        0) has_run=yes ;;
        1) has_run=yes failed=1 ;;
        5) ;; # the arguments select none of this suite
        *) exit $status ;; # interrupted, or pytest could not run
    esac
}

mkdir -p $results
rm -f $recording
keep="--chaos-results $results"
suite env TROUPE_PROTOCOL_FULL=1 TROUPE_PROTOCOL_EXAMPLES=200 "$python" -m pytest tests/protocol "$@"
suite "$python" -m pytest tests/chaos -m "chaos or e2e" $keep "$@"
suite "$here/own_network.sh" "$python" -m pytest tests/chaos/test_packet_loss.py -m chaos $keep "$@"

if [ -z "$has_run" ]; then
    echo "make chaos: no test was selected by: $*" >&2
    exit 5
elif [ $# -gt 0 ]; then
    echo "make chaos: a part of the matrix is recorded in $results; docs/reliability.md and its recording stay as they are"
elif [ ! -s $recording ]; then
    echo "make chaos: no case was recorded; docs/reliability.md and its recording stay as they are" >&2
    exit 1
else
    "$python" scripts/reliability_table.py $recording docs/reliability.md || exit 1
    mv $recording benchmarks/results/chaos.jsonl
fi
exit $failed
