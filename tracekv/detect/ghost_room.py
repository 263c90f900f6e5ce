"""Ghost room: an entry exists again after the room was cleared, and nobody is left to drop it (I2).

A late write of a worker is one for sure.  Late metadata is one where it is the ended life's own
(that life never had any, or its frame was being handled while the room was cleared); metadata
that may announce a next life of the same id is no ghost.
"""

from __future__ import annotations

from tracekv.detect.base import Detector, Found, finding
from tracekv.detect.context import Context
from tracekv.event import Event, Op, state_label
from tracekv.finding import PROOF, SUSPICION, Finding, Note
from tracekv.rooms import Life


def find(life: Life, context: Context) -> Found:
    """At most one finding: the first row that brought back an entry that stayed."""
    if life.cleared is None or not life.ghosts:
        return Found()
    status, peers = (
        _left(life, Op.STATUS_WRITTEN, Op.STATUS_DROPPED),
        _left(life, Op.PEER_ADDED, Op.PEER_POPPED),
    )
    left = [row for row in (status, peers) if row is not None]
    if not left:
        return Found()
    since = min(left, key=lambda row: row.seq)
    if _announces_next_life(life):
        return Found(notes=(_note(life),))
    return Found((_finding(life, context, since, status, peers),))


def _left(life: Life, made: str, removed: str) -> Event | None:
    """The late row that made an entry in one of the tables, if the entry is still there."""
    creator: Event | None = None
    for row in life.ghosts:
        if row.op == removed:
            creator = None
        elif row.op == made and creator is None:
            creator = row
    return creator if creator is not None and not _dropped_later(life, creator, removed) else None


def _dropped_later(life: Life, creator: Event, op: str) -> bool:
    """Whether another thread than the late ones removed the entry after all."""
    return any(row.op == op and row.seq > creator.seq for row in life.events)


def _from_worker(life: Life) -> bool:
    return any(row.op == Op.STATUS_WRITTEN and (row.thread or "").startswith("worker") for row in life.ghosts)


def _own_frame_was_late(life: Life) -> bool:
    """Whether the late rows belong to a frame that arrived while the life was still going on."""
    return not any(row.op in (Op.META_RECEIVED, Op.ABORT_RECEIVED) for row in life.ghosts)


def _announces_next_life(life: Life) -> bool:
    """Metadata for a life that had its own already: decode starts over with the same id."""
    if _from_worker(life) or _own_frame_was_late(life):
        return False
    return any(row.op in (Op.META_RECEIVED, Op.PEER_ADDED) for row in life.body)


def _note(life: Life) -> Note:
    text = "metadata came after the clear of a life that had its own: it may announce a next life of this id"
    return Note("next_life_announced", life.room, text)


def _finding(
    life: Life, context: Context, since: Event, status: Event | None, peers: Event | None
) -> Finding:
    sure = _from_worker(life) or _own_frame_was_late(life)
    held = f"status {state_label(life.state)}" if status is not None else ""
    names = " and ".join(filter(None, (held, "an entry in transfer_infos" if peers is not None else "")))
    cleared = life.cleared.seq if life.cleared else since.seq
    return finding(
        "ghost_room",
        life,
        context,
        since,
        certainty=PROOF if sure else SUSPICION,
        blocked_on="release",
        claim=f"after the clear {since.thread} brought the room back: {names} stays and nobody will drop it",
        decisive=(cleared, since.seq),
        reasons=_reasons(sure, cleared, since),
    )


def _reasons(sure: bool, cleared: int, since: Event) -> tuple[str, ...]:
    order = f"the clear (seq {cleared}) precedes {since.thread}'s {since.op} (seq {since.seq}) in one process"
    return (order,) if sure else (order, "a sender that still opens this id would take the entry over")


DETECTOR = Detector(
    id="ghost_room",
    claim="A room enters the tables only by its own sender or receiver; after its clear no entry comes back.",
    invariant="I2",
    seams={"prefill": ("status", "peers", "sender"), "decode": ("status", "receiver")},
    find=find,
)
