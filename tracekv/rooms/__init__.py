"""Events to rooms: the lives of every room id, told apart, and both roles joined."""

from tracekv.rooms.incarnations import lives_of, rooms_of
from tracekv.rooms.join import Partners, opposite, partners, ranks_of
from tracekv.rooms.life import Life, Room
from tracekv.rooms.missing import missing, unsent

__all__ = [
    "Life",
    "Partners",
    "Room",
    "lives_of",
    "missing",
    "opposite",
    "partners",
    "ranks_of",
    "rooms_of",
    "unsent",
]
