"""``python -m icl_curate`` is the command ``icl-curate``."""

from .cli import main

if __name__ == "__main__":
    main()
