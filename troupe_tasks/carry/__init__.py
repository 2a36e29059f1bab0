"""Two robots in a physics simulation bring one object to a shelf: carry it, hand it over, or take
it out of a box whose lid one of them holds."""

from troupe_tasks.carry.family import Carry, CarryParams

__all__ = ["Carry", "CarryParams"]
