"""Latency of a service of c cores with general arrivals and service, in one step of a simulator.

Mean wait of those who wait and probability of waiting by Sakasegawa (Ann. Inst. Stat. Math. 29, 1977) with the
variability of Allen and Cunneen (Allen, 1990, section 5.2.2), W_q = v tau / (c (1 - rho)) rho^(sqrt(2 (c + 1)) - 1);
its tail is exponential (exact for M/M/c). A step is finite: 1 - rho is never less than what diffusion fills in it.
Wait, spread of the service and work left over, of which rarely two are large at once, add as squares.
"""

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
    rho = (rate * service_s / cores).clamp(_LEAST_RHO, 1.0)
    spread = 0.5 * (arrival_cv2 + service_cv2) * service_s / cores
    wait = spread / ((1.0 - rho).square() + spread / step_s).sqrt()
    log_waiting = ((2.0 * (cores + 1.0)).sqrt() - 1.0) * rho.log()
    tail = wait * (log_waiting + _LN100).clamp(min=0.0)
    variance = torch.log1p(service_cv2)
    body = service_s * (torch.exp(_Z99 * variance.sqrt() - 0.5 * variance) - 1.0)
    p99 = service_s + (tail.square() + body.square() + backlog_s.square() + 1e-12).sqrt()
    median = service_s * torch.exp(-0.5 * variance) + wait * (log_waiting + _LN2).clamp(min=0.0) + backlog_s
    return median.minimum(p99), p99


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
