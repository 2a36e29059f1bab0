"""Two agents in 20 lines of the OpenAI SDK."""

from openai import AsyncOpenAI

client = AsyncOpenAI()


async def ask(system, user):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    answer = await client.chat.completions.create(model="gpt-4o-mini", messages=messages)
    return answer.choices[0].message.content


async def run(task):
    """A solver answers, a verifier judges, the solver may try once more."""
    said = await ask("You are the solver.", task["question"])
    verdict = await ask("You are the verifier.", f"{task['question']}\nSolution: {said}")
    if "REVISE" in verdict:
        said = await ask("You are the solver.", f"{task['question']}\nNot right: {said}")
    return said


async def responses(task):
    """The same two by the responses API, streamed."""
    texts = []
    for system in ("You are the solver.", "You are the verifier."):
        seen = "\nSolution: ".join([task["question"], *texts])
        async with client.responses.stream(
            model="gpt-4o-mini", instructions=system, input=seen
        ) as events:
            texts.append((await events.get_final_response()).output_text)
    return texts[0]
