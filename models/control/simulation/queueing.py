"""Latency of a multi-server queue with general arrivals and service, in one step of a simulator.

- Probability of a wait and its mean: Sakasegawa, "An approximation formula L_q = alpha rho^beta / (1 - rho)", Annals of
  the Institute of Statistical Mathematics 29 (1977), with the variability factor of Allen and Cunneen (Allen,
  "Probability, Statistics and Queueing Theory", 1990, section 5.2.2):
  W_q = v tau / (c (1 - rho)) rho^(sqrt(2 (c + 1)) - 1), v = (c_a^2 + c_s^2) / 2.
- Tail of the wait: exponential beyond the probability of waiting (exact for M/M/c, the heavy-traffic limit of G/G/c:
  Koellerstroem 1974).
- A step is finite: near and above saturation the queue does not reach its stationary length within it. 1 - rho is
  therefore never taken below what diffusion fills in a step; what exceeds capacity is carried over as backlog.
- Wait in the queue, spread of the service and backlog, of which rarely two are large at once, are combined as the root
  of the sum of squares, which fits single requests (their sum is 10 to 40 percent too long).

docs/benchmarks/autoscaling-physics.md compares it with a discrete-event simulation.

Symbols, float32 of one shape: arrival rate (1/s), cores or servers c > 0 (need not be whole), service time tau (s) of
one of them, c_a^2 and c_s^2 squared coefficients of variation of the times between arrivals and of service, which is
log-normal.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_Z99, _LN100 = 2.3263478740408408, 4.605170185988092  # normal quantile of 0.99; of a wait: -ln(0.01)
_LN2 = 0.6931471805599453  # the same of a median
_LEAST_RHO = 1e-4
QUOTA_PERIOD_S = 0.1  # of a CPU limit (Linux' default, which Kubernetes keeps)
# Within the 0.1 to 0.7 of a period that fit recorded servers (data/scaling); queues drawn one by one: 0.3 to 0.5.
START_S = 0.4 * QUOTA_PERIOD_S


def p99_latency(rate: Tensor, cores: Tensor, service_s: Tensor, arrival_cv2: Tensor, service_cv2: Tensor,
                backlog_s: Tensor, step_s: float) -> Tensor:
    """(N,) 99th percentile of wait and service, s, of the requests that arrive in a step; all (N,).

    Args:
        arrival_cv2, service_cv2: squared coefficients of variation; service times are log-normal.
        backlog_s: work that is left over, s of all cores.
    """
    return latency_quantiles(rate, cores, service_s, arrival_cv2, service_cv2, backlog_s, step_s)[1]


def latency_quantiles(rate: Tensor, cores: Tensor, service_s: Tensor, arrival_cv2: Tensor, service_cv2: Tensor,
                      backlog_s: Tensor, step_s: float) -> tuple[Tensor, Tensor]:
    """Median and 99th percentile of wait and service, with the arguments of `p99_latency`, in whatever shape.

    The median leaves waits out while fewer than half of the requests wait: up to 45 % too short (one core, half busy).
    """
    waiting = waiting_of(rate, cores, service_s, 0.5 * (arrival_cv2 + service_cv2), step_s)
    p99 = p99_of(waiting, service_s, service_p99_factor(service_cv2), backlog_s)
    quiet = service_s * torch.exp(-0.5 * torch.log1p(service_cv2))
    return (quiet + waiting.beyond(_LN2) + backlog_s).minimum(p99), p99


def service_p99_factor(service_cv2: Tensor) -> Tensor:
    """99th percentile of a log-normal service time over its mean."""
    variance = torch.log1p(service_cv2)
    return torch.exp(_Z99 * variance.sqrt() - 0.5 * variance)


class Waiting(NamedTuple):
    """Mean wait of those who wait, s, without backlog; logarithm of the probability of waiting, which may be too small
    for float32."""

    wait_s: Tensor
    log_probability: Tensor

    def beyond(self, log_share: float) -> Tensor:
        """Wait, s, that a share of exp(-log_share) of all requests exceeds."""
        return self.wait_s * (self.log_probability + log_share).clamp(min=0.0)


def waiting_of(rate: Tensor, cores: Tensor, service_s: Tensor, variability: Tensor, step_s: float) -> Waiting:
    """How long and how often requests wait. variability: v."""
    rho = (rate * service_s / cores).clamp(_LEAST_RHO, 1.0)
    spread = variability * service_s / cores  # of the queue's work a unit of free capacity, s
    return Waiting(spread / ((1.0 - rho).square() + spread / step_s).sqrt(),
                   ((2.0 * (cores + 1.0)).sqrt() - 1.0) * rho.log())


def p99_of(waiting: Waiting, service_s: Tensor, p99_factor: Tensor, backlog_s: Tensor) -> Tensor:
    """99th percentile of wait and service together, s.

    Args:
        p99_factor: `service_p99_factor`.
        backlog_s: time in which all cores would work off what is left over: at the end of the step, or its 99th
            percentile over the step where the caller knows that.
    """
    tail, body = waiting.beyond(_LN100), service_s * (p99_factor - 1.0)
    return service_s + (tail.square() + body.square() + backlog_s.square() + 1e-12).sqrt()


def latency_within_quota(rate: Tensor, cores: Tensor, limit: Tensor, stolen: Tensor, service_s: Tensor,
                         arrival_cv2: Tensor, service_cv2: Tensor, backlog_s: Tensor,
                         step_s: float) -> tuple[Tensor, Tensor]:
    """Median and 99th percentile where a limit is a quota, s, with the arguments of `latency_quantiles`, and two more.

    Requests run at full speed until the quota of a period has run out. So they wait as on cores that are as slow as the
    limit, less the start that a quota of less than a core gives them, as far as nothing else has used it, but never
    less than on a whole core. Where more than the quota would be used everyone stands still for the rest of each
    period, and so does a request that takes more than a quota itself.

    A higher limit never makes it slower, but for some 7 ms with work left over: the start that a quota loses as it
    grows to a core may be more than what is left over then takes less.

    Args:
        cores: of the limit, that the requests can count on.
        limit: that the quota is for.
        stolen: cores that something else would use of the quota, however little it gets.
    """
    whole = cores.clamp(min=1.0)
    slow, fast = (latency_quantiles(rate, of, service_s, arrival_cv2, service_cv2, left, step_s)
                  for of, left in ((cores, backlog_s), (whole, backlog_s * cores / whole)))
    start_s = START_S * (1.0 - stolen / limit).clamp(min=0.0) * (2.0 - 2.0 * cores).clamp(0.0, 1.0)
    stands_s = QUOTA_PERIOD_S * (1.0 - limit / (rate * service_s + stolen)).clamp(min=0.0)
    longer_s = (service_s - limit * QUOTA_PERIOD_S).clamp(min=0.0) * (1.0 / limit.clamp(max=1.0) - 1.0)
    stands = ((stands_s - 0.5 * QUOTA_PERIOD_S).clamp(min=0.0), stands_s)
    median, p99 = (torch.maximum(quick + stop, late - start_s) + longer_s
                   for quick, late, stop in zip(fast, slow, stands, strict=True))
    return median, p99
