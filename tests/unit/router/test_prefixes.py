"""The router's memory of which replica was sent which prefix."""

from hypothesis import given
from hypothesis import strategies as st

from troupe.tasks.family import Message
from troupe_router.play.routing.prefixes import BLOCK_CHARS, MAX_BLOCKS, PrefixTable, prefix_of

RULES = Message("system", "r" * (BLOCK_CHARS - 8))  # with its two marks and its role one block


def asked(text: str) -> tuple[Message, ...]:
    return RULES, Message("user", text)


def blocks_of(*messages: Message) -> tuple[int, ...]:
    return prefix_of(messages).blocks


def test_prompt_is_cut_into_blocks_and_the_last_may_be_short() -> None:
    # "\x1euser\x1f" are 6 characters, so 2 * 64 - 6 + 1 more fill two blocks and begin a third.
    assert len(blocks_of(Message("user", "x" * (2 * BLOCK_CHARS - 6)))) == 2
    assert len(blocks_of(Message("user", "x" * (2 * BLOCK_CHARS - 5)))) == 3
    assert len(blocks_of(Message("user", "x" * 10**6))) == MAX_BLOCKS
    assert blocks_of() == ()


def test_prompts_share_blocks_up_to_where_they_differ() -> None:
    first, second = blocks_of(*asked("a" * 200)), blocks_of(*asked("b" * 200))
    assert first[0] == second[0]
    assert not set(first[1:]) & set(second[1:])


def test_affinity_is_of_the_whole_prompt_and_of_roles() -> None:
    one = prefix_of((Message("user", "x"),)).affinity
    assert one == prefix_of((Message("user", "x"),)).affinity
    assert one != prefix_of((Message("system", "x"),)).affinity
    assert one != prefix_of((Message("user", "x"), Message("user", ""))).affinity
    assert prefix_of((Message("user", "\ud800"),)).affinity


def test_table_when_a_later_turn_extends_a_prompt_then_its_replica_is_known() -> None:
    table = PrefixTable()
    table.record("p", 3, blocks_of(*asked("q" * 186)), owner=7)  # 1 + 3 blocks, all full
    later = blocks_of(*asked("q" * 186), Message("assistant", "y" * 500))
    assert table.matched("p", 3, later) == {7: 4 / len(later)}


def test_table_when_version_or_policy_differ_then_nothing_is_known() -> None:
    table = PrefixTable()
    blocks = blocks_of(*asked("q" * 200))
    table.record("p", 3, blocks, owner=7)
    assert table.matched("p", 3, blocks) == {7: 1.0}
    assert table.matched("p", 4, blocks) == {}
    assert table.matched("other", 3, blocks) == {}


def test_table_when_two_replicas_share_the_rules_then_each_is_known_as_far_as_it_goes() -> None:
    table = PrefixTable()
    first, second = blocks_of(*asked("a" * 186)), blocks_of(*asked("b" * 186))
    table.record("p", 3, first, owner=1)
    table.record("p", 3, second, owner=2)
    assert table.matched("p", 3, first) == {1: 1.0, 2: 1 / 4}
    assert table.matched("p", 3, blocks_of(*asked("c" * 186))) == {1: 1 / 4, 2: 1 / 4}


def test_table_when_full_then_forgets_the_least_recent_and_keeps_common_prefixes() -> None:
    table = PrefixTable(max_blocks=8)
    prompts = [blocks_of(*asked(letter * 186)) for letter in "abcdef"]
    for prompt in prompts:
        table.record("p", 3, prompt, owner=1)
    assert len(table) == 8
    assert table.matched("p", 3, prompts[-1]) == {1: 1.0}
    assert table.matched("p", 3, prompts[0]) == {1: 1 / 4}


def test_table_when_replicas_come_and_go_then_a_prefix_keeps_a_bounded_list() -> None:
    table = PrefixTable()
    for owner in range(1000):
        table.record("p", 3, (5,), owner)
    found = table.matched("p", 3, (5,))
    assert len(found) == 256
    assert set(found) == set(range(744, 1000))


conversations = st.lists(
    st.builds(Message, st.sampled_from(["system", "user"]), st.text(max_size=300)), max_size=4
)


@given(conversations, conversations)
def test_appended_messages_keep_every_full_block(start, more) -> None:
    short, long = blocks_of(*start), blocks_of(*start, *more)
    size = sum(len(m.role) + len(m.content) + 2 for m in start)
    num_full = size // BLOCK_CHARS
    assert long[:num_full] == short[:num_full]


alike = st.lists(
    st.builds(Message, st.just("user"), st.sampled_from(["a" * 90, "b" * 90, "c" * 150])),
    min_size=1,
    max_size=4,
)
"""Prompts of more than a block, of which many begin alike: others match nothing."""


@given(
    st.lists(st.tuples(alike, st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(0, 7),
    alike,
)
def test_matched_share_is_of_a_prompt_that_was_really_sent_there(sent, which, more) -> None:
    asked_for = [*sent[which % len(sent)][0], *more]
    table = PrefixTable()
    for messages, owner in sent:
        table.record("p", 1, blocks_of(*messages), owner)
    blocks = blocks_of(*asked_for)
    matched = table.matched("p", 1, blocks)
    assert matched
    for owner, share in matched.items():
        count = round(share * len(blocks))
        assert any(
            blocks_of(*messages)[:count] == blocks[:count]
            for messages, where in sent
            if where == owner
        )
