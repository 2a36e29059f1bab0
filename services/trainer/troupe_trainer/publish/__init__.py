"""Publishes a version from the trainer's files to every replica, and proves that it arrived.

`Publisher` is the one way in; how bytes travel is a `Transport`, chosen by a setting.
"""

from troupe_trainer.publish.publisher import Publisher
from troupe_trainer.publish.transport import Transport
from troupe_trainer.publish.transport_choice import make_transport

__all__ = ["Publisher", "Transport", "make_transport"]
