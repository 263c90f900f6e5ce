"""The recorder: lives in the serving process, uses the standard library only, never raises into it."""
