"""An agent reduced to its runtime: runtime_agent.py FOLDER ready|loading|stopping [engine arguments].

Starts the channel's engine, waits until it is where asked, prints its pids as JSON and waits to be killed.
"""

import asyncio
import json
import sys
from pathlib import Path

from tests.agent.runtime.runtimes import runtime, start, until_ready


async def main() -> None:
    r = runtime(Path(sys.argv[1]))
    process = await start(r, *sys.argv[3:])
    if sys.argv[2] != "loading":
        await until_ready(r, process)
    said = {"engine": process.engine_pid, "shim": process.shim_pid, "launch": process.launch_id}
    if sys.argv[2] == "stopping":
        stop = asyncio.ensure_future(r.stop(process, 1.5))
        await asyncio.sleep(0.1)
        print(json.dumps(said), flush=True)
        await stop
    print(json.dumps(said), flush=True)
    await asyncio.sleep(600)


asyncio.run(main())
