"""Executes a notebook in a real kernel, for tests: run by .venv-notebook, which has nbclient.

    execute.py NOTEBOOK MESSAGES [--interrupt-when FILE WORD COUNT]

Writes every message of the kernel to MESSAGES (JSON Lines: cell, type, content). With
``--interrupt-when``, the kernel is interrupted, as a front end does it, once FILE holds WORD
COUNT times.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any, TextIO

import nbformat
from nbclient import NotebookClient

TIMEOUT_S = 500


class RecordingClient(NotebookClient):
    """Writes down what the kernel sends, also the updates that a notebook file does not keep."""

    messages: TextIO

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        line = {"cell": cell_index, "type": msg["msg_type"], "content": msg["content"]}
        self.messages.write(json.dumps(line, default=str) + "\n")
        self.messages.flush()
        return super().process_message(msg, cell, cell_index)


async def interrupt_when(client: NotebookClient, file: Path, word: str, count: int) -> None:
    while not holds(file, word, count):  # noqa: ASYNC110 - another process writes the file
        await asyncio.sleep(0.1)
    await client.km.interrupt_kernel()


def holds(file: Path, word: str, count: int) -> bool:
    return file.is_file() and file.read_text().count(word) >= count


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("notebook", type=Path)
    parser.add_argument("messages", type=Path)
    parser.add_argument("--interrupt-when", nargs=3, default=None)
    asked = parser.parse_args()
    notebook = nbformat.read(asked.notebook, as_version=4)
    folder = {"metadata": {"path": str(asked.notebook.parent)}}
    client = RecordingClient(notebook, timeout=TIMEOUT_S, allow_errors=True, resources=folder)
    with asked.messages.open("w") as client.messages:
        watch = None
        async with client.async_setup_kernel():
            if asked.interrupt_when:
                file, word, count = asked.interrupt_when
                watch = asyncio.create_task(interrupt_when(client, Path(file), word, int(count)))
            for index, cell in enumerate(notebook.cells):
                await client.async_execute_cell(cell, index)
            if watch:
                watch.cancel()
    nbformat.write(notebook, asked.notebook)


if __name__ == "__main__":
    asyncio.run(main())
