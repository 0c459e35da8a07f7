"""What the loop of `run` keeps and takes back when errors and interrupts follow each other."""

from __future__ import annotations

from horovod.common.elastic import ObjectState, run_fn
from horovod.errors import HorovodInternalError, HostsUpdatedInterrupt


class Scripted(ObjectState):
    """Looks for changes of the hosts, and synchronizes, as a list says."""

    def __init__(self, notices: list[Exception | None], failing_sync: int) -> None:
        super().__init__(lambda value: value, lambda: 0, reached=0)
        self.notices = notices
        self.syncs_left = failing_sync

    def check_host_updates(self) -> None:
        if self.notices and (notice := self.notices.pop(0)):
            raise notice

    def sync(self) -> None:
        self.syncs_left -= 1
        if self.syncs_left == 0:
            raise HorovodInternalError("a rank died")
        super().sync()


def test_an_interrupt_keeps_what_was_reached_after_a_commit_that_failed() -> None:
    """The mark of that commit, that all is saved, would hold for the interrupt, which then saves nothing."""
    state = Scripted([HorovodInternalError("a rank died"), HostsUpdatedInterrupt(False)], failing_sync=3)
    begun: list[int] = []

    def train(state: Scripted) -> int:
        begun.append(state.reached)
        if len(begun) == 1:
            state.reached = 1
            state.commit()
        if state.reached < 5:
            state.reached = 5
            state.check_host_updates()
        return state.reached

    assert run_fn(train, lambda: None)(state) == 5
    assert begun == [0, 1, 5]
