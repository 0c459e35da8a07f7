"""``python -m horovod.runner.agent``, which the launcher starts."""

from horovod.runner.agent.main import main

if __name__ == "__main__":  # those who only look at the package import this, too
    main()
