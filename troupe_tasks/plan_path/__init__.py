"""Plan-Path: a tool agent tries moves out, a planner walks to the goal of a walled grid."""

from troupe_tasks.plan_path.family import PlanPath, PlanPathParams

__all__ = ["PlanPath", "PlanPathParams"]
