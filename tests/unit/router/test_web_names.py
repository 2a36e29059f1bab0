"""Names that every object of JavaScript has are names like any other on the page."""

from page_scripts import said_by_page


def test_tree_when_an_agent_is_called_constructor_then_has_its_rewards() -> None:
    said = said_by_page(
        """
        const { rangesOf } = await take("viewer/tree.js");
        const candidates = [{ reward: 1 }, { reward: 3 }];
        tell(rangesOf([{ agent: "constructor", candidates }]).get("constructor"));
        """
    )
    assert said == [1, 3]


def test_faults_of_a_spec_when_an_agent_is_called_constructor_then_stand_at_its_field() -> None:
    said = said_by_page(
        """
        const { errorTree } = await take("form/validator.js");
        const errors = ["/agents/constructor/policy", "/agents/__proto__/policy", "/agents/a~1b"]
          .map((pointer) => ({ pointer, message: pointer }));
        const { agents } = errorTree([...errors, { pointer: "/agents/a~1b", message: "more" }]);
        tell({
          names: Object.keys(agents),
          fault: agents.constructor.policy,
          two: agents["a/b"],
          spoilt: [Object.policy, {}.policy, {}.__errors].filter((one) => one !== undefined),
        });
        """
    )
    assert said["names"] == ["constructor", "__proto__", "a/b"]
    assert said["fault"] == {"__errors": ["/agents/constructor/policy"]}
    assert said["two"] == {"__errors": ["/agents/a~1b", "more"]}
    assert said["spoilt"] == []


def test_series_when_a_loss_calls_its_number_constructor_then_it_is_a_column() -> None:
    said = said_by_page(
        """
        const { append, emptySeries, last, tableOf } = await take("charts/series.js");
        const { train } = emptySeries();
        const loaded = tableOf({ steps: [0], series: { loss: [2] } });
        for (const table of [train, loaded]) append(table, { step: 1, constructor: 5 });
        tell([train, loaded].map((table) => [last(table, "constructor"), last(table, "toString")]));
        """
    )
    assert said == [[5, None], [5, None]]


def test_board_when_its_path_is_no_list_then_is_drawn_without_it() -> None:
    said = said_by_page(
        """
        const { TaskView } = await take("viewer/task_view.js");
        const view = TaskView({ info: { board: ". #\\n# .", path: 3 }, task: "mine" });
        const [board] = view.props.children[0];
        tell(board.type(board.props).props.role);
        """
    )
    assert said == "img"
