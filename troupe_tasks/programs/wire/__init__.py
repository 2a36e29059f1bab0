"""The three request formats that programs speak: chat completions, responses and messages.

Each module reads a request body as a ``ModelRequest`` and writes a ``ModelAnswer`` in its format.
"""
