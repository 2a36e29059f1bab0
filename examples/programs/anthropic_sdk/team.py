"""Two agents by the Anthropic SDK: one call whole, one streamed, a tool."""

from anthropic import AsyncAnthropic

client = AsyncAnthropic()
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def said(message):
    return "".join(block.text for block in message.content if block.type == "text")


async def ask(system, messages, tools=()):
    return await client.messages.create(
        model="claude-any", max_tokens=1000, system=system, messages=messages, tools=list(tools)
    )


async def verified(task, text):
    seen = [{"role": "user", "content": f"{task['question']}\nSolution: {text}"}]
    async with client.messages.stream(
        model="claude-any", max_tokens=1000, system="You are the verifier.", messages=seen
    ) as stream:
        return said(await stream.get_final_message())


async def run(task):
    """A solver, then a verifier whose answer is streamed."""
    text = said(await ask("You are the solver.", [{"role": "user", "content": task["question"]}]))
    await verified(task, text)
    return text


async def with_tool(task):
    """The solver may add, at most three times."""
    messages = [{"role": "user", "content": task["question"]}]
    for _ in range(3):
        answer = await ask("You are the solver.", messages, [ADD])
        uses = [block for block in answer.content if block.type == "tool_use"]
        if not uses:
            break
        messages.append({"role": "assistant", "content": answer.content})
        results = [
            {"type": "tool_result", "tool_use_id": use.id, "content": str(sum(use.input.values()))}
            for use in uses
        ]
        messages.append({"role": "user", "content": results})
    return said(answer)
