"""`python -m hlo_opt`: the same as the command `hlo-opt`."""

from hlo_opt.cli import main

if __name__ == "__main__":
    main()
