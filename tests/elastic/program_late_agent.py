"""An agent that is held up between two looks at its workers: at their exits, and at what is left."""

from __future__ import annotations

import time

from horovod.runner.agent.agent import Agent
from horovod.runner.agent.main import main

look, end_some = Agent._notice_exits, Agent._end_some


def late(agent: Agent) -> None:
    look(agent)
    if agent._sweep is not None:
        time.sleep(0.5)


def late_at_one(agent: Agent, now: float) -> None:
    if agent._ending and any(sweep.left for sweep in agent._ending.values()):
        time.sleep(0.5)
    end_some(agent, now)


if __name__ == "__main__":
    Agent._end_some = late_at_one  # type: ignore[method-assign]
    Agent._notice_exits = late  # type: ignore[method-assign]
    main()
