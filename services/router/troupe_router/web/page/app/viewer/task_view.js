// What the environment noted, drawn: boards as boards, programs with their test results, answers.
import { Progress } from "../../vendor/ui.js";
import { html } from "../html.js";
import { number, percent, words } from "../format.js";
import { Tag } from "../parts.js";

const MAX_SIDE = 30;

export function TaskView({ info, task }) {
  const rest = { ...info };
  const parts = [];
  const drawing = info.grid ?? info.board;
  if (typeof drawing === "string") {
    const board = readBoard(drawing);
    parts.push(board ? html`<${Board} key="board" rows=${board} family=${task} path=${Array.isArray(info.path) ? info.path : []} />` : html`<pre key="board" class="drawing">${drawing}</pre>`);
    for (const name of ["grid", "board", "path", "at", "goal"]) delete rest[name];
  }
  if (typeof info.hidden_tests === "number") {
    parts.push(html`<${Tests} key="tests" passed=${info.hidden_passed} total=${info.hidden_tests} statuses=${info.statuses || {}} />`);
    for (const name of ["hidden_tests", "hidden_passed", "statuses"]) delete rest[name];
  } else if (typeof info.pass_rate === "number") {
    parts.push(html`<${Rate} key="rate" value=${info.pass_rate} />`);
    delete rest.pass_rate;
  }
  if (Array.isArray(info.tests)) {
    parts.push(html`<div key="proposed" class="verdicts">${info.tests.map((verdict, i) => html`<${Tag} key=${i} color=${/valid|ok|pass|right/.test(String(verdict)) && !/in|not/.test(String(verdict)) ? "teal" : "gray"}>${`test ${i + 1}: ${words(String(verdict))}`}<//>`)}</div>`);
    delete rest.tests;
  }
  if (typeof info.is_correct === "boolean") {
    parts.push(html`<p key="answer" class="answer"><${Tag} color=${info.is_correct ? "teal" : "red"}>${info.is_correct ? "correct" : "wrong"}<//> <code>${info.answer === null ? "no answer" : String(info.answer)}</code></p>`);
    delete rest.is_correct;
    delete rest.answer;
  }
  if (typeof info.stdout === "string" && info.stdout) {
    parts.push(html`<pre key="stdout" class="drawing" aria-label="Program output">${info.stdout}</pre>`);
    delete rest.stdout;
  }
  const facts = Object.entries(rest).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length));
  return html`<div class="task-view">${parts}${facts.length > 0 && html`<dl class="facts small">${facts.map(([name, value]) => [html`<dt key=${`${name}-name`}>${words(name)}</dt>`, html`<dd key=${name}>${tell(value)}</dd>`])}</dl>`}</div>`;
}

function tell(value) {
  if (typeof value === "number") return number(value);
  if (Array.isArray(value) && value.every((item) => typeof item !== "object")) return value.join(" ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// Lines of single marks with blanks between; null when the text is no such board.
export function readBoard(text) {
  const rows = text.split("\n").filter((line) => line.trim()).map((line) => line.trim().split(/\s+/));
  const width = rows[0]?.length || 0;
  const isBoard = width > 1 && width <= MAX_SIDE && rows.length <= MAX_SIDE && rows.every((row) => row.length === width && row.every((cell) => [...cell].length === 1));
  return isBoard ? rows : null;
}

// Marks by task family; a family that is not here shows its marks as letters.
const MARKS = {
  plan_path: { "#": "wall", "@": "agent", G: "goal", ".": "floor" },
  sokoban: { "#": "wall", "@": "agent", "+": "agent goal", $: "box", "*": "box goal", ".": "goal", "-": "floor", _: "floor" },
  sudoku: { ".": "blank", 0: "blank", _: "blank" },
  eight_queens: { Q: "given queen", q: "queen", x: "wall", ".": "floor" },
  tic_tac_toe: { ".": "blank" },
};
const NAMES = { agent: "the agent", goal: "the goal", wall: "a wall", box: "a box" };
const GLYPHS = { queen: "♛", agent: "", wall: "", floor: "", blank: "", goal: "", box: "" };

function Board({ rows, family, path }) {
  const marks = MARKS[family] || {};
  const trail = new Set(path);
  const box = family === "sudoku" ? Math.round(Math.sqrt(rows.length)) : 0;
  const cell = (mark, r, c) => {
    const kind = marks[mark] || "letter";
    const name = `${String.fromCharCode(97 + c)}${r + 1}`;
    const glyph = kind.split(" ").map((word) => GLYPHS[word]).find((symbol) => symbol !== undefined);
    const edges = box ? `${r && r % box === 0 ? " edge-top" : ""}${c && c % box === 0 ? " edge-left" : ""}` : "";
    return html`<span key=${name} class=${`cell ${kind}${trail.has(name) ? " trail" : ""}${edges}`} title=${`${name}: ${NAMES[kind.split(" ")[0]] || (glyph === "" ? "free" : mark)}`}>${glyph === undefined ? mark : glyph}</span>`;
  };
  return html`<div class=${`board board-${family}`} role="img" aria-label=${`Board, ${rows.length} by ${rows[0].length}: ${rows.map((row) => row.join("")).join(" / ")}`}>
    ${rows.map((row, r) => html`<div key=${r} class="board-row">${row.map((mark, c) => cell(mark, r, c))}</div>`)}</div>`;
}

function Tests({ passed, total, statuses }) {
  const others = Object.entries(statuses).filter(([name]) => name !== "ok");
  return html`<div class="tests"><${Rate} value=${total ? passed / total : 0} label=${`${passed} of ${total} hidden tests pass`} />
    <div class="verdicts">${others.map(([name, count]) => html`<${Tag} key=${name} color="red">${`${count} × ${words(name)}`}<//>`)}</div></div>`;
}

function Rate({ value, label }) {
  return html`<div class="rate"><${Progress} value=${100 * value} color=${value === 1 ? "teal" : value > 0 ? "yellow" : "red"} aria-label="Tests passed" /><span>${label || `${percent(value)} of the tests pass`}</span></div>`;
}
