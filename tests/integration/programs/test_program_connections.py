"""Connections of one run do not delay another's, and their number is bounded."""

import threading

from program_world import begun, program


def test_run_when_another_one_connects_again_and_again_then_it_is_not_delayed() -> None:
    with program("knocks", idle_s=5.0, warm=False) as environment:
        knocking = threading.Thread(target=_begun_or_not, args=(environment,))
        knocking.start()
        state = environment.step(begun(environment, 1), "solver", "7").state
        assert environment.step(state, "verifier", "fine").done
        assert knocking.is_alive()  # its own connections keep it from settling, until idle_s
        knocking.join(30.0)


def _begun_or_not(environment: object) -> None:
    try:
        begun(environment)  # type: ignore[arg-type]
    except Exception:
        return


def test_run_when_it_keeps_many_connections_then_those_above_its_share_are_closed() -> None:
    with program("crowds", max_waiting=3, warm=False) as environment:
        assert environment.observe(begun(environment), "solver")[1].text == "64"
