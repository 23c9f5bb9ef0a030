"""Open-loop load on loopback: a wave of some ten minutes, with a burst of a minute in each seven.

    python examples/own_service/load.py http://127.0.0.1:8800/ 26      # requests a second on average
"""

import asyncio
import math
import random
import sys
import time

import aiohttp


def rate_at(seconds: float, mean: float) -> float:
    """Requests a second."""
    return mean * (1.0 + 0.6 * math.sin(seconds / 100.0)) * (1.35 if seconds % 430.0 < 60.0 else 1.0)


async def main(url: str, mean: float) -> None:
    """Sends requests whether or not the ones before were answered."""
    begin, waiting = time.monotonic(), set()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=200),
                                     timeout=aiohttp.ClientTimeout(10)) as session:
        async def ask() -> None:
            try:
                async with session.get(url) as answer:
                    await answer.read()
            except (aiohttp.ClientError, TimeoutError):
                pass  # lost: what the service answered is what its metrics say

        while True:
            await asyncio.sleep(random.expovariate(rate_at(time.monotonic() - begin, mean)))
            task = asyncio.create_task(ask())
            waiting.add(task)
            task.add_done_callback(waiting.discard)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
