"""Circuits with registers: counters, detectors, shift registers, edges and state machines.

All outputs are registers or functions of registers, so they change only after a rising edge.
"""

from random import Random
from typing import Any

from troupe_tasks.verilog.circuit import Circuit, Port

_EDGE_WORDS = {
    "rise": "rose (was 0, is 1)",
    "fall": "fell (was 1, is 0)",
    "change": "changed",
}
_EDGE_TEXT = {"rise": "x[{n}] & ~p[{n}]", "fall": "~x[{n}] & p[{n}]", "change": "x[{n}] ^ p[{n}]"}
_RESET = "rst is synchronous and active high"


def _always(resets: str, lines: str) -> str:
    return (
        f"  always @(posedge clk) begin\n    if (rst) begin {resets} end\n    else begin\n"
        f"{lines}    end\n  end\n"
    )


def counter(params: dict[str, Any]) -> Circuit:
    """Counts modulo a number, up or down, by a step."""
    modulo, step, first = params["modulo"], params["step"], params["first"]
    way = step if params["is_up"] else -step
    width = (modulo - 1).bit_length()
    wide = width + 2
    up = f"(r + {step} >= {modulo}) ? r + {step} - {modulo} : r + {step}"
    down = f"(r < {step}) ? r + {modulo} - {step} : r - {step}"
    lines = f"      if (en) r <= {up if params['is_up'] else down};\n"
    return Circuit(
        "counter",
        f"A counter q modulo {modulo}: at a rising edge of clk with en=1 it counts "
        f"{'up' if params['is_up'] else 'down'} by {step} (modulo {modulo}, so it stays below "
        f"{modulo}); with en=0 it keeps its value. {_RESET}: it sets q to {first}.",
        (Port("input", "en", 1),),
        Port("output", "q", width),
        f"  reg [{wide - 1}:0] r;\n  assign q = r[{width - 1}:0];\n"
        + _always(f"r <= {first};", lines),
        first,
        lambda state, _: state,
        lambda state, values: (state + way) % modulo if values["en"] else state,
    )


def draw_counter(rng: Random) -> dict[str, Any]:
    """Parameters of ``counter``."""
    modulo = rng.randint(4, 31)
    return {
        "modulo": modulo,
        "step": rng.randint(1, 3),
        "is_up": rng.random() < 0.6,
        "first": rng.choice((0, rng.randrange(modulo))),
    }


