"""``python -m horovod.common.config`` prints the reference page."""

from horovod.common.config.reference import page

if __name__ == "__main__":
    print(page(), end="")
