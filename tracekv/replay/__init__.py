"""The replay lab: what to execute, in which order, on which rig, and whether it happened again."""
