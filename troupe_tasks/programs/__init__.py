"""Agent programs of others as a task family: the environment replays an unmodified program.

A program runs in a process of its own and asks an endpoint on loopback; a call that waits is an
agent's observation, an answer is its action. Imports the adapters' room and the SDK.
"""
