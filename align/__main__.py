"""`python -m align`: the program `align`."""

from align.cli.main import run

if __name__ == "__main__":
    run()
