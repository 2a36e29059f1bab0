"""The parts of a plan's program that do not depend on the plan, as templates of Python."""

HEAD = '''"""A team after a plan that was designed for a problem: plain LangGraph, to be changed.

    pip install langgraph langchain-openai
    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 python team.py "the problem"

OPENAI_BASE_URL, OPENAI_API_KEY and TEAM_MODEL say who is asked; --model is the last as an argument,
--base-url the first. The plan:

$plan
$program_note"""

$imports
from typing import Annotated, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

${rules}QUESTION = $question
KEPT_CHARS = $kept


class Team(TypedDict):
    """The problem, and the outputs of the lines so far."""

    question: str
    outputs: Annotated[dict[str, str], operator.or_]


def model(name: str | None = None, base_url: str | None = None) -> ChatOpenAI:
    """Who is asked; OPENAI_BASE_URL where no address is given."""
    name = name or os.environ.get("TEAM_MODEL", "executor")
    key = os.environ.get("OPENAI_API_KEY", "none")
    return ChatOpenAI(model=name, base_url=base_url, api_key=key, timeout=600)


llm = model()
'''

ASK = '''
async def ask(system: str, team: Team, inputs: list[str]) -> str:
    """What the model says to the problem with the outputs of ``inputs`` in view."""
    shown = [f"Problem:\\n{team['question']}"]
$inputs    messages = [("system", system), ("user", "\\n\\n".join(shown))]
    return str((await llm.ainvoke(messages)).content)


def output(name: str, text: str) -> dict:
    """The end of ``text`` as the output of the line ``name``."""
    return {"outputs": {name: text[-KEPT_CHARS:].strip()}}
'''

ANSWER_WHOLE = '''
def answer_in(text: str) -> str | None:
    """The answer that counts in a vote: all of the text."""
    return text if text not in $nothing else None
'''

ANSWER_IN_LINE = '''
def answer_in(text: str) -> str | None:
    """The answer that counts in a vote: the last one in the form that agents were told."""
    before, after = $before, $after
    # Without words before it, the answer begins the text.
    _, found, rest = text.rpartition(before) if before else ("", "all", text)
    line = (rest.splitlines() or [""])[0]
    inside = line.partition(after)[0] if after else line
    return inside.strip() or None if found else None
'''

ANSWER_IN_BRACES = r'''
def answer_in(text: str) -> str | None:
    """The answer that counts in a vote: the last one in the form that agents were told."""
    begins = re.compile(re.escape($before[:-1]) + r"\s*\{")
    answer, at = None, 0
    while begin := begins.search(text, at):
        depth, at = 1, begin.end()
        for brace in re.finditer(r"\\.|[{}]", text[begin.end() :], re.DOTALL):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if depth == 0:
                end = begin.end() + brace.start()
                answer, at = text[begin.end() : end].strip(), end + 1
                break
    return answer if answer and len(answer) <= 256 else None
'''

VOTED = '''
def voted(texts: list[str]) -> str:
    """The first text with the most frequent answer; the first of all where none has one."""
    votes = Counter(answer for text in texts if (answer := answer_in(text)) is not None)
    return max(texts, key=lambda text: votes[answer_in(text)])
'''

PICKED = '''
PICK = re.compile($pick)


def picked(text: str, names: list[str]) -> str:
    """The name on the last line of ``text``; the first of ``names`` where it names none."""
    match = PICK.search(text[-200:])
    return match[1] if match and match[1] in names else names[0]
'''

PRINTED = r'''
BLOCK = re.compile(r"^([ \t]*)```[ \t]*(\w*)[ \t]*\n(.*?)^\1```[ \t]*$$", re.DOTALL | re.MULTILINE)
NO_ANSWER = $nothing


def program_in(text: str) -> str:
    """The last block that is marked as Python, else the last without a mark."""
    found = BLOCK.findall(text.replace("\r\n", "\n"))
    plain = [code for _, mark, code in found if not mark]
    marked = [code for _, mark, code in found if mark.casefold() in $python]
    return textwrap.dedent((plain + marked or [""])[-1])


def printed_by(text: str) -> str:
    """The last line that the program in ``text`` prints, in the form of an answer. No sandbox."""
    program = program_in(text)
    if not program or len(program) > $chars:
        return NO_ANSWER
    command = [sys.executable, "-I", "-c", program]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=$seconds, input="", env={}
        )
    except (subprocess.TimeoutExpired, ValueError, UnicodeError):
        return NO_ANSWER
    line = (done.stdout.strip().splitlines() or [""])[-1][:200].strip()
    return $printed.replace("...", line, 1) if done.returncode == 0 and line else NO_ANSWER


if os.environ.get("RUN_PROGRAMS") != "yes":
    raise SystemExit("a model's programs would run here: use a container, and RUN_PROGRAMS=yes")
'''

TAIL = '''
graph = StateGraph(Team)
$edges
team = graph.compile()


async def run(task: dict) -> str:
    """The team's answer to ``task["question"]``."""
    done = await team.ainvoke({"question": task["question"], "outputs": {}})
    return done["outputs"]["$last"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A designed team answers a problem.")
    parser.add_argument("question", nargs="?", default=QUESTION, help="[the one it was made for]")
    parser.add_argument("--model", help="who is asked [$$TEAM_MODEL, else executor]")
    parser.add_argument("--base-url", help="of its server [$$OPENAI_BASE_URL]")
    arguments = parser.parse_args()
    llm = model(arguments.model, arguments.base_url)
    print(asyncio.run(run({"question": arguments.question})))
'''
