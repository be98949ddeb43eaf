"""`python -m psboost`: the psboost command."""

from psboost.cli import main

if __name__ == "__main__":
    main()
