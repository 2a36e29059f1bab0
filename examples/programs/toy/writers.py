"""What openai_sdk/notes_team.py asks, with no framework."""

from team import ask


def run(task):
    """The second writer reads the note and the first one's sentence."""
    note = task["question"]
    short = ask("Say what the note is about in one short sentence.", note)
    told = f"{note}\nIn short: {' '.join(short.split())}"
    long = ask("Retell the note in one long sentence with all its details.", told)
    return f"Short: {' '.join(short.split())}\nLong: {' '.join(long.split())}"