def change_counter(params: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The parameters with one small change."""
    modulo, bits = params["modulo"], (params["modulo"] - 1).bit_length()
    near = [n for n in (modulo - 1, modulo + 1) if (n - 1).bit_length() == bits and n > 3]
    changes: list[dict[str, Any]] = [
        *({"modulo": n, "first": min(params["first"], n - 1)} for n in near),
        {"step": 1 + params["step"] % 3},
        {"is_up": not params["is_up"]},
        {"first": (params["first"] + 1) % modulo},
    ]
    return params | rng.choice(changes)


def detector(params: dict[str, Any]) -> Circuit:
    """Says that the last bits were a pattern."""
    pattern, overlaps = params["pattern"], params["overlaps"]
    size = len(pattern)

    def after(state: tuple[str, int], values: Any) -> tuple[str, int]:
        seen = state[0] + str(values["x"])
        found = seen.endswith(pattern)
        return ("" if found and not overlaps else seen[-(size - 1) :]), int(found)

    clear = "" if overlaps else "      if (hit) n <= 0; else\n  "
    lines = (
        f"      s <= hit;\n      h <= {{h[{size - 2}:0], x}};\n{clear}      if (n < {size - 1}) "
        "n <= n + 1;\n"
    )
    ways = "may overlap" if overlaps else "do not overlap: after one, count bits anew"
    return Circuit(
        "detector",
        f"x is read at each rising edge of clk. seen is a register: it is 1 after an edge exactly "
        f"when the last {size} bits that were read since reset, this one included, were {pattern} "
        f"(oldest first). Occurrences {ways}. {_RESET}: it forgets all bits and sets seen to 0; x "
        "is not read at that edge.",
        (Port("input", "x", 1),),
        Port("output", "seen", 1),
        f"  reg [{size - 1}:0] h;\n  reg [2:0] n;\n  reg s;\n  assign seen = s;\n"
        f"  wire hit = (n >= {size - 1}) && ({{h[{size - 2}:0], x}} == {size}'b{pattern});\n"
        + _always("h <= 0; n <= 0; s <= 0;", lines),
        ("", 0),
        lambda state, _: state[1],
        after,
    )


def draw_detector(rng: Random) -> dict[str, Any]:
    """Parameters of ``detector``."""
    pattern = "".join(rng.choice("01") for _ in range(rng.randint(3, 5)))
    return {"pattern": pattern, "overlaps": rng.random() < 0.6}


def change_detector(params: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The parameters with one small change."""
    pattern = params["pattern"]
    at = rng.randrange(len(pattern))
    flipped = f"{pattern[:at]}{'10'[int(pattern[at])]}{pattern[at + 1 :]}"
    changes = [
        {"pattern": flipped},
        {"pattern": pattern[::-1]},
        {"overlaps": not params["overlaps"]},
    ]
    return params | rng.choice(changes)


def shifter(params: dict[str, Any]) -> Circuit:
    """A shift register with feedback from two bits."""
    width, (low, high), first = params["width"], params["taps"], params["first"]
    inverts = params["inverts"]
    mask = (1 << width) - 1

    def after(state: int, _: Any) -> int:
        new = ((state >> low) ^ (state >> high) ^ int(inverts)) & 1
        return (state << 1 | new) & mask

    feedback = f"r[{low}] ^ r[{high}]"
    new = f"~({feedback})" if inverts else feedback
    return Circuit(
        "shifter",
        f"A shift register q of {width} bits. At each rising edge of clk it shifts left by one; "
        f"the new bit 0 is the {'xnor' if inverts else 'xor'} of the old q[{low}] and q[{high}]. "
        f"{_RESET}: it sets q to {first}.",
        (),
        Port("output", "q", width),
        f"  reg [{width - 1}:0] r;\n  assign q = r;\n"
        + _always(f"r <= {first};", f"      r <= {{r[{width - 2}:0], {new}}};\n"),
        first,
        lambda state, _: state,
        after,
    )


def draw_shifter(rng: Random) -> dict[str, Any]:
    """Parameters of ``shifter``."""
    width = rng.randint(4, 6)
    return {
        "width": width,
        "taps": sorted(rng.sample(range(width), 2)),
        "first": rng.randrange(1, 1 << width),
        "inverts": rng.random() < 0.4,
    }


def change_shifter(params: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The parameters with one small change."""
    width = params["width"]
    changes: list[dict[str, Any]] = [
        {"taps": sorted(rng.sample(range(width), 2))},
        {"inverts": not params["inverts"]},
        {"first": params["first"] ^ (1 << rng.randrange(width))},
    ]
    return params | rng.choice(changes)


def edges(params: dict[str, Any]) -> Circuit:
    """Says which bits rose, fell or changed since the last edge."""
    kinds = params["kinds"]
    width = len(kinds)

    def after(state: tuple[int, int], values: Any) -> tuple[int, int]:
        old, new = state[0], values["x"]
        found = {"rise": new & ~old, "fall": ~new & old, "change": new ^ old}
        return new, sum(found[kind] & (1 << n) for n, kind in enumerate(kinds))

    words = "; ".join(f"y[{n}]: x[{n}] {_EDGE_WORDS[kind]}" for n, kind in enumerate(kinds))
    bits = ", ".join(_EDGE_TEXT[kinds[n]].format(n=n) for n in reversed(range(width)))
    return Circuit(
        "edges",
        f"x is read at each rising edge of clk. y is a register: after an edge each bit of y says "
        f"what happened to the bit of x between the edge before and this one. {words}. {_RESET}: "
        "it sets y to 0, and the remembered x to 0.",
        (Port("input", "x", width),),
        Port("output", "y", width),
        f"  reg [{width - 1}:0] p, r;\n  assign y = r;\n"
        + _always("p <= 0; r <= 0;", f"      p <= x;\n      r <= {{{bits}}};\n"),
        (0, 0),
        lambda state, _: state[1],
        after,
    )


def draw_edges(rng: Random) -> dict[str, Any]:
    """Parameters of ``edges``."""
    return {"kinds": [rng.choice(list(_EDGE_WORDS)) for _ in range(rng.randint(3, 4))]}


def change_edges(params: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The parameters with one small change."""
    kinds = list(params["kinds"])
    at = rng.randrange(len(kinds))
    kinds[at] = rng.choice([kind for kind in _EDGE_WORDS if kind != kinds[at]])
    return {"kinds": kinds}


def machine(params: dict[str, Any]) -> Circuit:
    """A Moore machine given by its table."""
    moves, shows = params["moves"], params["shows"]
    words = "; ".join(
        f"in S{n} y is {shows[n]}, x=0 leads to S{zero}, x=1 to S{one}"
        for n, (zero, one) in enumerate(moves)
    )
    lines = "".join(
        f"        3'd{n}: s <= x ? 3'd{one} : 3'd{zero};\n" for n, (zero, one) in enumerate(moves)
    )
    outs = "".join(f"      3'd{n}: o = 2'd{shows[n]};\n" for n in range(len(moves)))
    return Circuit(
        "machine",
        f"A Moore state machine that moves at each rising edge of clk: {words}. {_RESET}: it leads "
        "to S0.",
        (Port("input", "x", 1),),
        Port("output", "y", 2),
        "  reg [2:0] s;\n  reg [1:0] o;\n  assign y = o;\n"
        + _always(
            "s <= 3'd0;", f"      case (s)\n{lines}        default: s <= 3'd0;\n      endcase\n"
        )
        + f"  always @(*) begin\n    case (s)\n{outs}      default: o = 2'd0;\n"
        "    endcase\n  end\n",
        0,
        lambda state, _: shows[state],
        lambda state, values: moves[state][values["x"]],
    )


def draw_machine(rng: Random) -> dict[str, Any]:
    """Parameters of ``machine``."""
    num = rng.randint(3, 5)
    moves = [[rng.randrange(num), rng.randrange(num)] for _ in range(num)]
    return {"moves": moves, "shows": [rng.randrange(4) for _ in range(num)]}


def change_machine(params: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The parameters with one small change."""
    moves, shows = [list(row) for row in params["moves"]], list(params["shows"])
    at = rng.randrange(len(moves))
    if rng.random() < 0.6:
        moves[at][rng.randrange(2)] = rng.randrange(len(moves))
    else:
        shows[at] = (shows[at] + rng.randint(1, 3)) % 4
    return {"moves": moves, "shows": shows}
