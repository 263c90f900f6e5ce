"""``python -m tracekv`` is the command ``tracekv``."""

from tracekv.cli import main

if __name__ == "__main__":
    main(prog_name="tracekv")
