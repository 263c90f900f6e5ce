"""The picture of a room, drawn with matplotlib: laid out as data first, inked afterwards."""

from tracekv.show.plot.room import room_plot, save

__all__ = ["room_plot", "save"]
