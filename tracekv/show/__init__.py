"""Every way to tell a result to a person or a program: one output, one file.  Analyses nothing."""
