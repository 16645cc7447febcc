"""One rate limit for all brokers together."""

import threading
from collections.abc import Callable

from harness.host.clock import Clock

BURST_S = 1.0
SLACK_S = 60.0
"""A wait for the rate limit that ends later than planned by more than this has failed."""


class RateLimit:
    """One rate limit for all brokers together: a token bucket by the generic cell rate algorithm (ITU-T I.371).

    The size of an answer is known only after it arrives. So each reader pays for its answers afterwards, with a wait of
    its own, in order. Safe to share between threads.
    """

    def __init__(self, rate_bytes_s: int, clock: Clock) -> None:
        """Begin with a full bucket, of `BURST_S` seconds' worth."""
        self._rate_bytes_s = rate_bytes_s
        self._clock = clock
        self._lock = threading.Lock()
        self._full_at_s = clock.now_s()

    @property
    def bucket_bytes(self) -> int:
        """The size of the bucket: the most bytes to request at a time."""
        return max(int(self._rate_bytes_s * BURST_S), 1)

    def pay(self, size_bytes: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until the rate allows so many bytes or ``is_over``. Raises `TimeLimitError` as every wait does."""
        with self._lock:
            now_s = self._clock.now_s()
            self._full_at_s = max(self._full_at_s, now_s) + size_bytes / self._rate_bytes_s
            paid_at_s = self._full_at_s - BURST_S
        timeout_s = max(paid_at_s - now_s, 0.0) + SLACK_S
        self._clock.wait_until(lambda: is_over() or self._clock.now_s() >= paid_at_s, timeout_s, "the rate limit")
