"""Lightning takes seconds to start, so that one launch for each of its packages runs everything."""

from check_launch import Launch


def lightning(package: str, *checks: str) -> Launch:
    environment = {"HVD_TEST_LIGHTNING": package}
    needs = ["torch", "lightning_utilities"]  # tests/lightning could be taken for a package
    return Launch(package.replace(".", "-"), 2, checks, environment, timeout=240, needs=needs)


LAUNCHES = [
    lightning("lightning.pytorch", "checks_training.py", "checks_trainer.py"),
    lightning(
        "pytorch_lightning",
        *(f"checks_training.py::check_{each}" for each in ("whole_batches", "accumulation", "clipping")),
        *(f"checks_trainer.py::check_{each}" for each in ("sampler", "metrics")),
    ),
]
