"""What ag2/chat.py asks, with no framework: it warms up a base model faster."""

from team import ask


def run(task):
    """A group chat of a user, a solver and a verifier, as each of the two sees it."""
    question = f"[user]: {task['question']}"
    asked, heard = [question], [question]
    for _ in range(2):
        said = ask("You are the solver.", *asked) or "(nothing)"
        heard.append(f"[solver]: {said}")
        verdict = ask("You are the verifier. Say APPROVE or REVISE.", *heard) or "(nothing)"
        if "APPROVE" in verdict:
            break
        asked += [f"[verifier]: {verdict}", "[user]: Once more, please."]
        heard.append("[user]: Once more, please.")
    return said
