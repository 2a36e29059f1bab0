"""How many layers two gloo ranks gather at once, and what a pass leaves behind."""

from pathlib import Path

from benchmarks.trainer_size.gathered import LAYER_BYTES, LAYERS, count_gathered


def test_layers_when_two_ranks_learn_in_bfloat16_then_at_most_two_are_gathered(
    tmp_path: Path,
) -> None:
    rows = list(count_gathered(tmp_path))
    assert {(row.kind, row.checkpointed) for row in rows} == {
        (kind, checkpointed) for kind in ("full", "lora") for checkpointed in (False, True)
    }
    for row in rows:
        assert row.metrics["kl_ref"] >= 0.0
        assert row.metrics["grad_norm"] > 0.0
        assert 1 <= row.layers <= 2
        # Of full weights the reference is a model of its own; under an adapter it is the base.
        is_full = row.kind == "full"
        assert (row.reference_layers is not None) == is_full
        assert row.reference_layers in (None, 1, 2)
        # Gradients of this rank's rows in float32, and what two layers take while they are
        # computed: gathered twice (buffer and weights), gradients, and these once more in float32.
        # The copies of all layers that autocast kept would be LAYERS layers more.
        rows_bytes = LAYERS * LAYER_BYTES // 2 * 2 if is_full else 0
        most = rows_bytes + (9 if is_full else 6) * LAYER_BYTES
        assert row.peak < most, row.peak / LAYER_BYTES
        print(f"\n{row.kind}: at most {row.layers} layers, {row.peak / LAYER_BYTES:.1f} layers")
