"""Outputs: one file a form.  Each is a pure function from findings and rooms to text, data or axes."""
