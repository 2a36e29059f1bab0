"""A team with no framework: plain HTTP, standard library. It knows nothing of Troupe."""

import json
import os
import urllib.request


def ask(system, *users):
    told = [{"role": "user", "content": user} for user in users]
    messages = [{"role": "system", "content": system}, *told]
    body = json.dumps({"model": "gpt-4o-mini", "messages": messages}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    headers = {
        "content-type": "application/json",
        "authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
    }
    request = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)["choices"][0]["message"]["content"] or ""


def run(task):
    """A solver answers until a verifier approves, three times at most."""
    review = ""
    for _ in range(3):
        said = ask("You are the solver.", task["question"] + review)
        seen = f"{task['question']}\nSolution: {said}"
        verdict = ask("You are the verifier. Say APPROVE or REVISE.", seen)
        if "APPROVE" in verdict:
            break
        review = f"\nThe verifier said: {verdict}"
    return said
