"""Plans: departures in minutes of the day."""

from .stops import ride


def next_departure(departures: list[int], now: int) -> int:
    """The first departure that is not before ``now``; -1 when there is none."""
    later = [time for time in departures if time >= now]
    return min(later) if later else -1


def waiting(departures: list[int], now: int) -> int:
    """Minutes to the next departure; -1 when there is none."""
    time = next_departure(departures, now)
    return time - now if time != -1 else -1


def arrival(departures: list[int], stops: list[int], start: int, goal: int, now: int) -> int:
    """When one who leaves ``start`` at the next departure is at ``goal``; -1 when never."""
    time = next_departure(departures, now)
    minutes = ride(stops, start, goal)
    if time == -1 or minutes == -1:
        return -1
    return time + minutes


def rest(changes: list[int], least: int) -> list[int]:
    """The places from 0 on of changes that are shorter than ``least`` minutes."""
    return [place for place, minutes in enumerate(changes) if minutes < least]


def clock(minutes: int) -> str:
    """A time of day such as ``07:05``; the day begins again after 24 hours."""
    hour, minute = divmod(minutes % 1440, 60)
    return f"{hour:02d}:{minute:02d}"
