import gc

from troupe.serving.heap import settle_heap


def test_heap_when_settled_then_what_was_loaded_is_not_collected_again():
    before = gc.get_freeze_count()
    loaded = [[number] for number in range(1000)]
    try:
        settle_heap()
        assert gc.get_freeze_count() >= before + len(loaded)
        assert not any(loaded is each for each in gc.get_objects())
    finally:
        gc.unfreeze()
