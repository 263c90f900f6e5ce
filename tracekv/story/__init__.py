"""The mini language: one line is one history, read to rows and printed back.

A word is ``THREAD:what``.  The threads are the four that share a room: ``S`` the scheduler, ``B`` the
bootstrap thread, ``W`` the first transfer worker (``W1`` the second), ``D`` the decode engine.  The
promise: the rows say exactly what the line says, and ``tell(story(line))`` is the line again.

==================  ==========================================================================
``init``            the constructor: ``room.opened``, then Bootstrapping is stored over what is there
``open``            ``room.opened`` alone
``info``            ``B``: metadata arrives, both peer entries are added, WaitingForInput is stored
                    (``D``: the metadata is sent)
``meta``            the metadata frame alone
``add`` ``peer``    the room's entry in ``transfer_infos``; a peer inside of it
``pop`` ``pop-``    the entry is popped; a pop that found nothing
``set3``            State 3 is stored over what is there; ``set1=4``: 1 was asked for, 4 was stored;
                    ``set?=3``: not through ``update_status``; ``set3<0``: over 0, whatever was told before
``refuse3``         3 was asked for and nothing was stored
``drop``            the status entry is removed
``get`` ``has``     the status is read; its key is tested
``hasinfo``         the peer entry's key is tested (``getinfo``: it is read)
``enq0`` ``enq1*``  a chunk is enqueued; ``*`` marks the last one
``deq0`` ``skip0``  a chunk is dequeued; skipped
``wait``            the worker is back at its queue (``wait2``: with two chunks in it)
``post0`` ``done0`` a transfer is posted, is seen done (``bad0``: has failed)
``abort``           ``B``: the frame is received; ``D``: is sent; ``S``: is asked for locally
``ack``             the acknowledgement is sent (``D``: is received)
``err``             a failure is recorded
``poll3``           the poll's result changed to 3
``concl4``          ``conclude_state`` is set to 4
``clear``           the scheduler clears: both entries are removed, then ``room.cleared``
``cleared``         ``room.cleared`` alone
``notif``           a notification is received
``ctl``             the control thread is back at its socket
``die``             the thread died
``beat``            a heartbeat
``lost5``           five rows were lost
==================  ==========================================================================

Two words have no thread: ``@8`` goes on with room 8 (decimal or hex), ``+30s`` (``ms``, ``us``) lets time
pass.
"""

from __future__ import annotations

from tracekv.story.letters import EPOCH_NS, STEP_NS, THREADS, letter_of, manager_of, thread_of
from tracekv.story.opening import preamble, recording
from tracekv.story.read import StoryError, story
from tracekv.story.tell import tell

__all__ = [
    "EPOCH_NS",
    "STEP_NS",
    "THREADS",
    "StoryError",
    "letter_of",
    "manager_of",
    "preamble",
    "recording",
    "story",
    "tell",
    "thread_of",
]
