"""No peer, and no PyTorch: shows that a bench program and the server understand each other."""
import time


class Clock:
    """Times `milliseconds` (0) of sleep a run by the host's clock."""

    label = "clock"

    def __init__(self, request):
        self.seconds = float(request.get("milliseconds", 0)) / 1e3

    def sample(self, runs):
        begun = time.perf_counter()
        for _ in range(runs):
            time.sleep(self.seconds)
        return runs, 1e3 * (time.perf_counter() - begun)


OPS = {"clock": Clock}
