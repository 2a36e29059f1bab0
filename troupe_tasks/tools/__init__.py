"""Tools: a clerk with the customer and the policy, an operator with the database's tools."""

from troupe_tasks.tools.family import Tools, ToolsParams

__all__ = ["Tools", "ToolsParams"]
