"""The launchers other than horovodrun, in the order in which they are asked."""

from __future__ import annotations

from horovod._bootstrap.identity.base import Launcher
from horovod._bootstrap.identity.kubernetes import Kubernetes
from horovod._bootstrap.identity.mpich import Mpich
from horovod._bootstrap.identity.open_mpi import OpenMpi
from horovod._bootstrap.identity.pmix import Pmix
from horovod._bootstrap.identity.slurm import Slurm
from horovod._bootstrap.identity.torchrun import Torchrun

# Torchrun is started by others but not the other way round. mpirun starts its daemons by srun, so
# their processes have Slurm's variables too.
LAUNCHERS: tuple[type[Launcher], ...] = (Torchrun, OpenMpi, Mpich, Slurm, Pmix, Kubernetes)
