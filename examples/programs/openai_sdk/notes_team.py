"""Two writers in 20 lines of the OpenAI SDK: a short sentence about a note, then a long one."""

from openai import AsyncOpenAI

client = AsyncOpenAI()


async def ask(system, user):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    answer = await client.chat.completions.create(model="gpt-4o-mini", messages=messages)
    return " ".join(answer.choices[0].message.content.split())


async def run(task):
    """The second writer reads the note and the first one's sentence."""
    note = task["question"]
    short = await ask("Say what the note is about in one short sentence.", note)
    told = f"{note}\nIn short: {short}"
    long = await ask("Retell the note in one long sentence with all its details.", told)
    return f"Short: {short}\nLong: {long}"
