"""Latency of a multi-server queue with general arrivals and service, in one step of some seconds.

- Probability of a wait and its mean: Sakasegawa, "An approximation formula L_q = alpha rho^beta / (1 - rho)", Annals of
  the Institute of Statistical Mathematics 29 (1977), with the variability factor of Allen and Cunneen (Allen,
  "Probability, Statistics and Queueing Theory", 1990, section 5.2.2):
  W_q = (c_a^2 + c_s^2) / 2 * rho^(sqrt(2 (S + 1)) - 1) / (S (1 - rho)) * tau.
- Tail of the wait: exponential beyond the probability of waiting (exact for M/M/S, the heavy-traffic limit of G/G/S:
  Koellerstroem 1974).
- A step is finite: near and above saturation the queue does not reach its stationary length within it. 1 - rho is
  therefore never taken below what diffusion fills in a step; what exceeds capacity is carried over as backlog.
- Backlog: the 99th percentile of a step is that of its worst moment, not of its mean backlog. Wait in the queue,
  service and backlog are combined as the root of the sum of squares, which fits single requests (their sum is 10 to 40
  percent too long).

docs/benchmarks/autoscaling-physics.md compares it with a discrete-event simulation.

Symbols, all (N,) float32: arrival rate a (1/s), servers S > 0 (need not be whole), service time tau (s) of one server,
c_a^2, c_s^2 squared coefficients of variation of the times between arrivals and of service, rho = a tau / S.
"""

import torch
from torch import Tensor

# Standard normal quantile of 0.99: of a log-normal service time.
_Z99 = 2.3263478740408408
_LN100 = 4.605170185988092
_RHO_FLOOR = 1e-4


def service_p99_factor(service_cv2: Tensor) -> Tensor:
    """99th percentile of a log-normal service time over its mean."""
    variance = torch.log1p(service_cv2)
    return torch.exp(_Z99 * variance.sqrt() - 0.5 * variance)


def p99_latency(rate: Tensor, servers: Tensor, service_s: Tensor, variability: Tensor, p99_factor: Tensor,
                backlog_s: Tensor, step_s: float) -> Tensor:
    """99th percentile of wait and service together, of the requests that arrive in a step, s.

    Args:
        rate: a.
        servers: S.
        service_s: tau.
        variability: (c_a^2 + c_s^2) / 2.
        p99_factor: `service_p99_factor` of c_s^2.
        backlog_s: 99th percentile over the step of the time in which the servers would work off the backlog.
        step_s: length of the step, s.
    """
    conditional, log_waiting = _waiting(rate, servers, service_s, variability, step_s)
    tail = conditional * (log_waiting + _LN100).clamp(min=0.0)
    body = service_s * (p99_factor - 1.0)
    # as of independent parts, of which rarely two are large at once
    return service_s + (tail.square() + body.square() + backlog_s.square() + 1e-12).sqrt()


def mean_wait(rate: Tensor, servers: Tensor, service_s: Tensor, variability: Tensor, step_s: float) -> Tensor:
    """Mean wait without backlog, s; arguments as of `p99_latency`."""
    conditional, log_waiting = _waiting(rate, servers, service_s, variability, step_s)
    return conditional * log_waiting.exp()


def _waiting(rate: Tensor, servers: Tensor, service_s: Tensor, variability: Tensor,
             step_s: float) -> tuple[Tensor, Tensor]:
    """Mean wait of those who wait, s; logarithm of the probability of waiting, which may be too small for float32."""
    rho = (rate * service_s / servers).clamp(_RHO_FLOOR, 1.0)
    spread = variability * service_s / servers  # of the queue's work a unit of free capacity, s
    free = (1.0 - rho).square().add(spread / step_s).sqrt()
    return spread / free, ((2.0 * (servers + 1.0)).sqrt() - 1.0) * rho.log()
